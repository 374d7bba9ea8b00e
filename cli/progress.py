"""A progress bar on stderr, shown only once a command has taken two seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ..sim.types import Progress

SHOW_AFTER_SECONDS = 2.0


@contextmanager
def progress(title: str, quiet: bool) -> Iterator[Progress]:
    """Yield a function to call with (done, total or None)."""
    screen = Console(stderr=True)
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=quiet or not screen.is_terminal,
    )
    task = bar.add_task(title, total=None)
    started = time.monotonic()
    shown = False

    def tick(done: int, total: int | None) -> None:
        nonlocal shown
        if not shown and time.monotonic() - started > SHOW_AFTER_SECONDS:
            bar.start()
            shown = True
        bar.update(task, completed=done, total=total)

    try:
        yield tick
    finally:
        bar.stop()
