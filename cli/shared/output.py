"""What every command writes to stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from ...live.core.verification.check import Check


def print_json(record: Mapping[str, Any]) -> None:
    """One JSON object and nothing else; NaN is null."""
    from ...sim.result import dump_json

    typer.echo(dump_json(record))


def print_gates(gates: Sequence[Check]) -> None:
    """One line a check: ok, FAIL, or blank where it could not be checked."""
    marks = {True: "ok  ", False: "FAIL", None: "    "}
    width = max(len(gate.name) for gate in gates)
    for gate in gates:
        typer.echo(f"{marks[gate.passed]}  {gate.name:<{width}}  {gate.message}")
