"""One thing that was looked at, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what is checked.
        passed: whether it holds; ``None`` where it can't be checked, or is only told.
        message: the sentence to read.
    """

    name: str
    passed: bool | None
    message: str
