"""Do strategies differ over the steps of a run? Paired differences that respect autocorrelation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats

from ...traces.ragged import Bool, Float

MIN_STEPS = 60
MOST_STEPS = 0.9
MOST_PERSISTENT = 0.97
MOST_RELATED = 0.85
_EQUAL = 1e-9
ALPHA = 0.05


@dataclass(frozen=True, eq=False)
class Differences:
    """Every pair of K series: row minus column, in the series' own unit.

    Attributes:
        mean_KK: mean difference over the steps used.
        low_KK: simultaneous 95 % interval over all pairs; NaN where nothing is claimed.
        high_KK: its upper end.
        p_KK: Holm-adjusted over all pairs; NaN where nothing is claimed.
        comparisons: pairs in the family.
        steps: steps used: those where every compared series has a value.
        freedom: degrees of freedom of the long-run variance.
        related: largest correlation of a difference with itself a step later, bias corrected.
        compared_K: series that enter; one that lacks values on a tenth of the steps does not.
        reason: why nothing is claimed, or ``None``.
    """

    mean_KK: Float
    low_KK: Float
    high_KK: Float
    p_KK: Float
    comparisons: int
    steps: int
    freedom: int
    related: float
    compared_K: Bool
    reason: str | None

    def claimed(self, first: int, second: int, alpha: float = ALPHA) -> int:
        """1 where the first is above the second, -1 below, 0 where nothing is claimed."""
        if not self.p_KK[first, second] <= alpha:
            return 0
        return int(np.sign(self.mean_KK[first, second]))


def holm(p_F: Float) -> Float:
    """P-values (F) adjusted by Holm's step-down (1979): the k-th smallest of F times F − k + 1."""
    order = np.argsort(p_F)
    raised = np.maximum.accumulate(p_F[order] * np.arange(len(p_F), 0, -1))
    adjusted = np.empty_like(p_F)
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted


def freedom_of(steps: int) -> int:
    """Cosines that estimate the long-run variance: 0.4 S^⅔ (Lazarus et al. 2018, eq. 4)."""
    return max(2, round(0.4 * steps ** (2 / 3)))


def persistence(series: Float) -> Float:
    """First-order autocorrelation of each column of (S, P), in [0, .97].

    Corrected for the bias of short series, (1 + 3φ)/S (Kendall 1954; Marriott and Pope 1954).
    """
    away = series - series.mean(axis=0)
    bottom = np.square(away).sum(axis=0)
    varies = bottom > len(series) * (_EQUAL * np.abs(series).max(axis=0)) ** 2
    found = np.zeros(len(bottom))
    np.divide((away[1:] * away[:-1]).sum(axis=0), bottom, out=found, where=varies)
    return np.clip(found + (1 + 3 * found) / len(series), 0.0, MOST_PERSISTENT)


def long_run_variance(series: Float, freedom: int) -> Float:
    """Long-run variance of each column of (S, P): the larger of two estimates.

    One is the mean square of the first ``freedom`` type-II cosine transforms (equal-weighted
    cosines: Müller 2004; Lazarus, Lewis, Stock and Watson 2018, "HAR Inference: Recommendations for
    Practice", §2), with which a mean's t has ``freedom`` degrees of freedom. It falls short where
    steps are closely related, since the spectrum then falls over those cosines. The other is that
    of an AR(1) series with the column's :func:`persistence`. A trend counts as noise, so that
    intervals get wide rather than wrong.
    """
    steps = len(series)
    at = (np.arange(steps) + 0.5) / steps
    waves = np.sqrt(2.0) * np.cos(np.pi * np.arange(1, freedom + 1)[:, None] * at)
    away = series - series.mean(axis=0)
    cosines = np.square(waves @ away / np.sqrt(steps)).mean(axis=0)
    phi = persistence(series)
    shocks = np.square(away[1:] - phi * away[:-1]).sum(axis=0) / (steps - 2)
    return np.maximum(cosines, shocks / (1 - phi) ** 2)


def compare_series(series_SK: Float, min_steps: int = MIN_STEPS) -> Differences:
    """Compare every pair of series over their common steps, as one family.

    Two-sided t tests of the mean paired difference, Holm-adjusted over all pairs that differ
    anywhere; intervals at the family's Bonferroni level. Whichever pair is looked at afterwards,
    the chance of any false claim is at most 5 % while steps are related by .8 or less: of eight
    AR(1) series of 60 steps it was 1 % for φ = .6, 4 % for .8 and 19 % for .9; of 300 steps 8 % for
    .9 (1,000 runs each).

    Args:
        series_SK: one value a step (S) and series (K); NaN where it can't be estimated.
        min_steps: no claim under so many steps.
    """
    known = np.isfinite(series_SK)
    compared_K: Bool = known.sum(axis=0) > MOST_STEPS * len(series_SK)
    common = known[:, compared_K].all(axis=1) & compared_K.any()
    used = series_SK[common]
    count = series_SK.shape[1]
    blank = np.full((count, count), np.nan)
    mean_KK, low_KK, high_KK, p_KK = (blank.copy() for _ in range(4))
    np.fill_diagonal(mean_KK, 0.0)
    pairs = list(combinations(np.flatnonzero(compared_K).tolist(), 2))
    differing: list[tuple[int, int]] = []
    for first, second in pairs:
        gap = used[:, first] - used[:, second]
        size = np.abs(used[:, [first, second]]).max(initial=0.0)
        if not len(used) or np.abs(gap).max() > _EQUAL * size:
            differing.append((first, second))
        if len(used):
            mean_KK[first, second] = gap.mean()
            mean_KK[second, first] = -gap.mean()
    freedom = freedom_of(max(len(used), 1))
    reason, related = None, np.nan
    if count > 1 and compared_K.sum() < 2:
        reason = "fewer than two of them have a value on nine tenths of the steps"
    elif len(used) < min_steps:
        reason = f"{len(used)} steps where all have a value, {min_steps} are needed for a claim"
    elif differing:
        rows, columns = np.array(differing).T
        gaps_SP = used[:, rows] - used[:, columns]
        error = np.sqrt(long_run_variance(gaps_SP, freedom) / len(used))
        centre = gaps_SP.mean(axis=0)
        error = np.maximum(error, 1e-12 * np.abs(gaps_SP).max(axis=0))
        related = float(persistence(gaps_SP).max())
        p = holm(2 * stats.t.sf(np.abs(centre) / error, freedom))
        half = stats.t.isf(ALPHA / 2 / len(differing), freedom) * error
        p_KK[rows, columns] = p_KK[columns, rows] = p
        low_KK[rows, columns], high_KK[rows, columns] = centre - half, centre + half
        low_KK[columns, rows], high_KK[columns, rows] = -centre - half, -centre + half
    return Differences(
        mean_KK, low_KK, high_KK, p_KK,
        len(differing), len(used), freedom, related, compared_K, reason,
    )  # fmt: skip
