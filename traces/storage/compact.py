"""Compaction: a trace's steps in few files, same content and fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from ..errors import TraceError
from ..schema import TOKEN_COLUMNS
from .files import replacing_folder
from .manifest import MANIFEST
from .store import Trace, TraceWriter

MAX_ROWS = 250_000
MAX_TOKENS = 4_000_000


def compact(
    trace: Trace,
    out: Path,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write a copy of a trace whose steps share files.

    A file holds up to 250,000 responses, and where token lists are stored up to 4 million tokens,
    because a reader holds one file's columns at a time; a larger step has a file of its own.

    Args:
        trace: the trace; it is left as it is, unless ``out`` is its folder and ``force`` is on.
        out: folder of the copy.
        force: replace an existing trace.
        progress: called with (steps done, steps in all).

    Returns:
        The number of files.

    Raises:
        TraceError: the copy's fingerprint differs, which means a file was changed meanwhile.
    """
    with replacing_folder(out, MANIFEST, force) as folder:
        writer = TraceWriter(folder, trace.manifest.emptied(), at_once=False)
        lists = not set(TOKEN_COLUMNS).isdisjoint(trace.columns)
        pending: list[pl.DataFrame] = []
        rows = tokens = 0
        for done, (entry, frame) in enumerate(trace.frames(trace.columns), start=1):
            rows += entry.responses
            tokens += (entry.tokens or 0) if lists else 0
            if pending and (rows > MAX_ROWS or tokens > MAX_TOKENS):
                writer.write_steps(pending)
                pending, rows = [], entry.responses
                tokens = (entry.tokens or 0) if lists else 0
            pending.append(frame)
            if progress is not None:
                progress(done, len(trace.manifest.steps))
        writer.write_steps(pending)
        writer.publish()
        if writer.manifest.fingerprint != trace.manifest.fingerprint:
            raise TraceError(f"{trace.path} changed while it was copied; run compact again")
        return len(writer.manifest.files)
