"""verl's ``rollout_data_dir`` JSONL: the v1 trainer names trajectories, v0 names nothing.

v1 keys are ``{uid}_{session}_{output}``; padding rows have a uid that starts with ``pad``. v0 dumps
carry no group and ``balance_batch`` reorders their rows, so groups are never guessed from text: a
prompt that occurs once is a group of one, anything else needs ``--group-by`` or ``--group-size``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from ...errors import TraceError
from ...schema import COLUMNS
from ...storage.manifest import VERL
from ..base import IMPORT_ONLY, ImportOptions, ImportSummary
from ..blocks import blocks
from ..conventions import step_of
from ..sources import CHUNK_ROWS, PLACE, Chunk, Sample, read_chunks, require, source_files
from .base import GROUP_SIZE, FormatOption, Hint, Importer, has, maps

GROUP_BY = FormatOption("group_by", "column whose values tell groups apart.", "text")
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
    for chunk in _chunks(source, options, summary, "input", "uid"):
        frame = chunk.frame
        uid = frame["uid"].cast(pl.String, strict=False)
        session, output = (uid.str.extract(_KEY, i).cast(pl.Int64, strict=False) for i in (2, 3))
        bad = session.is_null() | output.is_null()
        if bad.any():
            row = int(bad.arg_max() or 0)
            shown = "no value" if uid[row] is None else repr(uid[row])[:80]
            raise TraceError(
                f"{chunk.place(row)}: column 'uid' holds {shown}; verl v1 keys look "
                "like UID_SESSION_OUTPUT. If it names the group, import with --format flat"
            )
        yield chunk.with_frame(
            frame.drop("gts", strict=False)
            .with_columns(
                group_uid=uid.str.extract(_KEY, 1),
                rollout_idx=session,
                output_idx=output,
                is_padding=uid.str.starts_with("pad").cast(pl.Int64),
            )
            .drop("uid")
        )


def read_v0(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield a v0 dump's rows, grouped as the user said."""
    first, path = 0, None
    seen: set[int] = set()
    for chunk in _chunks(source, options, summary, "input"):
        if chunk.path != path:
            first, path, seen = 0, chunk.path, set()
        frame = _grouped(chunk, first, seen, options, summary)
        first += frame.height
        yield chunk.with_frame(_with_numbers(frame).drop("gts", strict=False))


def _chunks(
    source: Path, options: ImportOptions, summary: ImportSummary, *needed: str
) -> Iterator[Chunk]:
    size = GROUP_SIZE.value(options) or 1
    for path in source_files(source, (".jsonl",)):
        for chunk in read_chunks(path, max(CHUNK_ROWS // size, 1) * size):
            require(chunk, needed, "a verl dump")
            frame = chunk.frame
            if options.columns.get("step") in frame.columns:
                frame = frame.with_columns(step=pl.col(options.columns["step"]))
            elif "step" not in frame.columns:
                step = int(path.stem) if path.stem.isdigit() else options.step
                step = step_of(path.absolute()) if step is None else step
                if step is None:
                    raise TraceError(
                        f"{path}: rows have no 'step' and the file is not named STEP.jsonl; "
                        "rename it, or import with --map step=COLUMN or --step 0"
                    )
                frame = frame.with_columns(step=pl.lit(step))
            names = dict(_TEXT)
            if "reward" not in options.columns and "score" in frame.columns:
                names["score"] = "reward"
                if "reward" in frame.columns:
                    summary.note("The reward is 'score'; --reward reward chooses the other column.")
                    equal = (
                        frame["score"].cast(pl.String).eq_missing(frame["reward"].cast(pl.String))
                    )
                    summary.reward_is_score = summary.reward_is_score is not False and equal.all()
                else:
                    summary.reward_is_score = False
            names = {k: v for k, v in names.items() if k in frame.columns}
            yield chunk.with_frame(frame.drop(names.values(), strict=False).rename(names))


def _with_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """Numbers that v0 wrote as text (``default=str`` of a NumPy value) are numbers again."""
    own = {*_TEXT.values(), *COLUMNS, *IMPORT_ONLY, "gts", "request_id"}
    texts = [n for n, dtype in frame.schema.items() if dtype == pl.String and n not in own]
    bools = {"True": "1", "False": "0"}
    casts = [frame[n].replace(bools).cast(pl.Float64, strict=False) for n in texts]
    return frame.with_columns(c for c in casts if c.null_count() == frame[c.name].null_count())


def _grouped(
    chunk: Chunk, first: int, seen: set[int], options: ImportOptions, summary: ImportSummary
) -> pl.DataFrame:
    frame = chunk.frame
    if column := GROUP_BY.value(options):
        return _by_column(chunk, column, summary)
    if size := GROUP_SIZE.value(options):
        return _blocks(chunk, first, size, summary)
    counts = frame.group_by("step", "prompt").len()
    keys = set(counts.select("step", "prompt").hash_rows().to_list())
    if (counts["len"] == 1).all() and seen.isdisjoint(keys):
        seen |= keys
        summary.note(
            "The dump has no group id and every prompt occurs once, so each response is a group of "
            "one: verl leaves its raw reward as advantage."
        )
        return frame.with_columns(group_uid=pl.format("{}-{}", pl.lit(chunk.path.stem), PLACE))
    sizes = counts["len"].value_counts().sort("len").rows()
    shown = ", ".join(f"{size} rows × {prompts} prompts" for size, prompts in sizes[:4])
    raise TraceError(
        f"{chunk.path} is a verl v0 dump, which has no group id, and rows were reordered: "
        f"{frame.height} rows hold {len(counts)} prompt texts ({shown}). If one text is one prompt "
        "add --group-by input; if rows are still in blocks add --group-size N"
    )


def _by_column(chunk: Chunk, name: str, summary: ImportSummary) -> pl.DataFrame:
    frame = chunk.frame
    column = name if name in frame.columns else _TEXT.get(name, name)
    if column not in frame.columns:
        have = ", ".join(n for n in frame.columns if n != PLACE)
        raise TraceError(f"{chunk.path} has no column '{column}' to group by; it has: {have}")
    summary.note(
        f"Groups are rows of one step with one '{name}', as --group-by says; two prompts that "
        "share it (images are not in a dump) would be one group."
    )
    return frame.with_columns(pl.Series("group_uid", map(_uid, frame[column].to_list()), pl.String))


def _uid(value: Any) -> str | None:
    """A value as a group's name: itself where short, else its digest."""
    text = str(value)
    if value is None or (len(text) <= 64 and text.isprintable()):
        return None if value is None else text
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


_REMEDIES = (
    "--group-size is the number of rollouts a prompt; count them, or use --group-by",
    "the rows are not in blocks (verl's balance_batch reorders them); use --group-by input",
)


def _blocks(chunk: Chunk, first: int, size: int, summary: ImportSummary) -> pl.DataFrame:
    block = blocks(chunk, size, _REMEDIES, first)
    summary.note(f"Groups are blocks of {size} rows, as --group-size says; each holds one prompt.")
    return chunk.frame.with_columns(group_uid=pl.format("{}-{}", pl.lit(chunk.path.stem), block))


V1 = Importer(
    about="a verl v1 rollout_data_dir",
    trainer=VERL,
    recognise=recognise_v1,
    read=read_v1,
    hints=(
        Hint(
            has("input", "output", "score", "uid"),
            "a verl dump whose uid is no trajectory key UID_SESSION_OUTPUT; if it names the prompt "
            "group:",
            (
                *("--format", "flat"),
                *maps(group_uid="uid", reward="score", prompt="input", response="output"),
            ),
        ),
        Hint(
            has("step", "data"),
            "verl's metric log, scalars of a run. Rollouts come with trainer.rollout_data_dir=DIR",
        ),
    ),
)
V0 = Importer(
    about="a verl v0 rollout_data_dir",
    trainer=VERL,
    recognise=recognise_v0,
    read=read_v0,
    options=(GROUP_BY, GROUP_SIZE),
)
