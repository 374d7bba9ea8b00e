"""A pass-rate table: one row a prompt with ``num_correct`` of ``num_samples``, becomes step 0."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from ...errors import TraceError
from ..base import ImportOptions, ImportSummary
from ..sources import Chunk, Sample, read_chunks, require, source_files
from .base import Importer

_NEEDED = ("prompt_id", "num_correct", "num_samples")
MAX_SAMPLES = 100_000


def recognise(sample: Sample) -> bool:
    """Rows have prompt_id, num_correct and num_samples."""
    return set(_NEEDED) <= sample.columns


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield each prompt's samples as a group of binary rewards, the solved ones first.

    Raises:
        TraceError: a count is missing, no whole number, negative or above its total, or a prompt
            occurs twice.
    """
    summary.note(
        "Each row became a group of num_samples binary rewards in step 0; which sample was solved "
        "is unknown, so rollout_idx means nothing."
    )
    for path in source_files(source, (".csv", ".jsonl", ".parquet")):
        for chunk in read_chunks(path, columns=options.columns):
            yield chunk.with_frame(_expand(chunk))


def _expand(chunk: Chunk) -> pl.DataFrame:
    require(chunk, _NEEDED, "a pass-rate table")
    frame = chunk.frame
    for name in _NEEDED:
        if frame.schema[name].is_nested():
            raise TraceError(f"{chunk.place(0)}: column '{name}' must hold one value a row")
    counts = {n: frame[n].cast(pl.Int64, strict=False) for n in _NEEDED[1:]}
    for name, values in counts.items():
        bad = ~values.is_between(int(name == "num_samples"), MAX_SAMPLES).fill_null(False)
        if frame.schema[name].is_numeric():
            bad |= (values != frame[name]).fill_null(True)
        if bad.any():
            row = int(bad.arg_max() or 0)
            raise TraceError(
                f"{chunk.place(row)}: column '{name}' holds {frame[name][row]!r}; give a count, "
                f"at most {MAX_SAMPLES:,}"
            )
    again = ~frame["prompt_id"].is_first_distinct() & frame["prompt_id"].is_not_null()
    if again.any():
        row = int(again.arg_max() or 0)
        raise TraceError(
            f"{chunk.place(row)}: prompt_id {frame['prompt_id'][row]!r} occurs twice; add its "
            "counts up, or give each row its own prompt_id"
        )
    above = counts["num_correct"] > counts["num_samples"]
    if above.any():
        row = int(above.arg_max() or 0)
        raise TraceError(
            f"{chunk.place(row)}: num_correct {counts['num_correct'][row]} is above num_samples "
            f"{counts['num_samples'][row]}; a pass rate is at most 100 %"
        )
    frame = frame.with_columns(**counts)
    rows = frame.with_columns(
        rollout_idx=pl.int_ranges(0, pl.col("num_samples")), group_uid=pl.col("prompt_id").cast(str)
    ).explode("rollout_idx")
    return rows.with_columns(
        step=pl.lit(0),
        reward=(pl.col("rollout_idx") < pl.col("num_correct")).cast(pl.Float64),
    ).drop("num_correct", "num_samples")


IMPORTER = Importer(
    about="a pass-rate table",
    trainer="a pass-rate table",
    recognise=recognise,
    read=read,
)
