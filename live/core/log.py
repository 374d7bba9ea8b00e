"""``live.jsonl`` beside a captured trace: one record a step of what dfsim did there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIVE_LOG = "live.jsonl"


def append_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Add one step's record."""
    line = json.dumps(record, allow_nan=False) + "\n"
    _end_torn_line(folder)
    with (folder / LIVE_LOG).open("a") as file:
        file.write(line)


def _end_torn_line(folder: Path) -> None:
    """End a line that a kill or a full disk left half written, so that the next one is whole."""
    path = folder / LIVE_LOG
    if not path.is_file() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


def read_records(folder: Path) -> dict[int, dict[str, Any]]:
    """Step → its latest record; a torn line is left out."""
    path = folder / LIVE_LOG
    found: dict[int, dict[str, Any]] = {}
    if not path.is_file():
        return found
    for line in path.read_text(errors="replace").splitlines():
        try:
            record = json.loads(line)
            found[int(record["step"])] = record
        except (ValueError, KeyError, TypeError):
            continue
    return found
