"""The commands that judge and show: thin, and free of heavy imports until one runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from .compare import compare
from .options import Json
from .screen import screen


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that --out wrote.")],
    json: Json = False,
) -> None:
    """Write a result's page again, from the JSON and figures beside it."""
    from ..reports.pages import write_page_again
    from ..sim.result import dump_json

    page = str(write_page_again(folder))
    typer.echo(dump_json({"page": page}) if json else f"Written: {page}")


PANELS: Mapping[str, tuple[Callable[..., None], ...]] = {
    "Offline": (screen, report),
    "Finished runs": (compare,),
}
