"""Bootstrap over seeds, and the numbers that pool seeds and metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from arch.bootstrap import IIDBootstrap
from scipy import stats

from ...traces.ragged import Float

BCA_FROM = 15
"""Pairs from which the bias-corrected bootstrap is used, and is the headline interval."""
_TIE = 1e-9


@dataclass(frozen=True)
class Resampled:
    """Bootstrap intervals over seeds; NaN where a method has fewer than two pairs.

    Attributes:
        mean_2F: lower and upper end for the mean of every column.
        iqm_2K: for the interquartile mean of differences.
        improve_2K: for the probability of improvement.
        kind: ``percentile`` or ``bca``.
    """

    mean_2F: Float
    iqm_2K: Float
    improve_2K: Float
    kind: str


def interquartile_mean(d_SKM: Float) -> Float:
    """Mean of the middle half of differences over seeds × metrics, of each method (K).

    Agarwal et al. 2021, arXiv:2108.13264 §4.3, on paired differences: int(n/4) of n are cut at
    either end, as ``scipy.stats.trim_mean`` does. NaN are left out; NaN without any.
    """
    seeds, methods, metrics = d_SKM.shape
    d_NK = np.sort(np.moveaxis(d_SKM, 1, 2).reshape(seeds * metrics, methods), axis=0)
    n_K = np.isfinite(d_NK).sum(axis=0)
    cut_K = n_K // 4
    place_N = np.arange(len(d_NK))[:, None]
    middle_NK = (place_N >= cut_K) & (place_N < n_K - cut_K)
    return _mean(np.where(middle_NK, d_NK, 0.0).sum(axis=0), middle_NK.sum(axis=0))


def probability_of_improvement(d_SKM: Float) -> Float:
    """Share of seeds × metrics where the method is above the baseline, ties one half (K).

    Agarwal et al. 2021, arXiv:2108.13264 §4.3, with runs of the same seed as pairs instead of all
    pairs of runs. NaN are left out.
    """
    known_SKM = np.isfinite(d_SKM)
    filled = np.where(known_SKM, d_SKM, 0.0)
    won_SKM = np.where(np.abs(filled) <= _TIE, 0.5, filled > 0) * known_SKM
    return _mean(won_SKM.sum(axis=(0, 2)), known_SKM.sum(axis=(0, 2)))


def bootstrap(
    d_SF: Float, d_SKM: Float, alpha: float, resamples: int, rng: np.random.Generator
) -> Resampled:
    """Bootstrap seeds, jointly for all methods and metrics, so that pairs stay together.

    Args:
        d_SF: differences whose means are wanted (S seeds).
        d_SKM: differences by method and metric, which are pooled.
        alpha: intervals cover 1 − alpha.
        resamples: how many.
        rng: draws them.
    """
    (seeds, family), methods = d_SF.shape, d_SKM.shape[1]
    kind = "bca" if seeds >= BCA_FROM else "percentile"
    if seeds < 2:
        none_2K = np.full((2, methods), np.nan)
        return Resampled(np.full((2, family), np.nan), none_2K, none_2K.copy(), kind)

    def statistic(columns_SF: Float, pooled_SKM: Float) -> Float:
        known_SF = np.isfinite(columns_SF)
        mean_F = _mean(np.where(known_SF, columns_SF, 0.0).sum(axis=0), known_SF.sum(axis=0))
        pooled = interquartile_mean(pooled_SKM), probability_of_improvement(pooled_SKM)
        return np.concatenate([mean_F, *pooled])

    drawn_RX = IIDBootstrap(d_SF, d_SKM, seed=rng).apply(statistic, resamples)
    levels = np.array([alpha / 2, 1 - alpha / 2])
    levels_2X = np.repeat(levels[:, None], drawn_RX.shape[1], axis=1)
    if kind == "bca":
        left_out = [np.arange(seeds) != s for s in range(seeds)]
        jackknife_SX = np.array([statistic(d_SF[kept], d_SKM[kept]) for kept in left_out])
        levels_2X = bca_levels(drawn_RX, statistic(d_SF, d_SKM), jackknife_SX, levels)
    ends_2X = _quantiles(drawn_RX, levels_2X)
    enough_F = np.isfinite(d_SF).sum(axis=0) > 1
    enough_K = np.isfinite(d_SKM).any(axis=2).sum(axis=0) > 1
    ends_2X = np.where(np.concatenate([enough_F, enough_K, enough_K]), ends_2X, np.nan)
    return Resampled(
        ends_2X[:, :family],
        ends_2X[:, family : family + methods],
        ends_2X[:, family + methods :],
        kind,
    )


def bca_levels(drawn_RX: Float, seen_X: Float, jackknife_SX: Float, levels: Float) -> Float:
    """Levels (2, X) of quantiles that correct bias and skew.

    Efron 1987, eq. 2.3, 6.6; ties of resamples with the value count one half. Columns that all
    resamples lie on one side of keep their levels. Not arch's own: version 8.0.0 centres the
    jackknife of several columns at one mean over all of them, which spoils the acceleration.

    Args:
        drawn_RX: resampled statistics.
        seen_X: of the data.
        jackknife_SX: leaving each seed out.
        levels: lower and upper.
    """
    below_X = ((drawn_RX < seen_X).mean(axis=0) + (drawn_RX <= seen_X).mean(axis=0)) / 2
    fit_X = (below_X > 0) & (below_X < 1) & np.isfinite(jackknife_SX).all(axis=0)
    bias_X = stats.norm.ppf(np.where(fit_X, below_X, 0.5))
    u_SX = np.where(fit_X, jackknife_SX.mean(axis=0) - jackknife_SX, 0.0)
    bottom_X = 6 * (u_SX**2).sum(axis=0) ** 1.5
    skew_X = np.divide(
        (u_SX**3).sum(axis=0), bottom_X, out=np.zeros(len(bottom_X)), where=bottom_X > 0
    )
    z_2X = bias_X + stats.norm.ppf(levels)[:, None]
    corrected_2X = stats.norm.cdf(bias_X + z_2X / (1 - skew_X * z_2X))
    return np.where(fit_X, corrected_2X, levels[:, None])


def _quantiles(drawn_RX: Float, levels_2X: Float) -> Float:
    ends_2X = np.full(levels_2X.shape, np.nan)
    for x, levels in enumerate(levels_2X.T):
        known = drawn_RX[np.isfinite(drawn_RX[:, x]), x]
        if len(known):
            ends_2X[:, x] = np.quantile(known, levels)
    return ends_2X


def _mean(total: Float, count: Float) -> Float:
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
