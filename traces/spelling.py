"""How a parameter is written: as an option of the shell, a keyword of Python, a Hydra override."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

FrontEnd = Literal["python", "shell", "hydra"]

_front_end: ContextVar[FrontEnd] = ContextVar("front_end", default="python")

_SHELL = {
    "strategies": "--strategy",
    "params": "-p",
    "clocks": "--clock",
    "subsets": "--subset",
    "columns": "--map",
    "config": "--set",
}
"""Options whose name is not the parameter's with hyphens."""


@contextmanager
def speaking(front_end: FrontEnd) -> Iterator[None]:
    """Spell parameters as a front end's users write them, as long as the block lasts."""
    token = _front_end.set(front_end)
    try:
        yield
    finally:
        _front_end.reset(token)


def option(name: str, value: Any = None, *, key: str | None = None) -> str:
    """A parameter as the caller writes it.

    Args:
        name: of the Python parameter.
        value: shown beside it.
        key: of a mapping's item.

    Returns:
        ``--by x``, ``by='x'`` or ``+dfsim.by=x``; for an item of a mapping ``--where k=v``,
        ``where={'k': 'v'}`` or ``+dfsim.where.k=v``.
    """
    front_end = _front_end.get()
    if front_end == "python":
        if key is not None:
            return f"{name}={{{key!r}: {value!r}}}" if value is not None else f"{name}[{key!r}]"
        return f"{name}={'' if value is None else repr(value)}"
    if front_end == "hydra":
        path = name if key is None else f"{name}.{key}"
        return f"+dfsim.{path}" + ("" if value is None else f"={value}")
    flag = _SHELL.get(name, "--" + name.replace("_", "-"))
    if key is not None:
        return f"{flag} {key}" + ("" if value is None else f"={value}")
    return flag if value is None else f"{flag} {value}"
