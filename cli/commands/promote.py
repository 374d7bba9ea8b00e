"""``dfsim promote``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...traces.errors import DfsimError
from ..shared.options import (
    Force,
    Json,
    Params,
    Quiet,
    Resamples,
    Seed,
    SuccessColumn,
    SuccessThreshold,
    TracePath,
)
from ..shared.output import print_json
from ..shared.progress import progress


def promote(
    path: TracePath,
    strategy: Annotated[str, typer.Option("--strategy", "-s", help="The strategy to take live.")],
    param: Params = None,
    out: Annotated[Path, typer.Option(help="Folder to create.")] = Path("promotion"),
    seeds: Annotated[
        int, typer.Option(help="Also write this many pairs of scripts, and runs.csv.", min=0)
    ] = 0,
    rescale: Annotated[str, typer.Option(help="none, kept or mean_one.")] = "none",
    on_empty: Annotated[
        str, typer.Option(help="A step that keeps nothing: skip_update, keep_all or deliver.")
    ] = "skip_update",
    tie_seed: Annotated[int, typer.Option(help="Breaks ties across groups.", min=0)] = 0,
    success: SuccessColumn = "reward",
    success_threshold: SuccessThreshold = None,
    resamples: Resamples = 200,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast a strategy on a trace, and write what takes it into verl."""
    from ...live.core.delivery import ON_EMPTY, RESCALE
    from ...live.core.promotion import forecast_of, promoted
    from ...live.verl.promote import check_promotable, write_promotion_folder
    from ...sim.replay.loop import replay
    from ...sim.success import Success
    from ...strategies.grammar import one_of, strategies_from
    from ...traces.storage.store import open_trace

    trace = open_trace(path)
    trace.refuse_evaluation("a promotion forecasts training")
    solved = Success(success, success_threshold)
    chosen = strategies_from([strategy], param or [], tie_seed=tie_seed, shared=solved.parameters)
    if len(chosen) != 1:
        raise DfsimError(f"one strategy is promoted at a time; -p names {len(chosen)}")
    scaling = one_of(rescale, RESCALE, "--rescale")
    empty = one_of(on_empty, ON_EMPTY, "--on-empty")
    if out.resolve() == Path.cwd():
        raise DfsimError(f"--out {out} is the current folder; name one to create")
    check_promotable(trace.manifest, chosen[0], out, force)
    with progress("forecast", quiet or json) as tick:
        result = replay(
            trace, forecast_of(chosen[0]), resamples=resamples, seed=seed, progress=tick
        )
    promotion = promoted(result, chosen[0], scaling, empty)
    written = write_promotion_folder(promotion, chosen[0], trace.manifest, out, seeds, force)
    if json:
        print_json({"promotion": promotion.record(), "written": [str(p) for p in written]})
        return
    for line in promotion.summary():
        typer.echo(line)
    for file in written:
        typer.echo(f"Written: {file}")
    launch = out / "launch.sh"
    typer.echo(
        f"Next: {launch} python3 -m verl.trainer.main_ppo YOUR OVERRIDES\n"
        f"      dfsim verify {out / 'live'} --promotion {out}"
    )
