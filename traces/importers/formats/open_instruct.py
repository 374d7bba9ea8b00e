"""open-instruct's ``save_traces``: one row a response, with the sampler's log-probs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from ..base import ImportOptions, ImportSummary
from ..sources import SUFFIXES, Chunk, Sample, chunks_with
from .base import Importer

_NEEDED = ("step", "prompt_idx", "sample_idx", "reward", "response_tokens")


def recognise(sample: Sample) -> bool:
    """Rows have step, prompt_idx, sample_idx, reward and response_tokens."""
    return set(_NEEDED) <= sample.columns


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield rows; files without any of their columns, such as the metadata, are left out."""
    for chunk in chunks_with(source, SUFFIXES, _NEEDED, "open-instruct rollouts", summary):
        frame = chunk.frame.with_columns(
            num_tokens=pl.col("response_tokens").list.len().cast(pl.Int64)
        )
        if frame.schema.get("dataset") == pl.List(pl.String):
            frame = frame.with_columns(dataset=pl.col("dataset").list.first())
        names = {
            "prompt_idx": "group_uid",
            "sample_idx": "rollout_idx",
            "prompt_tokens": "prompt_id",
            "logprobs": "rollout_log_probs",
            "dataset": "domain",
        }
        present = {k: v for k, v in names.items() if k in frame.columns}
        if "logprobs" in present:
            summary.note(
                "The log-probs are the sampler's (rollout_log_probs), not the trainer's: rules on "
                "the policy's own probabilities (ar) can't run."
            )
        yield chunk.with_frame(
            frame.drop("response_tokens", *present.values(), strict=False).rename(present)
        )


IMPORTER = Importer(
    about="open-instruct rollouts",
    trainer="open-instruct",
    recognise=recognise,
    read=read,
)
