"""TRL's ``log_completions`` Parquet: a file a logging step, groups in blocks, reward functions.

``completions_{step}.parquet`` holds step, prompt, completion, one column a reward function, extra
logged columns, advantage. TRL divides by the standard deviation plus 1e-4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from ..advantage import AdvantageConfig, advantages
from ..errors import TraceError
from ..ragged import Float
from .base import PLACE, Chunk, ImportOptions, ImportSummary, Sample, read_chunks, source_files

EPS = 1e-4
_OWN = {"step", "prompt", "completion", "advantage", PLACE}
_TOLERANCE = 1e-3


def recognise(sample: Sample) -> bool:
    """Rows have step, prompt, completion, and advantage or a reward column."""
    return {"step", "prompt", "completion"} <= sample.columns and (
        "advantage" in sample.columns or bool(_reward_names(sample.frame))
    )


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield the rows of each step, grouped in blocks, with their total reward."""
    files = source_files(source, (".parquet",))
    kept = _kept_files(files, summary)
    size = options.group_size
    weights: dict[str, float] | None = None
    for path in kept:
        for chunk in read_chunks(path):
            if size is None:
                size = _block_size(chunk)
                summary.note(
                    f"Groups are blocks of {size} rows, each one prompt (num_generations)."
                )
                summary.config["n"] = size
            if weights is None:
                weights = _weights(chunk, options, size, summary)
            yield chunk.with_frame(_with_reward(_blocks(chunk, size), weights))


def _kept_files(files: list[Path], summary: ImportSummary) -> list[Path]:
    """Leave out files that repeat the one before, and those an evaluation overwrote."""
    heights = {p: pl.scan_parquet(p, glob=False).select(pl.len()).collect().item() for p in files}
    usual = Counter(heights.values()).most_common(1)[0][0]
    other = [p for p in files if heights[p] != usual]
    if other and len(files) > 2:
        names = ", ".join(p.stem for p in other[:3]) + (" …" if len(other) > 3 else "")
        summary.note(
            f"{len(other)} files hold another number of rows than the usual {usual} and were left "
            f"out: an evaluation writes under the same name and overwrites the step ({names})."
        )
        files = [p for p in files if heights[p] == usual]
    kept: list[Path] = []
    last = None
    repeats = 0
    for path in files:
        frame = pl.read_parquet(path, glob=False)
        content = frame.drop("step", strict=False).hash_rows().sum()
        if content == last:
            repeats += 1
        else:
            kept.append(path)
        last = content
    if repeats:
        summary.note(
            f"{repeats} files repeat the rows of the one before (TRL logged faster than it "
            "generated) and were left out."
        )
    return kept


def _block_size(chunk: Chunk) -> int:
    runs = chunk.frame["prompt"].rle().struct.field("len")
    size = min(runs.to_list(), default=0)
    if size < 2 or (runs % size != 0).any():
        raise TraceError(
            f"{chunk.path}: prompts come in runs of {sorted(set(runs.to_list()))[:5]} rows, so "
            "num_generations can't be told; add --group-size N. If two prompts alternate, the rows "
            "were interleaved over ranks and their groups can't be restored"
        )
    return size


def _blocks(chunk: Chunk, size: int) -> pl.DataFrame:
    frame = chunk.frame
    if frame.height % size:
        raise TraceError(
            f"{chunk.path} has {frame.height} rows, no multiple of {size}; give num_generations "
            "with --group-size N"
        )
    block = pl.int_range(pl.len()) // size
    prompts = frame.group_by(block.alias("b"), maintain_order=True).agg(
        pl.col("prompt").n_unique().alias("n")
    )["n"]
    if (prompts > 1).any():
        number = int((prompts > 1).arg_max() or 0)
        raise TraceError(
            f"{chunk.place(number * size)}: block {number + 1} of {size} rows holds "
            f"{prompts[number]} prompts: the rows were interleaved over ranks, or num_generations "
            "is another; give it with --group-size N"
        )
    return frame.with_columns(
        group_uid=pl.format("{}-{}", pl.col("step"), block),
        rollout_idx=pl.int_range(pl.len()) % size,
    ).rename({"completion": "response"})


def _reward_names(frame: pl.DataFrame) -> list[str]:
    numeric = [n for n, t in frame.schema.items() if t.is_numeric() and n not in _OWN]
    return [n for n in numeric if "reward" in n.lower()] or numeric


def _weights(
    chunk: Chunk, options: ImportOptions, size: int, summary: ImportSummary
) -> dict[str, float]:
    """Weights of the reward functions: the user's, else all 1."""
    frame = chunk.frame
    names = _reward_names(frame)
    if options.reward_weights:
        for name in options.reward_weights:
            if name not in frame.columns:
                raise TraceError(
                    f"--reward-weights {name}=…: {chunk.path} has no such column; reward columns "
                    f"seem to be: {', '.join(names) or 'none'}"
                )
        weights = dict(options.reward_weights)
    elif not names:
        raise TraceError(
            f"{chunk.path} has no numeric reward column; name one with --reward-weights COLUMN=1"
        )
    else:
        weights = dict.fromkeys(names, 1.0)
    _check_advantage(_blocks(chunk, size), weights, chunk, size, summary)
    summary.note("Reward: " + " + ".join(f"{w:g}·{n}" for n, w in weights.items()) + ".")
    return weights


def _check_advantage(
    frame: pl.DataFrame, weights: dict[str, float], chunk: Chunk, size: int, summary: ImportSummary
) -> None:
    """Find the estimator that gives the stored advantage from this reward."""
    summary.config.setdefault("adv_eps", EPS)
    summary.config.setdefault("adv_estimator", "grpo")
    if "advantage" not in frame.columns:
        return
    reward = _total(frame, weights)
    stored = frame["advantage"].to_numpy()
    offsets = np.arange(0, len(reward) + 1, size)
    for name in ("grpo", "dr_grpo"):
        found = advantages(reward, offsets, AdvantageConfig(name, EPS))
        if np.nanmax(np.abs(found - stored), initial=0.0) < _TOLERANCE:
            summary.config["adv_estimator"] = name
            return
    summary.note(
        f"The stored advantages do not follow from the reward {' + '.join(weights)}: other "
        "weights, or rewards scaled over the batch? Give --reward-weights NAME=WEIGHT. Replay uses "
        "the stored advantages."
    )


def _total(frame: pl.DataFrame, weights: dict[str, float]) -> Float:
    """Weighted sum over reward functions; one that scored nothing (None, NaN) adds nothing."""
    parts = np.stack(
        [w * frame[n].cast(pl.Float64).fill_null(np.nan).to_numpy() for n, w in weights.items()]
    )
    return np.where(np.isnan(parts).all(axis=0), np.nan, np.nansum(parts, axis=0))


def _with_reward(frame: pl.DataFrame, weights: dict[str, float]) -> pl.DataFrame:
    return frame.with_columns(pl.Series("reward", _total(frame, weights)))
