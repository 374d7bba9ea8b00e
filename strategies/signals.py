"""Scorers: what a strategy looks at. Adding one touches this file and the line in ``SCORERS``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ..traces.batch import RolloutBatch
from ..traces.ragged import Float, segment_span, segment_sum
from .base import Level, Scorer, param

SUCCESS_THRESHOLD = 0.5
"""A response counts as solved above this, unless a user says otherwise."""

LAST = -1e100
"""Score of what must rank last: finite, so that variances and quantiles stay finite too."""


@dataclass(frozen=True)
class Uniform:
    """1 for every response."""

    level: ClassVar[Level] = "response"
    columns: ClassVar[tuple[str, ...]] = ()

    def __call__(self, batch: RolloutBatch) -> Float:
        """Ones (N)."""
        return np.ones(batch.num_responses)


@dataclass(frozen=True)
class Reward:
    """The reward r of each response."""

    level: ClassVar[Level] = "response"
    columns: ClassVar[tuple[str, ...]] = ()

    def __call__(self, batch: RolloutBatch) -> Float:
        """Rewards (N)."""
        return batch.reward_N


@dataclass(frozen=True)
class AdvantageMagnitude:
    """|A| of each response, its mean over tokens where A is per token."""

    level: ClassVar[Level] = "response"
    columns: ClassVar[tuple[str, ...]] = ()

    def __call__(self, batch: RolloutBatch) -> Float:
        """|A| (N)."""
        return batch.abs_advantage_N


@dataclass(frozen=True)
class SolveRate:
    """p̂ = k/n of each group: share of its responses that count as solved."""

    level: ClassVar[Level] = "group"
    success_threshold: float = param(SUCCESS_THRESHOLD, "a response is solved above this")
    success: str = param("reward", "column compared with success_threshold")

    @property
    def columns(self) -> tuple[str, ...]:
        """The success column."""
        return () if self.success == "reward" else (self.success,)

    def __call__(self, batch: RolloutBatch) -> Float:
        """p̂ (G)."""
        solved = batch.column(self.success, "the solve rate") > self.success_threshold
        return segment_sum(solved.astype(np.int64), batch.group_offsets) / batch.group_size_G


@dataclass(frozen=True)
class MetricSpan:
    """Max − min of a metric inside each group, responses without a value aside."""

    level: ClassVar[Level] = "group"
    metric: str = param("reward", "column whose span counts: the reward, or one of the verifier's")

    @property
    def columns(self) -> tuple[str, ...]:
        """The metric's column."""
        return () if self.metric == "reward" else (self.metric,)

    def __call__(self, batch: RolloutBatch) -> Float:
        """Span (G); −inf where no response has a value."""
        values = batch.column(self.metric, "the span of a group")
        low, high = segment_span(values.astype(np.float64), batch.group_offsets)
        return high - low


@dataclass(frozen=True)
class TokenEfficiency:
    """Reward per token, or shortness; a response without a token ranks last.

    Source: arXiv:2508.09726 §3 (GFPO). With a reward ≤ 0 reward per token prefers long answers.
    """

    level: ClassVar[Level] = "response"
    columns: ClassVar[tuple[str, ...]] = ("num_tokens",)
    metric: Literal["efficiency", "short"] = param("efficiency", "reward / tokens, or −tokens")

    def __call__(self, batch: RolloutBatch) -> Float:
        """r / tokens, or −tokens (N)."""
        tokens = batch.column("num_tokens", "gfpo").astype(np.float64)
        if self.metric == "short":
            return np.where(tokens > 0, -tokens, LAST)
        return np.divide(batch.reward_N, tokens, out=np.full(len(tokens), LAST), where=tokens > 0)


@dataclass(frozen=True)
class TokenProbability:
    """π = exp(old log-prob) of each token; NaN where the log-prob is NaN or +inf."""

    level: ClassVar[Level] = "token"
    columns: ClassVar[tuple[str, ...]] = ("old_log_probs",)

    def __call__(self, batch: RolloutBatch) -> Float:
        """π (T), from float32 log-probs by a float64 exponential."""
        log_prob = batch.column("old_log_probs", "the token probability")
        prob = np.exp(log_prob, dtype=np.float64)
        if not np.isfinite(prob.max(initial=0.0)):
            prob[prob == np.inf] = np.nan
        return prob


SCORERS: dict[str, type[Scorer]] = {
    "uniform": Uniform,
    "reward": Reward,
    "advantage_magnitude": AdvantageMagnitude,
    "solve_rate": SolveRate,
    "metric_span": MetricSpan,
    "token_efficiency": TokenEfficiency,
    "token_probability": TokenProbability,
}
