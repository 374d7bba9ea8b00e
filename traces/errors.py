"""Errors that a user can act on: one line naming what, where, and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DfsimError(ValueError):
    """Base of every error that a user causes; the command line prints it as one line, exit 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # names in a file may hold line breaks


class TraceError(DfsimError):
    """A trace, or a file to import, is missing something or holds what it must not."""


class MissingColumnError(TraceError):
    """A trace lacks a column.

    Attributes:
        subject: what needs it.
        need: the column and how to get it, completing "… needs ".
    """

    def __init__(self, subject: str, need: str) -> None:
        super().__init__(f"{subject} needs {need}")
        self.subject, self.need = subject, need


class StrategyError(DfsimError):
    """A strategy is unknown, gets a wrong parameter, or breaks an invariant."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""
