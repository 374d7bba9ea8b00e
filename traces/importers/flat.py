"""``flat``: JSONL, Parquet or CSV whose columns are canonical, or named with ``--map``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..schema import REQUIRED
from .base import SUFFIXES, Chunk, ImportOptions, ImportSummary, Sample, read_chunks, source_files


def recognise(sample: Sample) -> bool:
    """Rows have step, group_uid and reward."""
    return set(REQUIRED) <= sample.columns


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield the rows of a file, or of a folder's files, as they are."""
    for path in source_files(source, SUFFIXES):
        yield from read_chunks(path, columns=options.columns)
