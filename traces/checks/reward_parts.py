"""Which reward columns, with which weights and by which rule, give the stored advantages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..advantage import AdvantageConfig, advantages
from ..ragged import Float, Int, ratio, segment_mean, segment_sum

TOLERANCE = 1e-2
"""Of the largest |A| of all rows: how far a rule may miss a stored advantage."""
MIN_ROWS = 4
"""Rows with an advantage for each weight that is solved for."""
ROUNDS = 50
"""Of the fixed point that finds weights where the rule's scale depends on them."""
MAX_COLUMNS = 12
EPS = 1e-4

RULES = ("grpo", "dr_grpo", "grpo_batch", "gdpo")
"""In TRL's words: ``scale_rewards`` group, none, batch, and ``normalize_then_sum``."""


@dataclass(frozen=True)
class RewardParts:
    """What the advantages were computed from.

    Attributes:
        weights: reward column → weight.
        rule: one of ``RULES``.
        error: largest miss, as a share of the largest |A|.
        solved: whether the weights were solved for; only their ratios are then known, but under
            ``dr_grpo``.
    """

    weights: Mapping[str, float]
    rule: str
    error: float
    solved: bool = False


@dataclass(frozen=True, eq=False)
class RewardBatch:
    """Rows whose advantages were computed together.

    Attributes:
        columns: name → values (N); NaN where a function did not score.
        advantage_N: as stored.
        offsets: cuts (G+1) of the groups.
    """

    columns: Mapping[str, Float]
    advantage_N: Float
    offsets: Int


def find_parts(batches: Sequence[RewardBatch], first: Sequence[str]) -> RewardParts | None:
    """The reward that gives the stored advantages.

    Tried in turn: all columns of ``first`` with weight 1, all columns, each column alone, then
    weights solved for. The first that misses no advantage by more than the tolerance is taken.

    Args:
        batches: steps, at least one with an advantage other than 0.
        first: columns that are rewards by their names.
    """
    names = list(batches[0].columns)[:MAX_COLUMNS]
    largest = max((np.abs(b.advantage_N).max(initial=0.0) for b in batches), default=0.0)
    if not names or largest <= 1e-6:
        return None
    tried: list[RewardParts] = []
    for chosen in _guesses(names, first):
        weights = dict.fromkeys(chosen, 1.0)
        for rule in RULES:
            error = _error(batches, weights, rule, largest)
            if error <= TOLERANCE:
                tried.append(RewardParts(weights, rule, error))
        if tried:
            return min(tried, key=lambda parts: parts.error)
    for rule in RULES:
        solved = _solve(batches, names, rule)
        if solved is None:
            continue
        error = _error(batches, solved, rule, largest)
        if error <= TOLERANCE:
            tried.append(RewardParts(solved, rule, error, solved=True))
    return min(tried, key=lambda parts: parts.error, default=None)


def parts_of(batches: Sequence[RewardBatch], weights: Mapping[str, float]) -> RewardParts | None:
    """The rule by which given weights give the stored advantages, or ``None``."""
    largest = max((np.abs(b.advantage_N).max(initial=0.0) for b in batches), default=0.0)
    if largest <= 1e-6:
        return None
    tried = [RewardParts(weights, r, _error(batches, weights, r, largest)) for r in RULES]
    best = min(tried, key=lambda parts: parts.error)
    return best if best.error <= TOLERANCE else None


def _guesses(names: Sequence[str], first: Sequence[str]) -> Iterator[list[str]]:
    seen: set[tuple[str, ...]] = set()
    named = [n for n in names if n in first]
    for chosen in (named, list(names), *([n] for n in names)):
        if chosen and tuple(chosen) not in seen:
            seen.add(tuple(chosen))
            yield chosen


def total_reward(columns: Mapping[str, Float], weights: Mapping[str, float]) -> Float:
    """Weighted sum (N) over columns; one that scored nothing adds nothing, NaN where none did."""
    every = np.stack([weight * columns[name] for name, weight in weights.items()])
    return np.where(np.isnan(every).all(axis=0), np.nan, np.nansum(every, axis=0))


def reproduce(batch: RewardBatch, weights: Mapping[str, float], rule: str) -> Float:
    """Advantages (N) by a rule; a row that nothing scored gets 0."""
    if rule != "gdpo":
        total = total_reward(batch.columns, weights)
        return advantages(total, batch.offsets, _config(rule))
    parts = np.stack([w * _standardised(batch, name) for name, w in weights.items()])
    known = ~np.isnan(np.stack([batch.columns[name] for name in weights])).all(axis=0)
    total = np.where(known, np.nansum(parts, axis=0), np.nan)
    mean, std = np.nanmean(total), np.nanstd(total, ddof=1)
    return np.nan_to_num((total - mean) / (std + EPS))


def _config(rule: str) -> AdvantageConfig:
    return AdvantageConfig(rule, EPS)  # type: ignore[arg-type]


def _standardised(batch: RewardBatch, name: str) -> Float:
    """A column less its group's mean, over its group's standard deviation (N)."""
    values = batch.columns[name]
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    sizes = np.diff(batch.offsets)
    count = segment_sum(known.astype(np.int64), batch.offsets)
    mean = ratio(segment_sum(filled, batch.offsets), count)
    centred = np.where(known, values - np.repeat(mean, sizes), 0.0)
    std = np.sqrt(ratio(segment_sum(centred * centred, batch.offsets), count - 1))
    scaled = centred / (np.nan_to_num(np.repeat(std, sizes)) + EPS)
    return np.where(known, scaled, np.nan)


def _error(
    batches: Sequence[RewardBatch], weights: Mapping[str, float], rule: str, largest: float
) -> float:
    worst = 0.0
    for batch in batches:
        miss = np.abs(reproduce(batch, weights, rule) - batch.advantage_N)
        worst = max(worst, float(miss.max(initial=0.0)) / largest)
        if worst > TOLERANCE:
            break
    return worst


def _solve(
    batches: Sequence[RewardBatch], names: Sequence[str], rule: str
) -> dict[str, float] | None:
    """Weights by least squares; where the rule's scale depends on them, as a fixed point.

    Scaled so that the largest is 1, but under ``dr_grpo``, where their scale is known; values near
    a round number are that number.
    """
    design = [_design(batch, names, rule) for batch in batches]
    used = np.concatenate([np.abs(x).sum(axis=1) > 0 for x in design])
    varied = [i for i in range(len(names)) if any(np.ptp(x[:, i]) > 1e-9 for x in design if len(x))]
    target = np.concatenate([b.advantage_N for b in batches])
    if not varied or used.sum() < MIN_ROWS * len(varied):
        return None
    weights = np.zeros(len(names))
    weights[varied] = 1.0
    for _ in range(1 if rule == "dr_grpo" else ROUNDS):
        so_far = dict(zip(names, weights.tolist(), strict=True))
        rows = np.concatenate(
            [
                x[:, varied] * _scale(batch, x @ weights, so_far, rule)[:, None]
                for batch, x in zip(batches, design, strict=True)
            ]
        )
        found, *_ = np.linalg.lstsq(rows, target, rcond=None)
        if not np.isfinite(found).all() or np.abs(found).max() < 1e-9:
            return None
        if rule != "dr_grpo":
            found = found / np.abs(found).max()
        moved = np.abs(found - weights[varied]).max()
        weights[varied] = found
        if moved < 1e-10:
            break
    rounded = np.round(weights, 3)
    weights = np.where(np.abs(rounded - weights) < 1e-3, rounded, weights)
    kept = {n: float(w) for n, w in zip(names, weights, strict=True) if abs(w) > 1e-3}
    return kept or None


def _design(batch: RewardBatch, names: Sequence[str], rule: str) -> Float:
    """Columns (N, C) whose weighted sum the advantage is proportional to."""
    if rule == "gdpo":
        parts = [np.nan_to_num(_standardised(batch, name)) for name in names]
        return np.stack([p - p.mean() for p in parts], axis=1)
    parts = []
    for name in names:
        values = np.nan_to_num(batch.columns[name])
        mean = segment_mean(values, batch.offsets)
        parts.append(values - np.repeat(mean, np.diff(batch.offsets)))
    return np.stack(parts, axis=1)


def _scale(batch: RewardBatch, centred_N: Float, weights: Mapping[str, float], rule: str) -> Float:
    """The rule's 1/(std + eps) of each row (N).

    Args:
        batch: the step.
        centred_N: weighted sum of the columns of :func:`_design`.
        weights: reward column → weight so far.
        rule: one of ``RULES``.
    """
    if rule == "dr_grpo":
        return np.ones(len(centred_N))
    if rule == "gdpo":
        return np.full(len(centred_N), 1.0 / (centred_N.std(ddof=1) + EPS))
    if rule == "grpo_batch":
        std = float(np.nanstd(total_reward(batch.columns, weights), ddof=1))
        return np.full(len(centred_N), 1.0 / (std + EPS))
    sizes = np.diff(batch.offsets)
    squares = segment_sum(centred_N * centred_N, batch.offsets)
    stds = np.sqrt(squares / np.maximum(sizes - 1, 1))
    return np.repeat(np.where(stds > 0, 1.0 / (stds + EPS), 0.0), sizes)
