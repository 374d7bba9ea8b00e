"""Progress on stderr: a bar once a command has taken two seconds, or lines of training steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from ...sim.types import Progress

SHOW_AFTER_SECONDS = 2.0

OnStep = Callable[[int, Mapping[str, Any]], None]


@contextmanager
def progress(title: str, quiet: bool) -> Iterator[Progress]:
    """Yield a function to call with (done, total or None)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

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


@contextmanager
def step_lines(
    title: str, steps: int, quiet: bool
) -> Iterator[Callable[[int, Mapping[str, Any]], None]]:
    """Lines on stderr as verl reports its steps; the first takes about a minute."""
    began = time.monotonic()
    if not quiet:
        typer.echo(f"{title}: starting verl, Ray and the tiny model; up to a minute …", err=True)

    def on_step(step: int, metrics: Mapping[str, Any]) -> None:
        if not quiet:
            reward = metrics.get("critic/rewards/mean")
            shown = "" if reward is None else f", mean reward {reward:.3f}"
            seconds = time.monotonic() - began
            typer.echo(f"{title}: step {step} of {steps}{shown} ({seconds:.0f} s)", err=True)

    yield on_step
