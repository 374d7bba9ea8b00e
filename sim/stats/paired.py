"""Tests of paired differences: t, sign flips, equivalence, corrections, precision.

A pair is a method and the baseline at one seed. Arrays are differences, seeds first: ``d_SF`` holds
S seeds and F comparisons, a family; NaN is a pair that is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...traces.ragged import Float, ratio
from .series import holm

EXACT_SEEDS = 13
FLIPS = 9_999
_CELLS = 4_000_000  # of one block of flips
_EQUAL = 1e-9


@dataclass(frozen=True)
class PairedT:
    """Paired t of each of F comparisons.

    Attributes:
        n_F: pairs.
        mean_F: mean difference.
        std_F: their standard deviation (n − 1); NaN under two pairs, 0 where they are all equal.
        low_F: interval of the mean; NaN under two pairs, or where all differences are equal.
        high_F: its upper end.
        p_F: two-sided p; NaN likewise.
    """

    n_F: NDArray[np.int64]
    mean_F: Float
    std_F: Float
    low_F: Float
    high_F: Float
    p_F: Float


@dataclass(frozen=True)
class SignFlips:
    """Sign-flip tests of each of F comparisons.

    Attributes:
        p_F: two-sided p of the absolute mean; NaN under two pairs.
        max_t_p_F: p adjusted over the family by the largest absolute t.
        smallest_F: the smallest p that so many pairs can give.
    """

    p_F: Float
    max_t_p_F: Float
    smallest_F: Float


def paired_t(d_SF: Float, alpha: float, step_F: Float | float = 0.0) -> PairedT:
    """Student's t of paired differences; assumes that they are normal.

    Args:
        d_SF: differences.
        alpha: the interval covers 1 − alpha.
        step_F: step of the scores: differences within half of it count as equal. −3.3, −3.4, −3.4
            on a benchmark of 30 problems is one problem thrice, rounded: no spread to divide by.
    """
    known_SF = np.isfinite(d_SF)
    n_F = known_SF.sum(axis=0)
    mean_F = ratio(np.where(known_SF, d_SF, 0.0).sum(axis=0), n_F)
    away_SF = np.where(known_SF, d_SF - mean_F, 0.0)
    std_F = np.sqrt(ratio((away_SF**2).sum(axis=0), n_F - 1))
    scale_F = np.where(known_SF, np.abs(d_SF), 0.0).max(axis=0, initial=0.0)
    range_F = np.where(known_SF, d_SF, -np.inf).max(axis=0, initial=-np.inf) - np.where(
        known_SF, d_SF, np.inf
    ).min(axis=0, initial=np.inf)
    equal_F = (range_F <= np.maximum(_EQUAL * scale_F, step_F / 2)) & (n_F > 1)
    std_F = np.where(equal_F, 0.0, std_F)
    error_F = np.where(std_F > 0, std_F, np.nan) / np.sqrt(np.maximum(n_F, 1))
    degrees_F = np.maximum(n_F - 1, 1)
    reach_F = stats.t.ppf(1 - alpha / 2, degrees_F) * error_F
    p_F = 2 * stats.t.sf(np.abs(mean_F / error_F), degrees_F)
    return PairedT(n_F, mean_F, std_F, mean_F - reach_F, mean_F + reach_F, p_F)


def sign_flips(d_SF: Float, rng: np.random.Generator, flips: int = FLIPS) -> SignFlips:
    """Sign-flip tests, raw and adjusted by single-step max-T (Westfall & Young 1993, §2.2–2.3).

    Valid whenever a pair's difference is symmetric about 0 if there is no effect; no normality is
    assumed. All comparisons see the same flips of seeds, which keeps their dependence. Up to 13
    seeds all 2^S flips are enumerated and p is exact; beyond, ``flips`` random ones, and
    p = (1 + hits) / (1 + flips) (Phipson & Smyth 2010).

    Args:
        d_SF: differences.
        rng: draws the flips beyond 13 seeds.
        flips: how many then.
    """
    seeds, family = d_SF.shape
    known_SF = np.isfinite(d_SF)
    n_F = known_SF.sum(axis=0)
    filled_SF = np.where(known_SF, d_SF, 0.0)
    square_F = (filled_SF**2).sum(axis=0)
    exact = seeds <= EXACT_SEEDS
    total = 2**seeds if exact else flips
    seen_F = np.abs(filled_SF.sum(axis=0))
    seen_t_F = _abs_t(seen_F, square_F, n_F)
    slack_F = _EQUAL * np.abs(filled_SF).sum(axis=0)
    hits_F = np.zeros(family)
    max_hits_F = np.zeros(family)
    block = max(1, _CELLS // max(family, 1))
    for start in range(0, total, block):
        count = min(block, total - start)
        if exact:
            bits = (np.arange(start, start + count)[:, None] >> np.arange(seeds)) & 1
        else:
            bits = rng.integers(0, 2, (count, seeds))
        sum_RF = np.abs((1.0 - 2.0 * bits) @ filled_SF)
        hits_F += (sum_RF >= seen_F - slack_F).sum(axis=0)
        max_R = _abs_t(sum_RF, square_F, n_F).max(axis=1, initial=0.0)
        max_hits_F += (max_R[:, None] >= seen_t_F * (1 - _EQUAL)).sum(axis=0)
    extra = 0 if exact else 1
    smallest_F = np.maximum(2.0 ** (1 - n_F), 0.0 if exact else 1 / (1 + flips))
    found = [(h + extra) / (total + extra) for h in (hits_F, max_hits_F)]
    return SignFlips(*(np.where(n_F > 1, v, np.nan) for v in (*found, smallest_F)))


def steps_of(score_NF: Float) -> Float:
    """Step of coarse scores (F): the smallest gap between two different ones; 0 where not coarse.

    Scores are coarse if each value occurs twice on average, as on a benchmark of 30 problems.

    Args:
        score_NF: scores; NaN are left out.
    """
    known_NF = np.isfinite(score_NF)
    gap_NF = np.diff(np.sort(score_NF, axis=0), axis=0)
    scale_F = np.where(known_NF, np.abs(score_NF), 0.0).max(axis=0, initial=0.0)
    apart_NF = gap_NF > _EQUAL * scale_F
    smallest_F = np.where(apart_NF, gap_NF, np.inf).min(axis=0, initial=np.inf)
    values_F = 1 + apart_NF.sum(axis=0)
    coarse_F = (2 * values_F <= known_NF.sum(axis=0)) & np.isfinite(smallest_F)
    return np.where(coarse_F, smallest_F, 0.0)


def _abs_t(sum_F: Float, square_F: Float, n_F: NDArray[np.int64]) -> Float:
    """|t| from the sum of n differences and of their squares; infinite where all are equal."""
    share = np.minimum(ratio(sum_F**2, square_F * n_F), 1.0)
    share = np.where(np.isnan(share), 0.0, share)
    rest = np.where(1 - share < _EQUAL, 0.0, 1 - share)
    top = np.sqrt(np.maximum(n_F - 1, 0) * share)
    full = np.full(np.broadcast_shapes(np.shape(top), np.shape(rest)), np.inf)
    t = np.divide(top, np.sqrt(rest), out=full, where=rest > 0)
    return np.where(n_F > 1, t, 0.0)


def equivalence_p(t: PairedT, margin: float) -> Float:
    """P of two one-sided t-tests that the true difference lies inside ±margin (F).

    Schuirmann 1987; assumes normal differences. NaN where there is no interval, except that equal
    differences stay NaN too: their spread is unknown.
    """
    error_F = np.where(t.std_F > 0, t.std_F, np.nan) / np.sqrt(np.maximum(t.n_F, 1))
    degrees_F = np.maximum(t.n_F - 1, 1)
    low_F = stats.t.sf((t.mean_F + margin) / error_F, degrees_F)
    high_F = stats.t.cdf((t.mean_F - margin) / error_F, degrees_F)
    return np.asarray(np.maximum(low_F, high_F))


def adjusted(p_F: Float, method: Literal["holm", "bh"]) -> Float:
    """P-values (F) adjusted over those that exist: Holm's, or Benjamini and Hochberg's."""
    out = p_F.copy()
    known = np.isfinite(p_F)
    if known.any():
        adjust = holm if method == "holm" else stats.false_discovery_control
        out[known] = adjust(p_F[known])
    return out
