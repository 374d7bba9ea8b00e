"""``dfsim replay``."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ...traces.errors import DfsimError
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
    TracePath,
)
from ..shared.output import check_out, print_json
from ..shared.progress import progress


def replay(
    path: TracePath,
    strategy: Strategies = None,
    param: Sweep = None,
    scorer: Annotated[str | None, typer.Option(help="Compose: a scorer …")] = None,
    actuator: Annotated[str | None, typer.Option(help="… and an actuator.")] = None,
    loss_agg_mode: Annotated[
        str | None, typer.Option(help="verl's loss aggregation; default: the run's own.")
    ] = None,
    out: Out = None,
    decisions: Annotated[
        Path | None, typer.Option(help="Parquet file for one strategy's weights.")
    ] = None,
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
    """Say what strategies would have done to the updates of a captured run."""
    from ...sim.mix.simulate import Candidates, clocks_of
    from ...sim.replay.loop import OnDecision, each_of
    from ...sim.replay.loop import replay as run
    from ...sim.success import Success
    from ...strategies.grammar import strategies_from
    from ...strategies.sample.base import SamplingStrategy
    from ...traces.storage.store import open_trace

    pool, clocks = Candidates.parse(candidates), clocks_of(clock)
    trace = open_trace(path)
    skipped: dict[str, str] = {}
    if strategy and "all" in strategy:
        from ...sim.inspect.census import cannot_run

        skipped = cannot_run(trace)
    solved = Success(success, success_threshold)
    strategies = strategies_from(
        strategy or [],
        param or [],
        scorer,
        actuator,
        tie_seed=tie_seed,
        skip=skipped,
        shared=solved.parameters,
    )
    chosen = [s for s in strategies if not isinstance(s, SamplingStrategy)]
    watchers: list[OnDecision] = []
    text = None
    if out is not None:
        from ...reports.pages import REPLAY_JSON
        from ...sim.replay.samples import TextSamples, has_text

        check_out(out, REPLAY_JSON, force)
        text = TextSamples(trace) if has_text(trace) else None
        watchers += [text] if text else []
    with contextlib.ExitStack() as stack:
        if decisions is not None:
            from ...reports.folders.replay import writing_decisions

            if len(chosen) != 1:
                raise DfsimError("--decisions writes one strategy's weights; name one strategy")
            watchers.append(stack.enter_context(writing_decisions(decisions, chosen[0].name)))
        with progress("replay", quiet or json) as tick:
            result = run(
                trace,
                strategies,
                loss_agg_mode=loss_agg_mode,
                resamples=resamples,
                seed=seed,
                phi=phi,
                candidates=pool,
                clocks=clocks,
                progress=tick,
                on_decision=each_of(watchers),
            )
    mixers = list(result.mixers.values())
    left_out = [f"{name} was left out: it needs {reason}" for name, reason in skipped.items()]
    result = dataclasses.replace(result, notes=[*left_out, *result.notes])
    if out is not None:
        from ...reports.folders.replay import write_replay

        write_replay(result, out, force, text.to_dict() if text else None)
    if json:
        from ...reports.folders.replay import replay_record

        print_json(replay_record(result))
        return
    from ...reports.mix.tables import print_mixing
    from ...reports.tables import console, print_replay, trace_line

    screen = console()
    if chosen or not mixers:
        print_replay(result, screen)
    else:
        screen.print(trace_line(result))
    if mixers:
        screen.print()
        print_mixing(mixers, screen)
    for written in filter(None, (out, decisions)):
        screen.print(f"Written: {written}")
