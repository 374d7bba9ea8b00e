"""Audit samples: rows chosen by their outcome, each with the rewards of its whole group beside it.

The chosen rows are no sample of what the policy does. The rewards of their groups are whole, so
that solve rates and live groups can be told; lengths, texts and log-probs can not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from ...findings import Finding
from ..base import ImportOptions, ImportSummary
from ..conventions import named
from ..sources import PLACE, SUFFIXES, Chunk, Sample, chunks_with
from .base import Importer

COLUMN = "group_rewards"


def recognise(sample: Sample) -> bool:
    """Rows have step, a prompt, reward and group_rewards, a list of numbers."""
    dtype = sample.frame.schema.get(COLUMN)
    listed = isinstance(dtype, pl.List) and dtype.inner.is_numeric()
    return {"step", "reward"} <= sample.columns and listed and bool(_key(sample.columns))


def _key(columns: set[str]) -> str | None:
    return next(iter(named("group_uid", columns - {COLUMN})), None)


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield each group once, as its list of rewards."""
    seen: set[tuple[object, str]] = set()
    summary.findings.append(
        Finding(
            "rows_chosen",
            "The rows were chosen by their outcome, so they are no sample: only the rewards of "
            f"their groups ({COLUMN}) were read. Solve rates and live groups are right for the "
            "prompts that were chosen, and say nothing of others; lengths and texts are left out.",
        )
    )
    for chunk in chunks_with(source, SUFFIXES, ("step", "reward", COLUMN), "samples", summary):
        key = _key(set(chunk.frame.columns))
        if key is None:
            continue
        frame = chunk.frame.select(PLACE, "step", pl.col(key).alias("prompt_id"), COLUMN)
        named_rows = zip(frame["step"], frame["prompt_id"].cast(pl.String), strict=True)
        fresh = []
        for pair in named_rows:
            fresh.append(pair not in seen)
            seen.add(pair)
        rows = frame.filter(pl.Series(fresh)).rename({COLUMN: "reward"})
        rows = rows.with_columns(
            group_uid=pl.format("{}-{}", "step", "prompt_id"),
            rollout_idx=pl.int_ranges(0, pl.col("reward").list.len()),
        )
        yield chunk.with_frame(rows.explode("reward", "rollout_idx"))


IMPORTER = Importer(
    about="samples with the rewards of their groups",
    trainer="samples chosen by outcome",
    recognise=recognise,
    read=read,
)
