"""Importing: a source's rows become a trace, one response a row, every value checked."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from .errors import TraceError, nearest
from .files import check_new_folder, replacing_folder
from .importers import IMPORTERS
from .importers.base import Chunk, ImportOptions, ImportSummary
from .importers.lengths import Lengths
from .importers.rows import Rows
from .manifest import MANIFEST, Manifest, checked_config
from .sessions import merge_outputs
from .store import TraceWriter
from .version import __version__

Progress = Callable[[int], None]


def import_trace(
    source: Path,
    out: Path,
    *,
    format: str = "flat",
    options: ImportOptions | None = None,
    config: Mapping[str, Any] | None = None,
    label: str = "",
    force: bool = False,
    progress: Progress | None = None,
) -> ImportSummary:
    """Import a source into a new trace folder.

    Args:
        source: file or folder.
        out: the trace folder; replaced only after success, and only with ``force``.
        format: key of ``IMPORTERS``.
        options: columns, tokenizer, text.
        config: the run's settings for the manifest, by verl's names.
        label: a caution to print beside every result.
        force: replace an existing trace.
        progress: called with the number of rows read so far.

    Raises:
        TraceError: an unknown format, a missing column, or a value that does not fit; names file,
            line, column, value and remedy.
    """
    if format not in IMPORTERS:
        known = ", ".join(IMPORTERS)
        raise TraceError(f"no format is called '{format}'{nearest(format, IMPORTERS)}: {known}")
    options = options or ImportOptions()
    settings = checked_config(config)
    check_new_folder(out, MANIFEST, force)
    summary = ImportSummary()
    measure = Lengths(options, summary)
    with (
        replacing_folder(out, MANIFEST, force) as folder,
        tempfile.TemporaryDirectory(prefix=".spool-", dir=folder) as spool,
    ):
        frames = _normalised(
            IMPORTERS[format](source, options), options, measure, summary, progress
        )
        parts = _spool(frames, Path(spool))
        if not parts:
            raise TraceError(f"{source} holds no row that is not padding; nothing to import")
        steps = sorted(parts)
        manifest = Manifest(
            writer=f"dfsim {__version__}",
            source=f"import of {source.name} ({format})",
            label=label,
            lengths=summary.lengths,
            config=settings,
        )
        writer = TraceWriter(folder, manifest)
        for step in steps:
            frame = pl.concat([pl.read_parquet(p) for p in parts[step]], how="diagonal_relaxed")
            before = frame.height
            try:
                if "output_idx" in frame.columns:
                    frame = merge_outputs(frame)
                summary.outputs += before - frame.height
                entry = writer.write_step(frame)
            except TraceError as error:
                where = "" if str(error).startswith("step ") else f"step {step}: "
                raise TraceError(f"{source}, {where}{error}") from None
            summary.responses += entry.responses
        summary.steps = len(steps)
    return summary


def _spool(frames: Iterator[pl.DataFrame], folder: Path) -> dict[int, list[Path]]:
    """Sort rows into one file per chunk and step, so that memory holds one chunk at a time."""
    parts: dict[int, list[Path]] = {}
    for number, frame in enumerate(frames):
        for (step,), rows in frame.partition_by("step", as_dict=True).items():
            path = folder / f"{number:06d}-{len(parts):06d}-{step}.parquet"
            rows.write_parquet(path, compression="lz4")
            parts.setdefault(int(step), []).append(path)
    return parts


def _normalised(
    chunks: Iterator[Chunk],
    options: ImportOptions,
    measure: Lengths,
    summary: ImportSummary,
    progress: Progress | None,
) -> Iterator[pl.DataFrame]:
    for chunk in chunks:
        summary.rows += chunk.frame.height
        frame = Rows(chunk, options, summary).canonical(measure)
        if progress is not None:
            progress(summary.rows)
        if frame.height:
            yield frame
