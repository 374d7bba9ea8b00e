"""Where the numbers of a record come from, as a page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def made_by(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Command, settings and versions, as pairs of name and value."""
    found = dict(record["provenance"])
    command = found.pop("command", None)
    rows = [
        *([("Command", command)] if command else []),
        ("Settings", "; ".join(f"{n} {_words(v)}" for n, v in record["settings"].items())),
        ("Versions", ", ".join(f"{n} {v}" for n, v in found.items())),
    ]
    return [(name, str(value)) for name, value in rows]


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{n}={_words(v)}" for n, v in value.items()) or "none"
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
