"""TRL's ``log_completions`` Parquet: a file a logging step, groups in blocks, reward functions.

``completions_{step}.parquet`` holds step, prompt, completion, one column a reward function, extra
logged columns, advantage. TRL divides by the standard deviation plus 1e-4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from ...checks.reward_parts import EPS, RewardBatch, RewardParts, find_parts, parts_of, total_reward
from ...errors import TraceError, nearest
from ...ragged import Float
from ..base import ImportOptions, ImportSummary
from ..blocks import blocks
from ..sources import PLACE, Chunk, Sample, read_chunks, require, source_files
from .base import GROUP_SIZE, FormatOption, Importer

REWARD_WEIGHTS = FormatOption(
    "reward_weights", "weights of reward functions, a=1,b=0.5.", "numbers"
)
_OWN = {"step", "prompt", "completion", "advantage", PLACE}
_TOLD = 1e-3
"""An advantage above this tells what the reward was made of."""
SAMPLED_FILES = 20
"""Files with advantages that are read to find it."""


def recognise(sample: Sample) -> bool:
    """Parquet rows with step, prompt, completion, and advantage or a reward column."""
    named = {"step", "prompt", "completion"} <= sample.columns and (
        "advantage" in sample.columns or bool(_reward_names(sample.frame))
    )
    return named and sample.path.suffix.lower() == ".parquet"


def read(source: Path, options: ImportOptions, summary: ImportSummary) -> Iterator[Chunk]:
    """Yield the rows of each step, grouped in blocks, with their total reward."""
    files = source_files(source, (".parquet",))
    kept = _kept_files(files, summary)
    size = GROUP_SIZE.value(options)
    weights: dict[str, float] | None = None
    summary.config.update(adv_eps=EPS)
    for path, height in kept.items():
        for chunk in read_chunks(path, max(height, 1)):  # no block lies across two chunks
            require(chunk, ("step", "prompt", "completion"), "a TRL completions file")
            if size is None:
                size = _block_size(chunk)
                summary.note(
                    f"Groups are blocks of {size} rows, each one prompt (num_generations)."
                )
            summary.config["n"] = size
            if weights is None:
                parts = None if options.columns.get("reward") else _parts(kept, size, options)
                weights = _weights(chunk, options, parts, summary)
            elif not REWARD_WEIGHTS.value(options) and "reward" not in options.columns:
                _refuse_others(chunk, weights)
            frame = _blocks(chunk, size)
            frame = frame.with_columns(pl.Series("reward", _total(chunk, weights)))
            yield chunk.with_frame(frame)


def _kept_files(files: list[Path], summary: ImportSummary) -> dict[Path, int]:
    """Rows of each file but those that repeat the one before, and those of an evaluation."""
    heights = dict.fromkeys(files, 0)
    content = dict.fromkeys(files, 0)
    for path in files:
        for chunk in read_chunks(path):
            heights[path] += chunk.frame.height
            content[path] += int(chunk.frame.drop(PLACE, "step", strict=False).hash_rows().sum())
    usual = Counter(heights.values()).most_common(1)[0][0]
    other = [p for p in files if heights[p] != usual]
    if other and 2 * len(other) < len(files):
        names = ", ".join(p.stem for p in other[:3]) + (" …" if len(other) > 3 else "")
        summary.note(
            f"{len(other)} files hold another number of rows than the usual {usual} and were left "
            f"out: an evaluation writes under the same name and overwrites the step ({names})."
        )
        files = [p for p in files if heights[p] == usual]
    kept = [
        p
        for p, before in zip(files, [None, *files], strict=False)
        if not before or content[p] != content[before]
    ]
    if len(kept) < len(files):
        summary.note(
            f"{len(files) - len(kept)} files repeat the rows of the one before (TRL logged faster "
            "than it generated) and were left out."
        )
    return {p: heights[p] for p in kept}


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


_REMEDIES = (
    "give num_generations with --group-size N",
    "the rows were interleaved over ranks, or num_generations is another; give it with "
    "--group-size N",
)


def _blocks(chunk: Chunk, size: int) -> pl.DataFrame:
    block = blocks(chunk, size, _REMEDIES)
    return chunk.frame.with_columns(
        group_uid=pl.format("{}-{}", pl.col("step"), block),
        rollout_idx=pl.int_range(pl.len()) % size,
    ).rename({"completion": "response"})


def _numeric_names(frame: pl.DataFrame) -> list[str]:
    kinds = frame.schema.items()
    return [n for n, t in kinds if (t.is_numeric() or t == pl.Boolean) and n not in _OWN]


def _reward_names(frame: pl.DataFrame) -> list[str]:
    numeric = [n for n in _numeric_names(frame) if frame.schema[n].is_numeric()]
    return [n for n in numeric if "reward" in n.lower()] or numeric


def _parts(files: Mapping[Path, int], size: int, options: ImportOptions) -> RewardParts | None:
    """What the stored advantages of the first files say that the reward was made of."""
    chosen = REWARD_WEIGHTS.value(options) or {}
    batches: list[RewardBatch] = []
    first: set[str] = set()
    for path, height in files.items():
        for chunk in read_chunks(path, max(height, 1)):
            frame = chunk.frame
            whole = frame.height % size == 0 and frame.height > 0
            if not whole or not frame.schema.get("advantage", pl.Null()).is_numeric():
                continue
            names = list(chosen) or _numeric_names(frame)
            if not set(names) <= set(frame.columns):
                continue
            if batches and set(names) != set(batches[0].columns):
                continue
            first |= set(_reward_names(frame))
            columns = {n: _values(chunk, n) for n in names}
            advantage = frame["advantage"].cast(pl.Float64).fill_null(0.0).to_numpy()
            offsets = np.arange(0, frame.height + 1, size)
            batches.append(RewardBatch(columns, advantage, offsets))
        if sum(bool(np.abs(b.advantage_N).max() > _TOLD) for b in batches) >= SAMPLED_FILES:
            break
    if not batches:
        return None
    if chosen:
        return parts_of(batches, chosen)
    return find_parts(batches, sorted(first))


def _weights(
    chunk: Chunk, options: ImportOptions, parts: RewardParts | None, summary: ImportSummary
) -> dict[str, float]:
    """Weights of the reward functions: the user's, those that the advantages say, else all 1."""
    frame = chunk.frame
    chosen = options.columns.get("reward")
    weights: dict[str, float] = dict(REWARD_WEIGHTS.value(options) or {})
    if chosen is not None and weights:
        raise TraceError("give one of --reward and --reward-weights")
    names = _reward_names(frame) if chosen is None else [chosen]
    if weights:
        for name in weights:
            if name not in frame.columns:
                raise TraceError(
                    f"--reward-weights {name}=…: {chunk.path} has no such column; reward columns "
                    f"seem to be: {', '.join(names) or 'none'}"
                )
    elif parts is not None:
        weights = dict(parts.weights)
    elif not names:
        raise TraceError(
            f"{chunk.path} has no numeric reward column; name one with --reward-weights COLUMN=1"
        )
    else:
        weights = dict.fromkeys(names, 1.0)
    total = " + ".join(f"{w:g}·{n}" for n, w in weights.items()).replace("+ -", "− ")
    summary.note(f"Reward: {total}{_as_told(parts)}.")
    if parts is not None:
        summary.config["adv_estimator"] = parts.rule
        summary.derived = parts.rule == "gdpo"
    return weights


def _as_told(parts: RewardParts | None) -> str:
    """What the stored advantages say of it."""
    if parts is None:
        return ""
    text = f", from which the stored advantages follow by {TRL_WORDS[parts.rule]}, "
    text += f"within {max(parts.error, 1e-6):.0e} of the largest"
    if parts.solved and parts.rule != "dr_grpo":
        text += "; the weights were solved for, and only their ratios are known"
    return text


TRL_WORDS = {
    "grpo": "GRPO's rule",
    "dr_grpo": 'Dr.GRPO\'s rule (scale_rewards="none")',
    "grpo_batch": 'GRPO\'s rule scaled over the batch (scale_rewards="batch")',
    "gdpo": 'GDPO\'s rule (multi_objective_aggregation="normalize_then_sum", arXiv:2601.05242)',
}


def _refuse_others(chunk: Chunk, weights: dict[str, float]) -> None:
    """A function that scored only some files may have been part of the reward, or not."""
    others = sorted(set(_reward_names(chunk.frame)) - set(weights))
    if others:
        raise TraceError(
            f"{chunk.path}: column '{others[0]}' looks like a reward that the files before lack; "
            "say what counts with --reward-weights NAME=WEIGHT"
        )


def _total(chunk: Chunk, weights: dict[str, float]) -> Float:
    """Weighted sum over reward functions; one that scored nothing (None, NaN) adds nothing."""
    return total_reward({name: _values(chunk, name) for name in weights}, weights)


def _values(chunk: Chunk, name: str) -> Float:
    """One number a row; NaN where a function did not score."""
    if name not in chunk.frame.columns:
        have = [n for n in chunk.frame.columns if n != PLACE]
        raise TraceError(
            f"{chunk.path} has no column '{name}'{nearest(name, have)}, which the reward is "
            f"made of; it has: {', '.join(have)}"
        )
    column = chunk.frame[name]
    usable = column.dtype.is_numeric() or column.dtype in (pl.Null, pl.Boolean, pl.String)
    values = column.cast(pl.Float64, strict=False) if usable else column
    if not usable or values.null_count() > column.null_count():
        raise TraceError(
            f"{chunk.path}: column '{name}' must hold one number a row, as the reward is made "
            "of it; choose others with --reward-weights NAME=WEIGHT"
        )
    return values.fill_null(np.nan).to_numpy()


IMPORTER = Importer(
    about="TRL completions",
    trainer="TRL",
    recognise=recognise,
    read=read,
    options=(REWARD_WEIGHTS, GROUP_SIZE),
)
