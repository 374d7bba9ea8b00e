"""``dfsim strategies``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..shared.options import (
    Json,
)
from ..shared.output import print_json


def strategies(
    path: Annotated[Path | None, typer.Argument(help="A trace, to see what it can run.")] = None,
    check: Annotated[
        str | None, typer.Option(help="Check a strategy of your own: FILE.py:Class.")
    ] = None,
    json: Json = False,
) -> None:
    """List the strategies: kind, signals, parameters, source, and whether a trace can run them."""
    from ...reports.tables import console, print_strategies, strategies_record

    if check is not None:
        from ...strategies.check import check_strategy

        passed = check_strategy(check)
        if json:
            print_json({"strategy": check, "invariants": passed})
            return
        typer.echo(f"{check}: {len(passed)} invariants hold: {', '.join(passed)}")
        return
    reasons = None
    if path is not None:
        from ...sim.inspect.census import cannot_run
        from ...strategies.catalog import PRESETS
        from ...traces.storage.store import open_trace

        reasons = cannot_run(open_trace(path), PRESETS)
    if json:
        print_json(strategies_record(reasons))
        return
    print_strategies(console(), reasons)
