"""Keep the responses of a group whose rewards vary most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...traces.batch import RolloutBatch
from ...traces.ragged import Bool, Bucket, Float, Int
from ..base import Decision, Kind, Level, Rule, Score, param, selection


@dataclass(frozen=True)
class MaxVariance(Rule):
    """Keep the m = max(1, round(keep_frac·n)) responses of greatest reward variance.

    The best set is always the a lowest and the m−a highest (arXiv:2504.13818 §3.2). A later a
    replaces an earlier one only when its variance is greater by more than 1e-6·(max−min)². Ties go
    to the lowest rollout_idx. Without ``renormalise`` the kept advantages of a group no longer sum
    to 0; the paper re-normalises.
    """

    kind: ClassVar[Kind] = "select"
    level: ClassVar[Level] = "response"
    keep_frac: float = param(0.5, "share of a group that is kept", high=1, above=0)
    renormalise: bool = param(False, "recompute advantages inside the kept subset")

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from a score per response (N), by default the reward."""
        rounded = score.rounded
        keep = np.zeros(batch.num_responses, dtype=bool)
        tied = np.zeros(batch.num_responses, dtype=bool)
        for bucket in batch.buckets:
            self._decide(bucket, rounded[bucket.rows], keep, tied)
        return selection(batch, keep, tied, self.renormalise)

    def _decide(self, bucket: Bucket, value: Float, keep: Bool, tied: Bool) -> None:
        n = bucket.size
        m = max(1, round(self.keep_frac * n))
        ascending = np.argsort(value, axis=1, kind="stable")
        descending = np.argsort(-value, axis=1, kind="stable")
        ordered = np.take_along_axis(value, ascending, axis=1)
        z = ordered - ordered[:, :1]
        low = _variances(z, m)
        best = low[:, 0].copy()
        a = np.zeros(len(value), dtype=np.int64)
        margin = 1e-6 * np.square(z[:, -1])
        for candidate in range(1, m + 1):
            better = low[:, candidate] > best + margin
            best = np.where(better, low[:, candidate], best)
            a[better] = candidate
        position = np.arange(n)
        from_low, from_high = position < a[:, None], position < (m - a)[:, None]
        kept = np.zeros(value.shape, dtype=bool)
        rows = np.arange(len(value))[:, None]
        kept[np.broadcast_to(rows, value.shape)[from_low], ascending[from_low]] = True
        kept[np.broadcast_to(rows, value.shape)[from_high], descending[from_high]] = True
        keep[bucket.rows] = kept
        if m < n:
            tied[bucket.rows] = _tied(value, ordered, a, n - m)


def _variances(z: Float, m: int) -> Float:
    """Variance (g, m+1) of the a lowest and m−a highest of ascending z (g, n), a = 0 … m."""
    n = z.shape[1]
    zero = np.zeros((len(z), 1))
    total = np.concatenate((zero, np.cumsum(z, axis=1)), axis=1)
    square = np.concatenate((zero, np.cumsum(z * z, axis=1)), axis=1)
    a = np.arange(m + 1)
    mean = (total[:, a] + total[:, -1:] - total[:, n - m + a]) / m
    return (square[:, a] + square[:, -1:] - square[:, n - m + a]) / m - mean * mean


def _tied(value: Float, ordered: Float, a: Int, dropped: int) -> Bool:
    """Responses whose value equals one across either cut of the ascending order."""
    last = ordered.shape[1] - 1
    tied = np.zeros(value.shape, dtype=bool)
    for cut in (a, a + dropped):
        below = np.take_along_axis(ordered, np.maximum(cut - 1, 0)[:, None], axis=1)
        above = np.take_along_axis(ordered, np.minimum(cut, last)[:, None], axis=1)
        crossed = (below == above) & ((cut > 0) & (cut <= last))[:, None]
        tied |= crossed & (value == below)
    return tied
