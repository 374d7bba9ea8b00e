"""``dfsim report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..shared.options import (
    Json,
)


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that --out wrote.")],
    json: Json = False,
) -> None:
    """Write a result's page again, from the JSON and figures beside it."""
    from ...reports.pages import write_page_again
    from ...sim.result import dump_json

    page = str(write_page_again(folder))
    typer.echo(dump_json({"page": page}) if json else f"Written: {page}")
