"""The commands of the panel Live: thin, and free of torch and verl until one runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..live.core.check import Check
from ..traces.errors import DfsimError
from .options import Force, Json, Quiet, Resamples, Seed, SuccessColumn, SuccessThreshold, TracePath

Param = Annotated[list[str] | None, typer.Option("-p", help="name=value.")]
Override = Annotated[
    list[str] | None, typer.Option("--override", help="A Hydra override for verl; may be repeated.")
]

OnStep = Callable[[int, Mapping[str, Any]], None]

LABEL = "346k-parameter CPU run: not evidence about LLMs"


def doctor(
    canary: Annotated[
        bool, typer.Option("--canary", help="Train three steps with weights 0, 0, 1 on this CPU.")
    ] = False,
    trainer_mode: Annotated[
        str, typer.Option("--trainer-mode", help="With --canary: audit this trainer instead.")
    ] = "dfsim_sync",
    override: Override = None,
    zero: Annotated[
        list[str] | None,
        typer.Option("--zero", help="Override under which that plug-in weighs everything 0."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check that verl, the plug-in and every private seam are as dfsim expects."""
    from ..live.verl.doctor import check_installation, folded, run_canary
    from ..sim.result import dump_json

    checks = check_installation()
    sound = all(check.passed is not False for check in checks)
    if not json:
        _print_gates(folded(checks))
    if canary and sound:
        with _steps("canary", 3, quiet or json) as on_step:
            trained = run_canary(trainer_mode, override or (), zero or (), on_step)
        if not json:
            _print_gates(trained)
        checks += trained
    passed = all(check.passed is not False for check in checks)
    if json:
        typer.echo(dump_json({"passed": passed, "checks": [vars(check) for check in checks]}))
    elif canary and not sound:
        typer.echo("The canary was not run: mend the above first.")
    if not passed:
        raise typer.Exit(1)


def rehearse(
    strategy: Annotated[
        str | None, typer.Option("--strategy", "-s", help="Deliver this strategy.")
    ] = None,
    param: Param = None,
    promotion: Annotated[
        Path | None, typer.Option(help="Deliver a promoted strategy: promotion.json.")
    ] = None,
    shadow: Annotated[
        list[str] | None, typer.Option(help="Decide and log, never apply; may be repeated; or all.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Training steps.", min=1)] = 10,
    capture: Annotated[Path | None, typer.Option(help="Trace folder to write.")] = None,
    seed: Annotated[int, typer.Option(help="Of data, order and sampling.", min=0)] = 0,
    prompts: Annotated[int, typer.Option(help="Prompts a step.", min=1)] = 24,
    responses: Annotated[int, typer.Option(help="Responses a prompt.", min=1)] = 8,
    agent: Annotated[str, typer.Option(help="single, or multi-output.")] = "single",
    ranks: Annotated[int, typer.Option(help="Data-parallel ranks.", min=1)] = 1,
    mini_batches: Annotated[int, typer.Option(help="Optimizer steps a step.", min=1)] = 1,
    trainer_mode: Annotated[str, typer.Option(help="verl's trainer.v1.trainer_mode.")] = (
        "dfsim_sync"
    ),
    device: Annotated[
        str, typer.Option(help="cpu, or an accelerator that verl knows, such as cuda.")
    ] = "cpu",
    override: Override = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the real verl trainer on this CPU: a tiny model, a verifiable task of three domains."""
    from ..live.rehearsal.launch import Rehearsal, run_rehearsal
    from ..live.verl.overrides import dfsim_overrides
    from ..sim.result import dump_json
    from ..strategies.grammar import strategies_from
    from ..traces.findings import plain

    for name in filter(None, (strategy, *(shadow or ()))):
        # Refused now, not in a minute.
        strategies_from([name], (param or ()) if name == strategy else ())
    settings = dfsim_overrides(
        strategy=strategy,
        params=param or (),
        promotion=promotion,
        shadow=shadow or (),
        capture=capture,
        label=LABEL if capture else "",
    )
    run = Rehearsal(
        steps=steps,
        prompts=prompts,
        responses=responses,
        seed=seed,
        trainer_mode=trainer_mode,
        device=device,
        agent=agent,
        ranks=ranks,
        mini_batches=mini_batches,
        overrides=(*settings, *(override or ())),
    )
    _needs_verl()
    with _steps("rehearsal", steps, quiet or json) as on_step:
        result = run_rehearsal(run, on_step=on_step)
    if json:
        steps_record = [{k: plain(v) for k, v in step.items()} for step in result.steps]
        typer.echo(dump_json({"seconds": result.seconds[1], "steps": steps_record}))
        return
    rewards = [step["critic/rewards/mean"] for step in result.steps]
    third = max(len(rewards) // 3, 1)
    first, last = sum(rewards[:third]) / third, sum(rewards[-third:]) / third
    typer.echo(
        f"{len(rewards)} steps of verl's {trainer_mode} in {result.seconds[1]:.0f} s. Mean reward "
        f"{first:.3f} over the first {'step' if third == 1 else f'{third} steps'}, {last:.3f} over "
        "the last."
    )
    proven = [s["dfsim/delivered"] for s in result.steps if "dfsim/delivered" in s]
    if proven:
        typer.echo(f"Weights reached the loss in {sum(proven):.0f} of {len(proven)} checked steps.")
    if capture is not None:
        typer.echo(f"Captured: {capture} ({LABEL})\nNext: dfsim replay {capture} --strategy all")


def promote(
    path: TracePath,
    strategy: Annotated[str, typer.Option("--strategy", "-s", help="The strategy to take live.")],
    param: Param = None,
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
    from ..live.core.delivery import ON_EMPTY, RESCALE
    from ..live.core.promotion import forecast_of, promoted
    from ..live.verl.promote import check_promotable, write_promotion_folder
    from ..sim.replay.loop import replay
    from ..sim.result import dump_json
    from ..sim.success import Success
    from ..strategies.grammar import one_of, strategies_from
    from ..traces.store import open_trace
    from .progress import progress

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
        typer.echo(
            dump_json({"promotion": promotion.record(), "written": [str(p) for p in written]})
        )
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


def verify(
    live: Annotated[Path, typer.Argument(help="The capture of the live run.")],
    promotion: Annotated[Path | None, typer.Option(help="promotion.json, or its folder.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Recompute a live run's decisions, read its proof of delivery, compare with the forecast."""
    from ..live.core.promotion import read_promotion
    from ..live.core.verify import verify as run
    from ..sim.result import dump_json
    from ..traces.store import open_trace
    from .progress import progress

    trace = open_trace(live)
    chosen = None if promotion is None else read_promotion(promotion)
    with progress("verify", quiet or json) as tick:
        found = run(trace, chosen, progress=tick)
    if json:
        typer.echo(dump_json(found.to_dict()))
    else:
        _print_gates(found.gates)
        shown = [c for c in found.comparisons if c.headline]
        if shown:
            typer.echo(f"\n{'':<22}{'forecast':>9}  {'for steps like those':<22}{'live':>9}")
        for c in shown:
            interval = "" if c.low is None else f"[{_figure(c.low)}, {_figure(c.high)}]"
            note = "" if c.inside is not False else "  outside"
            figures = f"{_figure(c.forecast):>9}  {interval:<22}{_figure(c.observed):>9}"
            typer.echo(f"{c.name:<22}{figures}{note}")
        for note in found.notes:
            typer.echo(f"· {note}")
        typer.echo("Verified." if found.passed else "NOT verified: a gate failed.")
    if not found.passed:
        raise typer.Exit(1)


COMMANDS: tuple[Callable[..., None], ...] = (doctor, rehearse, promote, verify)


def _print_gates(gates: Sequence[Check]) -> None:
    marks = {True: "ok  ", False: "FAIL", None: "    "}
    width = max(len(gate.name) for gate in gates)
    for gate in gates:
        typer.echo(f"{marks[gate.passed]}  {gate.name:<{width}}  {gate.message}")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _needs_verl() -> None:
    from importlib.util import find_spec

    if find_spec("verl") is None:
        raise DfsimError("verl is not installed here; pip install 'dfsim[live]' adds it")


@contextmanager
def _steps(
    title: str, steps: int, quiet: bool
) -> Iterator[Callable[[int, Mapping[str, Any]], None]]:
    """Lines on stderr as verl reports its steps; the first takes about a minute."""
    began = time.monotonic()
    if not quiet:
        typer.echo(f"{title}: starting verl, Ray and the tiny model; up to a minute …", err=True)

    def on_step(step: int, metrics: Mapping[str, Any]) -> None:
        if not quiet:
            reward = metrics.get("critic/rewards/mean")
            shown = "" if reward is None else f", mean reward {reward:.3f}"
            seconds = time.monotonic() - began
            typer.echo(f"{title}: step {step} of {steps}{shown} ({seconds:.0f} s)", err=True)

    yield on_step
