"""prime-rl's training rollouts: ``step_N/train_rollouts.jsonl``, and the export of hosted runs.

Both name the problem, not the group: the groups of a step are its problems, and two draws of one
problem in a step are told apart by their advantages where that can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from ..base import ImportOptions, ImportSummary
from ..conventions import step_of
from ..sources import SUFFIXES, Chunk, Sample, chunks_with
from .base import POLARS, Hint, Importer, has

_HOSTED = ("step", "problem_id", "sample_id", "reward")
_TRAINED = ("example_id", "completion", "reward")


def recognise(sample: Sample) -> bool:
    """Training rollouts by their file's name and folder, or a hosted run's columns."""
    return _is_hosted(sample.columns) or _is_trained(sample.path, sample.columns)


def _is_hosted(columns: set[str]) -> bool:
    return {*_HOSTED, "run_id"} <= columns


def _is_trained(path: Path, columns: set[str]) -> bool:
    return (
        "train" in path.stem and set(_TRAINED) <= columns and step_of(path.absolute()) is not None
    )


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield rows; without a step of their own, theirs is the folder's."""
    for chunk in chunks_with(source, SUFFIXES, ("reward",), "prime-rl rollouts", summary):
        frame = chunk.frame
        columns = set(frame.columns)
        if not (_is_hosted(columns) or _is_trained(chunk.path, columns)):
            summary.note(f"Left out, as it holds no training rollouts: {chunk.path.name}.")
            continue
        names = {
            "problem_id": "group_uid",
            "example_id": "group_uid",
            "sample_id": "rollout_idx",
            "completion": "response",
            "num_output_tokens": "num_tokens",
            "env_name": "domain",
        }
        present: dict[str, str] = {}
        for name, canonical in names.items():
            if name in columns and canonical not in {*columns, *present.values()}:
                present[name] = canonical
        frame = frame.rename(present)
        if frame.schema.get("task") == pl.String and "domain" not in frame.columns:
            frame = frame.rename({"task": "domain"})
        yield chunk.with_frame(frame)


IMPORTER = Importer(
    about="prime-rl training rollouts",
    trainer="prime-rl",
    recognise=recognise,
    read=read,
    hints=(
        Hint(
            has("group", "traces", "task"),
            f"prime-rl episodes: rewards lie in traces[].rewards. Flatten them first. {POLARS}",
        ),
    ),
)
