"""``dfsim rehearse``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...traces.errors import DfsimError
from ..shared.options import (
    Json,
    Override,
    Params,
    Quiet,
)
from ..shared.output import print_json
from ..shared.progress import step_lines

LABEL = "346k-parameter CPU run: not evidence about LLMs"


def rehearse(
    strategy: Annotated[
        str | None, typer.Option("--strategy", "-s", help="Deliver this strategy.")
    ] = None,
    param: Params = None,
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
    from ...live.rehearsal.launch import Rehearsal, run_rehearsal
    from ...live.verl.overrides import dfsim_overrides
    from ...strategies.grammar import strategies_from
    from ...traces.findings import plain

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
    with step_lines("rehearsal", steps, quiet or json) as on_step:
        result = run_rehearsal(run, on_step=on_step)
    if json:
        steps_record = [{k: plain(v) for k, v in step.items()} for step in result.steps]
        print_json({"seconds": result.seconds[1], "steps": steps_record})
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


def _needs_verl() -> None:
    from importlib.util import find_spec

    if find_spec("verl") is None:
        raise DfsimError("verl is not installed here; pip install 'dfsim[live]' adds it")
