"""``flat``: JSONL, Parquet or CSV whose columns are canonical, or named with ``--map``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...schema import REQUIRED
from ..base import ImportOptions, ImportSummary
from ..sources import SUFFIXES, Chunk, Sample, read_chunks, source_files
from .base import Importer


def recognise(sample: Sample) -> bool:
    """Rows have step, group_uid and reward."""
    return set(REQUIRED) <= sample.columns


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield the rows of a file, or of a folder's files, as they are.

    A file of a folder that holds none of the columns that a trace needs is left out.
    """
    wanted = {options.columns.get(name, name) for name in REQUIRED}
    for path in source_files(source, SUFFIXES):
        for chunk in read_chunks(path, columns=options.columns):
            if source.is_dir() and not wanted & set(chunk.frame.columns):
                summary.note(f"Left out, as it holds no rollouts: {path.name}.")
                break
            yield chunk


IMPORTER = Importer(
    about="rows with step, group_uid, reward",
    trainer="",
    recognise=recognise,
    read=read,
)
