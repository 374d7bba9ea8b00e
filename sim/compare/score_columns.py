"""Which numeric columns of a table of runs are scores: by their names, then by their values.

Only scores are averaged. What describes a run, counts, or tells how an answer was written is set
aside and said; so is a score on another scale, since a mean over both would be of one alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from ...traces.errors import DfsimError
from ...traces.spelling import option
from .benchmarks import domain_of

SETTINGS = frozenset(
    (
        *("step", "steps", "num_steps", "max_steps", "total_steps", "training_steps"),
        *("global_step", "epoch", "epochs", "num_epochs", "lr", "learning_rate", "warmup"),
        *("warmup_steps", "weight_decay", "batch_size", "train_batch_size", "mini_batch_size"),
        *("ppo_mini_batch_size", "micro_batch_size", "n", "rollout_n", "num_generations"),
        *("group_size", "temperature", "top_p", "top_k", "kl_coef", "kl_loss_coef", "beta"),
        *("clip_ratio", "entropy_coeff", "max_length", "max_response_length", "index", "id"),
        *("max_prompt_length", "response_length", "gpus", "n_gpus", "num_gpus", "nodes", "run_id"),
    )
)
"""Numeric columns that describe a run and are no score."""
_COUNTERS = re.compile(
    r"(.*_)?(step|steps|epoch|epochs|iter|iters|iteration|iterations|checkpoint|ckpt|index|idx|id|"
    r"rank|version|port|pid|timestamp|time|date)|_step|_runtime|_timestamp|unnamed: ?\d+|"
    r"column_\d+|",
    re.IGNORECASE,
)
"""Counters and identifiers; W&B's own columns, and an index that pandas wrote without a name."""
_SPREAD = re.compile(r"(.*[\W_])?(std|stddev|stdev|std_?err|sem|ci95)(@\d+)?\W*", re.IGNORECASE)
"""The noise of a score, beside it."""
TRAINING = frozenset(
    (
        *("train_reward", "reward", "train_loss", "loss", "val_loss", "kl", "entropy", "grad_norm"),
        *("runtime", "runtime_s", "seconds", "wall_s", "hours", "gpu_hours", "tokens"),
        *("num_tokens", "cost"),
    )
)
"""Numeric columns that are a score only if nothing else is."""
_COUNTS = ("num", "n", "count", "counts", "total", "totals", "number", "nb")
"""Words at the beginning or the end of a count's name."""
_LOWER = frozenset(
    (
        *("loss", "error", "errors", "err", "nll", "ppl", "perplexity", "kl", "truncation"),
        *("truncated", "timeout", "timeouts", "failure", "failures", "fail", "failed", "invalid"),
        *("refusal", "refusals", "hallucination", "toxicity", "wer", "cer", "mae", "mse", "rmse"),
        *("brier", "ece", "latency", "seconds", "hours", "runtime", "cost", "regret", "overlong"),
        *("repetition", "length", "tokens", "clip", "clipped", "staleness", "entropy", "norm"),
    )
)
"""Words of what is better when low, or no quality at all."""
_DIAGNOSTIC = frozenset(
    (
        *("rate", "ratio", "frac", "fraction", "share", "percent", "pct", "valid", "format"),
        *("parse", "parsed", "parseable", "parsable", "available", "coverage", "finished"),
    )
)
"""Words of what tells how answers were written rather than whether they are right."""
_QUALITY = frozenset(
    (
        *("acc", "accuracy", "pass", "success", "solve", "solved", "win", "correct", "correctness"),
        *("score", "exact", "em", "match", "f1", "hit", "reward", "bleu", "rouge", "auc", "elo"),
    )
)
"""Words that make a score of a rate."""
SCALE_RATIO = 10.0


def score_columns(
    frame: pl.DataFrame, taken: Sequence[str], cells: Sequence[str], notes: list[str]
) -> tuple[str, ...]:
    """Columns of scores, and a note on those that were set aside.

    Args:
        frame: one row a run.
        taken: columns that are something else.
        cells: columns that separate cells.
        notes: gets a sentence.

    Raises:
        DfsimError: no column is left.
    """
    left = [c for c in frame.columns if c not in taken and frame[c].dtype.is_numeric()]
    aside: dict[str, list[str]] = {}

    def set_aside(why: str, test: Callable[[str], bool], *, unless_all: bool = False) -> None:
        nonlocal left
        found = [c for c in left if test(c)]
        if unless_all and len(found) == len(left):
            return
        if found:
            aside.setdefault(why, []).extend(found)
            left = [c for c in left if c not in found]

    set_aside("empty", lambda c: frame[c].fill_nan(None).null_count() == frame.height)
    set_aside("settings and counters", is_counter)
    set_aside("spread", lambda c: _SPREAD.fullmatch(c) is not None)
    set_aside("training", lambda c: c.lower() in TRAINING, unless_all=True)
    named: list[tuple[str, Callable[[str], bool]]] = [
        ("counts", _is_count),
        ("better when low, or no quality", _is_lower),
        ("how answers are written", _is_diagnostic),
    ]
    for why, matches in named:
        set_aside(why, _outside_domains(matches), unless_all=True)
    set_aside("constant", lambda c: _is_constant(frame, c, cells), unless_all=True)
    set_aside("counts", lambda c: _counts_another(frame, c, left), unless_all=True)
    scale = _main_scale(frame, left)
    set_aside("another scale", lambda c: c not in scale)
    if not left:
        raise DfsimError(
            "the table has no numeric column of scores; name them: "
            f"{option('metrics', 'COLUMN,COLUMN')}"
        )
    said = [f"{', '.join(names)} ({why})" for why, names in aside.items()]
    also = f"; set aside: {', '.join(said)}" if said else ""
    notes.append(f"Scores: {', '.join(left)}{also}; {option('metrics')} overrides.")
    return tuple(left)


def is_counter(column: str) -> bool:
    """Whether a column describes a run by its name: a setting, a counter, an identifier."""
    if column.lower() in SETTINGS:
        return True
    return domain_of(column) is None and _COUNTERS.fullmatch(column) is not None


def _words(column: str) -> list[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", column)
    return [word for word in re.split(r"[\W_]+", spaced.lower()) if word]


def _outside_domains(test: Callable[[str], bool]) -> Callable[[str], bool]:
    """A test that spares benchmarks that are known by name."""
    return lambda column: domain_of(column) is None and test(column)


def _is_count(column: str) -> bool:
    words = _words(column)
    return len(words) > 1 and (words[0] in _COUNTS or words[-1] in _COUNTS)


def _is_lower(column: str) -> bool:
    words = set(_words(column))
    return bool(words & _LOWER) and not words & (_QUALITY - {"reward"})


def _is_diagnostic(column: str) -> bool:
    words = set(_words(column))
    return bool(words & _DIAGNOSTIC) and not words & _QUALITY


def _values(frame: pl.DataFrame, column: str) -> np.ndarray:
    found = frame[column].cast(pl.Float64).fill_null(math.nan).to_numpy()
    return np.asarray(found[np.isfinite(found)])


def _is_constant(frame: pl.DataFrame, column: str, cells: Sequence[str]) -> bool:
    """One value in every cell of two runs or more."""
    known = frame.filter(pl.col(column).is_not_null())
    if not cells:
        return known.height > 1 and known[column].n_unique() == 1
    per_cell = known.group_by(list(cells)).agg(pl.col(column).n_unique().alias("u"), pl.len())
    several = per_cell.filter(pl.col("len") > 1)
    return several.height > 0 and bool((several["u"] == 1).all())


def _counts_another(frame: pl.DataFrame, column: str, columns: Sequence[str]) -> bool:
    """Whole numbers that are a fixed multiple of another column, as 3 of 64 is of 0.046875."""
    own = frame[column].cast(pl.Float64).fill_null(math.nan).to_numpy()
    known = own[np.isfinite(own)]
    if not len(known) or (known % 1).any() or known.max() <= 1:
        return False
    for other in columns:
        theirs = frame[other].cast(pl.Float64).fill_null(math.nan).to_numpy()
        both = np.isfinite(own) & np.isfinite(theirs) & (theirs != 0)
        if other == column or both.sum() < 3 or len(np.unique(theirs[both])) < 2:
            continue
        ratio = own[both] / theirs[both]
        if ratio.min() > 1 and np.ptp(ratio) <= 1e-3 * ratio.max() and not (own[~both] > 0).any():
            return True
    return False


def _main_scale(frame: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """The largest set of columns on one scale; of equal ones, that of the first column.

    Benchmarks that are known by name may score low beside others, so they never are another scale
    for that.
    """
    sizes = {c: float(np.abs(v).max()) for c in columns if len(v := _values(frame, c))}
    best: list[str] = []
    for first in columns:
        alike = [c for c in columns if _same_scale(first, c, sizes)]
        if len(alike) > len(best):
            best = alike
    return best


def _same_scale(one: str, other: str, sizes: dict[str, float]) -> bool:
    a, b = sizes.get(one, 0.0), sizes.get(other, 0.0)
    small, large = min(a, b), max(a, b)
    if small == 0 or large <= SCALE_RATIO * small:
        return True
    return small > 1 and None not in (domain_of(one), domain_of(other))


def check_scales(frame: pl.DataFrame, columns: Sequence[str]) -> None:
    """Refuse an average over scores of different scales.

    Raises:
        DfsimError: the columns that the user named differ in scale by more than ten.
    """
    others = [c for c in columns if c not in _main_scale(frame, columns)]
    if others:
        raise DfsimError(
            f"{option('metrics')}: '{others[0]}' is on another scale than "
            f"'{next(c for c in columns if c not in others)}', so their mean would say nothing; "
            "bring them to one scale, or compare them apart"
        )
