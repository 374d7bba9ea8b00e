"""tinker-cookbook's rollout summaries: one row a trajectory, in ``iteration_N/`` or joined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from ..base import ImportOptions, ImportSummary
from ..sources import SUFFIXES, Chunk, Sample, chunks_with
from .base import Importer

_NEEDED = ("iteration", "group_idx", "traj_idx", "total_reward")


def recognise(sample: Sample) -> bool:
    """Rows have iteration, group_idx, traj_idx and total_reward."""
    return set(_NEEDED) <= sample.columns


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield rows; lengths are those of all actions, the domain is the tags."""
    for chunk in chunks_with(source, SUFFIXES, _NEEDED, "tinker-cookbook summaries", summary):
        frame = chunk.frame.rename(
            {
                "iteration": "step",
                "group_idx": "group_uid",
                "traj_idx": "rollout_idx",
                "total_reward": "reward",
            }
        )
        if "sampling_client_step" in frame.columns:
            frame = frame.rename({"sampling_client_step": "policy_version_min"})
        steps = frame.schema.get("steps")
        inner = steps.inner if isinstance(steps, pl.List) else None
        if isinstance(inner, pl.Struct) and "ac_len" in {f.name for f in inner.fields}:
            lengths = pl.col("steps").list.eval(pl.element().struct.field("ac_len")).list.sum()
            frame = frame.with_columns(num_tokens=lengths.cast(pl.Int64))
        if frame.schema.get("tags") == pl.List(pl.String):
            frame = frame.with_columns(domain=pl.col("tags").list.join("+"))
        elif frame.schema.get("tags") == pl.String:
            frame = frame.with_columns(domain=pl.col("tags"))
        yield chunk.with_frame(frame.drop("steps", "tags", "schema_version", strict=False))


IMPORTER = Importer(
    about="tinker-cookbook rollout summaries",
    trainer="tinker",
    recognise=recognise,
    read=read,
)
