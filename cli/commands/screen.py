"""The command ``dfsim screen``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..shared.options import (
    Clocks,
    DrawnFrom,
    Force,
    Json,
    Out,
    Quiet,
    Resamples,
    Seed,
    Strategies,
    SuccessColumn,
    SuccessThreshold,
    Sweep,
)
from ..shared.output import check_out, print_json
from ..shared.progress import progress


def screen(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="Traces, or folders with one below.")
    ],
    strategy: Strategies = None,
    param: Sweep = None,
    by: Annotated[
        str, typer.Option(help="The estimator that orders, and that differences rest on.")
    ] = "effective_batch_low",
    baseline: Annotated[str, typer.Option(help="The strategy to take differences to.")] = "none",
    loss_agg_mode: Annotated[
        str | None, typer.Option(help="verl's loss aggregation; default: the run's own.")
    ] = None,
    out: Out = None,
    resamples: Resamples = 200,
    seed: Seed = 0,
    tie_seed: Annotated[int, typer.Option(help="Seed that breaks ties across groups.")] = 0,
    phi: Annotated[float, typer.Option(help="Response share of the noise, a fit.")] = 0.25,
    success: SuccessColumn = "reward",
    success_threshold: SuccessThreshold = None,
    candidates: DrawnFrom = "prompts",
    clock: Clocks = "both",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which strategies are worth a live run on this data, and which change nothing."""
    from ...reports.folders.screen import screen_record, write_screen
    from ...reports.pages import SCREEN_JSON
    from ...reports.screen.tables import print_screen
    from ...reports.tables import console
    from ...sim.screen.screen import screen as run
    from ...sim.success import Success
    from ...strategies.grammar import strategies_from
    from ...traces.storage.store import open_trace

    traces = [open_trace(path) for path in paths]
    solved = Success(success, success_threshold)
    chosen = strategies_from(
        strategy or ["all"], param or [], tie_seed=tie_seed, shared=solved.parameters
    )
    check_out(out, SCREEN_JSON, force)
    with progress("screen", quiet or json) as tick:
        result = run(
            traces,
            chosen,
            by=by,
            baseline=baseline,
            loss_agg_mode=loss_agg_mode,
            resamples=resamples,
            seed=seed,
            phi=phi,
            candidates=candidates,
            clocks=clock,
            progress=tick,
        )
    if out is not None:
        write_screen(result, out, force)
    if json:
        print_json(screen_record(result))
        return
    terminal = console()
    print_screen(result, terminal)
    if out is not None:
        terminal.print(f"Written: {out}")
