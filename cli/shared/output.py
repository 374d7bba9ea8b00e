"""What every command writes to stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ...live.core.verification.check import Check


def check_out(out: Path | None, marker: str, force: bool) -> None:
    """Refuse an ``--out`` that could not be written, before anything is computed for it.

    Args:
        out: the folder, if one was named.
        marker: the file that says such a folder is dfsim's own.
        force: whether an earlier result may be replaced.

    Raises:
        DfsimError: it is the current folder, can't be made, or must not be replaced.
    """
    from ...traces.storage.files import check_new_folder, refuse_here

    if out is not None:
        refuse_here(out)
        check_new_folder(out, marker, force)


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
