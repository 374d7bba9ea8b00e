"""Reweighters of responses whose weights have mean 1 over the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...traces.batch import RolloutBatch
from ...traces.ragged import Float, batch_sum
from ..base import Decision, Kind, Level, Rule, Score, param


def mean_one(value: Float) -> Decision:
    """Decision with weights N·value/Σ value, the sum taken in an order-free way; ones if Σ is 0."""
    total = batch_sum(value)
    return Decision(value * (len(value) / total) if total > 0 else np.ones(len(value)))


@dataclass(frozen=True)
class Softmax(Rule):
    """w ∝ exp(s/T), mean 1. Responses with score 0 take mass, so the others inflate."""

    kind: ClassVar[Kind] = "reweight"
    level: ClassVar[Level] = "response"
    temperature: float = param(1.0, "T; small ones sharpen", above=0)

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from a score per response (N)."""
        top = score.values.max(initial=-np.finfo(np.float64).max)
        return mean_one(np.exp((score.values - top) / self.temperature))


@dataclass(frozen=True)
class Power(Rule):
    """w ∝ (s + 1e-8)^α, mean 1: the priorities of arXiv:1511.05952 §3.3.

    Only the priorities: nothing is sampled and no importance correction applied.
    """

    kind: ClassVar[Kind] = "reweight"
    level: ClassVar[Level] = "response"
    alpha: float = param(0.5, "α; 0 is uniform", 0)

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from a score ≥ 0 per response (N)."""
        return mean_one((np.maximum(score.values, 0.0) + 1e-8) ** self.alpha)


@dataclass(frozen=True)
class QuantileBand(Rule):
    """w ∝ focus_weight inside the [low_q, high_q] quantiles of the score, else 1; mean 1.

    Quantiles interpolate linearly. Over binary rewards with k solved of N the band holds every
    response, and nothing changes, when low_q·(N−1) ≤ N−k−1 and high_q·(N−1) ≥ N−k: at the
    defaults, when the mean reward lies in (.25, .75), but for a response at the edges.
    """

    kind: ClassVar[Kind] = "reweight"
    level: ClassVar[Level] = "response"
    low_q: float = param(0.25, "lower quantile of the band", 0, 1)
    high_q: float = param(0.75, "upper quantile of the band", 0, 1)
    focus_weight: float = param(2.0, "weight inside the band, relative to outside", 0)

    def __post_init__(self) -> None:
        if self.low_q > self.high_q:
            raise ValueError(f"low_q={self.low_q} must not exceed high_q={self.high_q}")

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from a score per response (N)."""
        rounded = score.rounded
        if len(rounded) == 0:
            return Decision(rounded)
        low, high = np.quantile(rounded, [self.low_q, self.high_q])
        inside = (rounded >= low) & (rounded <= high)
        return mean_one(np.where(inside, self.focus_weight, 1.0))
