"""The Pareto front: strategies that no other beats on all counts."""

from __future__ import annotations

import numpy as np

from ...traces.ragged import Bool, Float
from ..result import Estimates

BATCH_STEP = 0.01
SHARE_STEP = 0.01
BIAS_STEP = 0.05
_TINY = 1e-12


def cost_of(estimates: Estimates) -> str:
    """The estimator that says what an update costs: responses where lengths are unknown."""
    known = np.isfinite(estimates["trained_token_frac"].mean)
    return "trained_token_frac" if known else "kept_frac"


def scores(low_K: Float, high_K: Float, cost_K: Float, bias_K: Float) -> Float:
    """What the front compares (4, K), more being better, in units of the smallest difference.

    Args:
        low_K: lower end of the effective batch.
        high_K: its upper end.
        cost_K: trained share of the tokens, or kept share of the responses.
        bias_K: group bias; NaN where nothing trains.
    """
    return np.array(
        [
            np.log(np.maximum(low_K, _TINY)) / BATCH_STEP,
            np.log(np.maximum(high_K, _TINY)) / BATCH_STEP,
            -cost_K / SHARE_STEP,
            -bias_K / BIAS_STEP,
        ]
    )


def beaten_by(score_4K: Float, eligible_K: Bool) -> list[int | None]:
    """For each strategy (K) another that beats it, or ``None`` where it is on the front.

    One beats another when it has no less effective batch at either end of the bracket, trains no
    more tokens and is no more biased, and is clearly better in one of them. Differences up to 1 %
    of the batch, a point of tokens or .05 of group bias count as none; in these units together it
    must gain more than it loses, so that small differences never let strategies beat each other in
    a ring. Fewer trained tokens are better: they are what an update costs where dropped rows are
    left out of it. Where several beat it, the one with the largest lower end is named. NaN neither
    beats nor is beaten.

    Args:
        score_4K: of :func:`scores`.
        eligible_K: strategies that may beat others.
    """
    found: list[int | None] = []
    for k in range(score_4K.shape[1]):
        gain_4K = score_4K - score_4K[:, k : k + 1]
        beats_K = (gain_4K.min(axis=0) >= -1) & (gain_4K.max(axis=0) > 1)
        winners = np.flatnonzero(beats_K & (gain_4K.sum(axis=0) > 0) & eligible_K)
        found.append(int(winners[np.argmax(score_4K[0, winners])]) if len(winners) else None)
    return found
