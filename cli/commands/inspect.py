"""``dfsim inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..shared.options import (
    Json,
    Quiet,
    SuccessColumn,
    SuccessThreshold,
    TracePath,
)
from ..shared.output import print_json
from ..shared.progress import progress


def inspect(
    path: TracePath,
    prompts: Annotated[
        Path | None, typer.Option(help="Write one row a prompt (.csv or .parquet).")
    ] = None,
    success: SuccessColumn = "reward",
    success_threshold: SuccessThreshold = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what a trace holds, what is odd about it, and what it can run."""
    from ...reports.folders.replay import check_prompts, write_prompts
    from ...reports.tables import console, print_census
    from ...sim.inspect.census import census
    from ...sim.replay.loop import describe
    from ...sim.success import Success
    from ...traces.storage.store import open_trace

    trace = open_trace(path)
    if prompts is not None:
        check_prompts(trace, prompts)
    with progress("inspect", quiet or json) as tick:
        found = census(trace, tick, success=Success(success, success_threshold))
    if prompts is not None:
        write_prompts(found, prompts)
    if json:
        print_json({"trace": describe(trace), **found.to_dict()})
        return
    print_census(trace, found, console())
