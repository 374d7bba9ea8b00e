"""AReaL's ``dump_to_file``: one file a task or one of all, a row a sample, versions beside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from ..base import ImportOptions, ImportSummary
from ..sources import SUFFIXES, Chunk, Sample, chunks_with
from .base import Importer

_NEEDED = ("task_id", "sample_idx", "seqlen", "head_version", "reward")


def recognise(sample: Sample) -> bool:
    """Rows have task_id, sample_idx, seqlen, head_version and reward."""
    return set(_NEEDED) <= sample.columns


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield rows; the step of a task is the smallest version that any of its samples began with."""
    first: dict[object, int] = {}
    for chunk in chunks_with(source, SUFFIXES, _NEEDED, "an AReaL dump", ImportSummary()):
        frame = chunk.frame
        for task, version in zip(frame["task_id"], frame["head_version"], strict=True):
            if version is not None:
                first[task] = min(first.get(task, version), version)
    summary.note(
        "The step is the smallest head_version of a task: AReaL writes none. Rows whose last token "
        "was masked, and empty completions, are not in such a dump, so groups may be short."
    )
    for chunk in chunks_with(source, SUFFIXES, _NEEDED, "an AReaL dump", summary):
        frame = chunk.frame.with_columns(
            pl.Series("step", [first.get(task) for task in chunk.frame["task_id"]], pl.Int64)
        )
        if "prompt_len" in frame.columns:
            frame = frame.with_columns(num_tokens=pl.col("seqlen") - pl.col("prompt_len"))
        names = {
            "task_id": "group_uid",
            "sample_idx": "rollout_idx",
            "head_version": "policy_version_min",
            "tail_version": "policy_version_max",
            "completion": "response",
        }
        present = {k: v for k, v in names.items() if k in frame.columns}
        yield chunk.with_frame(frame.drop("seqlen", "prompt_len", strict=False).rename(present))


IMPORTER = Importer(
    about="an AReaL dump",
    trainer="AReaL",
    recognise=recognise,
    read=read,
)
