"""Where a result comes from: the versions that computed it, and the command that asked for it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from ..traces.version import __version__

_COMMAND: ContextVar[str | None] = ContextVar("command", default=None)


@contextmanager
def command_line(args: Sequence[str]) -> Iterator[None]:
    """Let results made inside carry the command that makes them.

    Args:
        args: what stands after ``dfsim``.
    """
    words = [a.encode("utf-8", "backslashreplace").decode() for a in args]  # names may be bytes
    token = _COMMAND.set(shlex.join(["dfsim", *words]))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def provenance() -> dict[str, str]:
    """Versions, and the command where there is one: the same for the same command, always."""
    from importlib.metadata import version

    found = {
        "dfsim": __version__,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "polars": version("polars"),
    }
    command = _COMMAND.get()
    return found if command is None else {**found, "command": command}
