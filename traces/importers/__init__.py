"""Importers: one file per format, each turning a source into chunks of rows.

Adding one is a file with ``read`` and its line in ``IMPORTERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from . import flat
from .base import Chunk, ImportOptions

IMPORTERS: dict[str, Callable[[Path, ImportOptions], Iterator[Chunk]]] = {
    "flat": flat.read,
}
