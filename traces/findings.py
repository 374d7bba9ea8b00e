"""Findings: what stands out, with a name to go by, a sentence to act on, and the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CHOSEN = frozenset(("rows_chosen", "rows_missing"))
"""Findings that say a trace's rows were chosen by their outcome."""


@dataclass(frozen=True)
class Finding:
    """What stands out in data, or in what a strategy does to it.

    Attributes:
        name: what it is called in every table and file.
        message: a sentence to act on.
        evidence: the figures behind it.
        remedy: what to do, where the message does not say it.
    """

    name: str
    message: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        evidence = {name: plain(value) for name, value in self.evidence.items()}
        record = {"name": self.name, "message": self.message, "evidence": evidence}
        return {**record, "remedy": self.remedy} if self.remedy else record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Finding:
        """Read what :meth:`to_dict` wrote."""
        return cls(**record)


def counted(number: int, noun: str) -> str:
    """A number and its noun: ``1 group``, ``1,200 groups``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def plain(value: Any) -> Any:
    """A value as JSON: what is not finite becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number_of(value: Any) -> Any:
    """A number of a JSON record: null is NaN."""
    return math.nan if value is None else value
