"""``dfsim doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from ..shared.options import (
    Json,
    Override,
    Quiet,
)
from ..shared.output import print_gates, print_json
from ..shared.progress import step_lines


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
    from ...live.verl.doctor import check_installation, folded, run_canary

    checks = check_installation()
    sound = all(check.passed is not False for check in checks)
    if not json:
        print_gates(folded(checks))
    if canary and sound:
        with step_lines("canary", 3, quiet or json) as on_step:
            trained = run_canary(trainer_mode, override or (), zero or (), on_step)
        if not json:
            print_gates(trained)
        checks += trained
    passed = all(check.passed is not False for check in checks)
    if json:
        print_json({"passed": passed, "checks": [vars(check) for check in checks]})
    elif canary and not sound:
        typer.echo("The canary was not run: mend the above first.")
    if not passed:
        raise typer.Exit(1)
