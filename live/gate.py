"""One thing that a live run must hold to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gate:
    """One thing that must hold.

    Attributes:
        name: what is checked.
        passed: whether it holds; ``None`` where it can't be checked.
        message: the sentence to read.
    """

    name: str
    passed: bool | None
    message: str
