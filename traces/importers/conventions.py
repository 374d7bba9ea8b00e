"""What other projects call things, by meaning: columns, splits, and why generation ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from ..errors import nearest
from .sources import PLACE

NAMES: Mapping[str, tuple[str, ...]] = {
    "step": (
        *("step", "global_step", "global_steps", "training_step", "train_step", "update"),
        *("update_step", "gen_step", "iteration", "iter", "rollout_step"),
    ),
    "group_uid": (
        *("group_uid", "group_id", "group_idx", "group", "uid", "prompt_uid", "problem_id"),
        *("problem_idx", "problem_index", "prompt_id", "prompt_idx", "prompt_index", "question_id"),
        *("question_idx", "qid", "example_id", "example_idx", "task_id", "task_index", "task_hash"),
        *("_ng_task_index", "instance_id", "prompt_hash", "id", "prompt", "question", "input"),
        *("problem", "input_prompt"),
    ),
    "rollout_idx": (
        *("rollout_idx", "rollout_index", "rollout_id", "sample_idx", "sample_index", "sample_id"),
        *("sample", "generation_index", "generation_idx", "generation_id", "traj_idx"),
        *("trajectory_idx", "response_idx", "response_index", "_ng_rollout_index", "idx"),
        *("completion_index", "completion_idx"),
    ),
    "reward": (
        *("reward", "score", "scalar_reward", "total_reward", "reward_total", "final_reward"),
        *("reward_score", "rewards", "scores", "outcome_reward", "return"),
    ),
    "advantage": ("advantage", "adv", "advantages"),
    "num_tokens": (
        *("num_tokens", "n_tokens", "num_output_tokens", "num_completion_tokens", "token_count"),
        *("exact_token_count", "response_length", "response_len", "completion_length"),
        *("completion_tokens", "output_length", "generated_tokens", "num_generated_tokens"),
    ),
    "prompt": ("prompt", "input", "question", "input_prompt", "problem", "query"),
    "response": (
        *("response", "completion", "output", "output_response", "generation"),
        *("decoded_completion", "generated_text"),
    ),
    "domain": (
        *("domain", "data_source", "dataset", "env_name", "ability", "subject", "category"),
        *("source", "task"),
    ),
    "finish_reason": ("finish_reason", "stop_reason"),
    "truncated": ("truncated", "is_truncated", "response_truncated", "overlong", "is_overlong"),
}
"""Canonical column → names it goes by, the clearest first."""

BY_LENGTH = frozenset(
    (
        *("length", "max_tokens", "max_length", "max_new_tokens", "token_limit", "truncated"),
        *("length_limit", "overlong", "max_output_tokens"),
    )
)
"""Reasons that say generation ended at the length limit."""

EVALUATIONS = frozenset(
    ("val", "valid", "validation", "test", "eval", "evaluation", "dev", "heldout", "held_out")
)
"""Splits that never train."""

_EVALUATION_FLAGS = ("is_validation", "is_val", "is_eval", "is_evaluation", "is_test", "validate")
_SPLITS = ("split", "phase", "partition")
_STEP_FOLDER = re.compile(
    r"(?:^|[_-])(?:step|steps|iteration|iter|update|version)[_-]?(\d+)$", re.IGNORECASE
)


def named(canonical: str, columns: Iterable[str]) -> list[str]:
    """Columns that mean a canonical one by their name, the clearest first; spelling aside."""
    by_name = {re.sub(r"[\s-]+", "_", c.strip().lower()): c for c in columns}
    return [by_name[name] for name in NAMES.get(canonical, ()) if name in by_name]


def step_of(path: Path) -> int | None:
    """The training step that a file's own name or a folder above it says, such as ``step_12``."""
    for name in (path.stem, *(parent.name for parent in path.parents)):
        found = _STEP_FOLDER.search(name)
        if found:
            return int(found[1])
    return None


def with_endings(frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``truncated`` (0 or 1) where the rows say why generation ended."""
    have = [c for c in frame.columns if c != PLACE]
    reason = next((c for c in named("finish_reason", have) if frame[c].dtype == pl.String), None)
    if reason is not None and "finish_reason" not in have:
        frame = frame.rename({reason: "finish_reason"})
        reason = "finish_reason"
    flags = [c for c in named("truncated", have) if _is_flag(frame[c])]
    if "truncated" in flags:
        flag = frame["truncated"]
    elif flags:
        flag = frame[flags[0]]
    elif reason is not None:
        words = frame[reason].str.to_lowercase().str.split(".").list.last()
        if not words.is_in(list(BY_LENGTH)).any() and words.null_count() == len(words):
            return frame
        flag = words.is_in(list(BY_LENGTH))
    else:
        return frame
    return frame.with_columns(flag.cast(pl.Int64).fill_null(0).alias("truncated"))


def with_split(frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``split`` where a flag or another column says which rows are an evaluation."""
    have = {c.lower(): c for c in frame.columns}
    for name in _SPLITS:
        column = have.get(name)
        if column is None or frame[column].dtype != pl.String:
            continue
        words = set(frame[column].drop_nulls().str.to_lowercase().unique().to_list())
        if words and words <= EVALUATIONS | {"train", "training"}:
            return frame.with_columns(split=frame[column])
    flag = next(
        (have[f] for f in _EVALUATION_FLAGS if f in have and _is_flag(frame[have[f]])), None
    )
    if flag is None or "split" in have:
        return frame
    chosen = pl.col(flag).cast(pl.Int64).fill_null(0) == 1
    return frame.with_columns(
        split=pl.when(chosen).then(pl.lit("validation")).otherwise(pl.lit("train"))
    )


def is_evaluation(split: pl.Expr) -> pl.Expr:
    """Whether a split's name is that of an evaluation."""
    return split.str.to_lowercase().is_in(list(EVALUATIONS)).fill_null(False)


def _is_flag(series: pl.Series) -> bool:
    if series.dtype == pl.Boolean:
        return True
    return series.dtype.is_numeric() and set(series.drop_nulls().unique().to_list()) <= {0, 1}


def remedy_for(canonical: str, columns: Iterable[str]) -> str:
    """How to name a column that is missing: the ones that mean it by their name."""
    listed = list(columns)
    likely = [c for c in named(canonical, listed) if c != canonical]
    if likely:
        return f"name it: --map {canonical}={likely[0]}"
    if canonical == "step":
        return "name it with --map step=COLUMN, or give all rows one: --step 0"
    return f"name it with --map {canonical}=COLUMN{nearest(canonical, listed)}"
