"""Bootstrap over seeds, and the numbers that pool seeds and metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from arch.bootstrap import IIDBootstrap

from ...traces.ragged import Float, ratio

STUDENTIZED_FROM = 15
"""Pairs from which the bootstrap is studentized, and is the headline interval."""
_TIE = 1e-9


@dataclass(frozen=True)
class Resampled:
    """Bootstrap intervals over seeds; NaN where a method has fewer than two pairs.

    Attributes:
        mean_2F: lower and upper end for the mean of every column.
        iqm_2K: percentile interval of the interquartile mean of differences.
        improve_2K: percentile interval of the probability of improvement.
        kind: of ``mean_2F``, ``percentile`` or ``studentized``.
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
    return ratio(np.where(middle_NK, d_NK, 0.0).sum(axis=0), middle_NK.sum(axis=0))


def probability_of_improvement(d_SKM: Float) -> Float:
    """Share of seeds × metrics where the method is above the baseline, ties one half (K).

    Agarwal et al. 2021, arXiv:2108.13264 §4.3, with runs of the same seed as pairs instead of all
    pairs of runs. NaN are left out.
    """
    known_SKM = np.isfinite(d_SKM)
    filled = np.where(known_SKM, d_SKM, 0.0)
    won_SKM = np.where(np.abs(filled) <= _TIE, 0.5, filled > 0) * known_SKM
    return ratio(won_SKM.sum(axis=(0, 2)), known_SKM.sum(axis=(0, 2)))


def bootstrap(
    d_SF: Float, d_SKM: Float, alpha: float, resamples: int, rng: np.random.Generator
) -> Resampled:
    """Bootstrap seeds, jointly for all methods and metrics, so that pairs stay together.

    From 15 seeds the interval of a mean is studentized: quantiles of (mean* − mean) / error*, times
    the error (Hall 1988; DiCiccio & Efron 1996 §4). In simulations of 15 pairs it covered .942 of
    normal and .938 of exponential differences, t .951 and .895, BCa .915 of normal ones.

    Args:
        d_SF: differences whose means are wanted (S seeds).
        d_SKM: differences by method and metric, which are pooled.
        alpha: intervals cover 1 − alpha.
        resamples: how many.
        rng: draws them.
    """
    (seeds, family), methods = d_SF.shape, d_SKM.shape[1]
    kind = "studentized" if seeds >= STUDENTIZED_FROM else "percentile"
    if seeds < 2:
        none_2K = np.full((2, methods), np.nan)
        return Resampled(np.full((2, family), np.nan), none_2K, none_2K.copy(), kind)

    def statistic(columns_SF: Float, pooled_SKM: Float) -> Float:
        pooled = interquartile_mean(pooled_SKM), probability_of_improvement(pooled_SKM)
        return np.concatenate([*_mean_and_error(columns_SF), *pooled])

    drawn_RX = IIDBootstrap(d_SF, d_SKM, seed=rng).apply(statistic, resamples)
    ends_2X = _quantiles(drawn_RX, np.array([alpha / 2, 1 - alpha / 2]))
    mean_2F = ends_2X[:, :family]
    if kind == "studentized":
        mean_2F = _studentized(d_SF, drawn_RX[:, : 2 * family], alpha, mean_2F)
    enough_F = np.isfinite(d_SF).sum(axis=0) > 1
    enough_K = np.isfinite(d_SKM).any(axis=2).sum(axis=0) > 1
    iqm_2K, improve_2K = np.split(ends_2X[:, 2 * family :], 2, axis=1)
    return Resampled(
        np.where(enough_F, mean_2F, np.nan),
        np.where(enough_K, iqm_2K, np.nan),
        np.where(enough_K, improve_2K, np.nan),
        kind,
    )


def _mean_and_error(d_SF: Float) -> tuple[Float, Float]:
    """Mean of each column, and its standard error."""
    known_SF = np.isfinite(d_SF)
    n_F = known_SF.sum(axis=0)
    mean_F = ratio(np.where(known_SF, d_SF, 0.0).sum(axis=0), n_F)
    square_F = np.where(known_SF, (d_SF - mean_F) ** 2, 0.0).sum(axis=0)
    return mean_F, np.sqrt(ratio(square_F, (n_F - 1) * n_F))


def _studentized(d_SF: Float, drawn_RX: Float, alpha: float, instead_2F: Float) -> Float:
    """Studentized ends of each mean; ``instead`` where a column does not vary."""
    mean_F, error_F = _mean_and_error(d_SF)
    mean_RF, error_RF = np.split(drawn_RX, 2, axis=1)
    varies_F = error_F > _TIE * np.maximum(np.abs(mean_F), _TIE)
    t_RF = np.full(mean_RF.shape, np.nan)
    np.divide(mean_RF - mean_F, error_RF, out=t_RF, where=error_RF > _TIE * np.abs(mean_F))
    t_2F = _quantiles(t_RF, np.array([1 - alpha / 2, alpha / 2]))
    return np.where(varies_F, mean_F - t_2F * error_F, instead_2F)


def _quantiles(drawn_RX: Float, levels: Float) -> Float:
    """Quantiles (2, X) of the resamples that have a value."""
    ends_2X = np.full((2, drawn_RX.shape[1]), np.nan)
    for x, drawn_R in enumerate(drawn_RX.T):
        known = drawn_R[np.isfinite(drawn_R)]
        if len(known):
            ends_2X[:, x] = np.quantile(known, levels)
    return ends_2X
