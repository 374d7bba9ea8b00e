"""``dfsim inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..shared.options import (
    Force,
    Json,
    PageFolder,
    Quiet,
    SuccessColumn,
    SuccessThreshold,
    TracePath,
)
from ..shared.output import check_out, print_json
from ..shared.progress import progress


def inspect(
    path: TracePath,
    prompts: Annotated[
        Path | None, typer.Option(help="Write one row a prompt (.csv or .parquet).")
    ] = None,
    success: SuccessColumn = "reward",
    success_threshold: SuccessThreshold = None,
    out: PageFolder = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what a trace holds, what is odd about it, and what it can run."""
    from ...reports.folders.replay import check_prompts, write_prompts
    from ...reports.folders.result import write_record
    from ...reports.pages import INSPECT_JSON
    from ...reports.tables import census_facts, console, print_census
    from ...sim.inspect.census import census
    from ...sim.replay.loop import describe
    from ...sim.success import Success
    from ...traces.storage.store import open_trace

    trace = open_trace(path)
    check_out(out, INSPECT_JSON, force)
    if prompts is not None:
        check_prompts(trace, prompts)
    with progress("inspect", quiet or json) as tick:
        found = census(trace, tick, success=Success(success, success_threshold))
    if prompts is not None:
        write_prompts(found, prompts)
    record = {"trace": describe(trace), **found.to_dict()}
    if out is not None:
        shown = {**record, "facts": list(census_facts(trace, found))}
        settings = {"success": success, "success_threshold": success_threshold}
        write_record(INSPECT_JSON, shown, settings, out, force)
    if json:
        print_json(record)
        return
    print_census(trace, found, console())
    if out is not None:
        typer.echo(f"Written: {out}")
