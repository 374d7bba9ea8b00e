"""verl's ``rollout_data_dir`` JSONL: the v1 trainer names trajectories, v0 names nothing.

v1 keys are ``{uid}_{session}_{output}``; padding rows have a uid that starts with ``pad``. v0 dumps
carry no group and ``balance_batch`` reorders their rows, so groups are never guessed from text: a
prompt that occurs once is a group of one, anything else needs ``--group-by`` or ``--group-size``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from ..errors import TraceError
from .base import PLACE, Chunk, ImportOptions, ImportSummary, Sample, read_chunks, source_files

_KEY = r"^(.+)_(\d+)_(\d+)$"
_TEXT = {"input": "prompt", "output": "response"}


def recognise_v1(sample: Sample) -> bool:
    """Rows have input, output, score, and a uid that is a trajectory key."""
    return {"input", "output", "score", "uid"} <= sample.columns and bool(
        sample.text("uid").str.contains(_KEY).all()
    )


def recognise_v0(sample: Sample) -> bool:
    """Rows have input, output, score, and no uid."""
    return {"input", "output", "score"} <= sample.columns and "uid" not in sample.columns


def read_v1(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield a v1 dump's rows: group, session and output come from the trajectory key."""
    for chunk in _chunks(source, options):
        frame = chunk.frame
        uid = frame["uid"].cast(pl.String)
        bad = ~uid.str.contains(_KEY).fill_null(False)
        if bad.any():
            row = int(bad.arg_max() or 0)
            raise TraceError(
                f"{chunk.place(row)}: column 'uid' holds {uid[row]!r}; verl v1 keys look like "
                "UID_SESSION_OUTPUT. If it names the group, import with --format flat"
            )
        yield chunk.with_frame(
            frame.drop("gts", strict=False)
            .with_columns(
                group_uid=uid.str.extract(_KEY, 1),
                rollout_idx=uid.str.extract(_KEY, 2).cast(pl.Int64),
                output_idx=uid.str.extract(_KEY, 3).cast(pl.Int64),
                is_padding=uid.str.starts_with("pad").cast(pl.Int64),
            )
            .drop("uid")
        )


def read_v0(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield a v0 dump's rows, grouped as the user said."""
    for chunk in _chunks(source, options):
        yield chunk.with_frame(_grouped(chunk, options, summary).drop("gts", strict=False))


def _chunks(source: Path, options: ImportOptions) -> Iterator[Chunk]:
    for path in source_files(source, (".jsonl",)):
        for chunk in read_chunks(path):
            frame = chunk.frame
            if "step" not in frame.columns:
                if not path.stem.isdigit():
                    raise TraceError(
                        f"{path}: rows have no 'step' and the file is not named STEP.jsonl; "
                        "rename it, or import with --map step=COLUMN"
                    )
                frame = frame.with_columns(step=pl.lit(int(path.stem)))
            reward = {} if "reward" in options.columns else {"score": "reward"}
            names = {**_TEXT, **reward}
            yield chunk.with_frame(
                frame.rename({k: v for k, v in names.items() if k in frame.columns})
            )


def _grouped(chunk: Chunk, options: ImportOptions, summary: ImportSummary) -> pl.DataFrame:
    frame = chunk.frame
    if options.group_by is not None:
        if options.group_by not in frame.columns and options.group_by in _TEXT:
            column = _TEXT[options.group_by]
        else:
            column = options.group_by
        if column not in frame.columns:
            have = ", ".join(n for n in frame.columns if n != PLACE)
            raise TraceError(f"{chunk.path} has no column '{column}' to group by; it has: {have}")
        summary.note(
            f"Groups are rows of one step with one '{options.group_by}', as --group-by says; two "
            "prompts that share it (images are not in a dump) would be one group."
        )
        return frame.with_columns(group_uid=pl.col(column).cast(pl.String))
    if options.group_size is not None:
        return _blocks(chunk, options.group_size, summary)
    counts = frame.group_by("step", "prompt").len()["len"]
    if (counts == 1).all():
        summary.singletons_said = True
        summary.note(
            "The dump has no group id and every prompt occurs once, so each response is a group of "
            "one: GRPO has nothing to compare there, and verl leaves the raw reward as advantage."
        )
        return frame.with_columns(group_uid=pl.format("{}-{}", pl.lit(chunk.path.stem), PLACE))
    sizes = counts.value_counts().sort("len").rows()
    shown = ", ".join(f"{size} rows × {prompts} prompts" for size, prompts in sizes[:4])
    raise TraceError(
        f"{chunk.path} is a verl v0 dump, which has no group id, and rows were reordered: "
        f"{frame.height} rows hold {len(counts)} prompt texts ({shown}). If one text is one prompt "
        "add --group-by input; if rows are still in blocks add --group-size N"
    )


def _blocks(chunk: Chunk, size: int, summary: ImportSummary) -> pl.DataFrame:
    frame = chunk.frame
    if frame.height % size:
        raise TraceError(
            f"{chunk.path} has {frame.height} rows, no multiple of --group-size {size}; count the "
            "rollouts a prompt, or use --group-by"
        )
    block = pl.int_range(pl.len()) // size
    mixed = frame.group_by(block.alias("b"), maintain_order=True).agg(
        pl.col("prompt").n_unique().alias("prompts")
    )["prompts"]
    if (mixed > 1).any():
        number = int((mixed > 1).arg_max() or 0)
        raise TraceError(
            f"{chunk.place(number * size)}: block {number + 1} of {size} rows holds "
            f"{mixed[number]} prompts: the rows are not in blocks (verl's balance_batch reorders "
            "them); use --group-by input"
        )
    summary.note(f"Groups are blocks of {size} rows, as --group-size says; each holds one prompt.")
    return frame.with_columns(group_uid=pl.format("{}-{}", pl.lit(chunk.path.stem), block))
