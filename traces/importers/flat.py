"""``flat``: JSONL or Parquet whose columns are canonical, or named with ``--map``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .base import Chunk, ImportOptions, read_chunks, source_files


def read(source: Path, options: ImportOptions) -> Iterator[Chunk]:
    """Yield the rows of a file, or of a folder's files, as they are.

    Args:
        source: a ``.jsonl`` or ``.parquet`` file, or a folder of them.
        options: unused; canonical names are looked up by the import itself.
    """
    for path in source_files(source, (".jsonl", ".parquet")):
        yield from read_chunks(path)
