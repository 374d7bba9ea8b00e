"""Groups that lie in blocks of rows, each block one prompt."""

from __future__ import annotations

import polars as pl

from ..errors import TraceError
from .sources import Chunk


def blocks(chunk: Chunk, size: int, remedies: tuple[str, str], first: int = 0) -> pl.Expr:
    """Number of each row's block, after checking that blocks are whole and hold one prompt.

    Args:
        chunk: rows with columns ``step`` and ``prompt``.
        size: rows a block.
        remedies: what to do about a row count that is no multiple, and about a mixed block.
        first: rows of the file before this chunk; a multiple of ``size``.

    Raises:
        TraceError: the last block is short, or a block holds two prompts or steps; names the place.
    """
    frame = chunk.frame
    if frame.height % size:
        rows = first + frame.height
        raise TraceError(f"{chunk.path} has {rows} rows, no multiple of {size}; {remedies[0]}")
    block = (first + pl.int_range(pl.len())) // size
    prompts = frame.group_by(block.alias("block"), maintain_order=True).agg(
        pl.struct("step", "prompt").n_unique().alias("prompts")
    )["prompts"]
    if (prompts > 1).any():
        number = int((prompts > 1).arg_max() or 0)
        raise TraceError(
            f"{chunk.place(number * size)}: block {first // size + number + 1} of {size} rows "
            f"holds {prompts[number]} prompts or steps: {remedies[1]}"
        )
    return block
