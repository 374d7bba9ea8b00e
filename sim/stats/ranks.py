"""Whether another choice of benchmarks would order the methods alike, and whether noise would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...traces.ragged import Float, ratio

PERMUTATIONS = 49_999
MIN_METHODS = 3
_DIGITS = 9  # means that differ by rounding alone are ties
_ROUNDING = 1e-9
_BLOCK = 2_000_000


class ScorePair(NamedTuple):
    """Names of two scores, and the domain that the second leaves out, if it does."""

    first: str
    second: str
    left_out: str = ""


@dataclass(frozen=True)
class RankStability:
    """The order of methods by two scores, against permuted method labels.

    Attributes:
        first: name of the one score.
        second: name of the other.
        correlation: Spearman's, of the method means; NaN where a score is equal for all.
        p: chance of a correlation so low or lower.
        spread_first: largest minus smallest method mean by the first score.
        p_spread_first: chance of a spread so large or larger.
        spread_second: by the second.
        p_spread_second: likewise.
        median: of the correlations, where the first score leaves out one benchmark at a time and
            ``correlation`` is the lowest of them; else ``None``.
        left_out: the benchmark or domain that one score leaves out, or an empty string.
    """

    first: str
    second: str
    correlation: float
    p: float
    spread_first: float
    p_spread_first: float
    spread_second: float
    p_spread_second: float
    median: float | None = None
    left_out: str = ""


def spearman(a_PK: Float, b_PK: Float) -> Float:
    """Spearman's rank correlation of each row (P) over methods (K), ties at mean ranks.

    NaN where either is constant.
    """
    ranks = [stats.rankdata(np.round(v, _DIGITS), axis=-1) for v in (a_PK, b_PK)]
    a, b = (r - r.mean(axis=-1, keepdims=True) for r in ranks)
    top = (a * b).sum(axis=-1)
    bottom = np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))
    return ratio(top, bottom)


def permuted_means(
    score_SKX: Float, permutations: int, rng: np.random.Generator
) -> Iterator[Float]:
    """Blocks (P, K, X) of method means after permuting, inside each seed, whose runs are whose.

    A run keeps its scores together, so that benchmarks stay as correlated as they are.

    Args:
        score_SKX: complete scores of S seeds, K methods.
        permutations: how many in all blocks.
        rng: draws them.
    """
    seeds, methods, columns = score_SKX.shape
    block = max(1, _BLOCK // max(1, methods * columns))
    for start in range(0, permutations, block):
        count = min(block, permutations - start)
        total = np.zeros((count, methods, columns))
        for seed in range(seeds):
            order = rng.permuted(np.tile(np.arange(methods), (count, 1)), axis=1)
            total += score_SKX[seed][order]
        yield total / seeds


def rank_stability(
    score_SKM: Float,
    pairs: Mapping[ScorePair, tuple[Float, Float]],
    rng: np.random.Generator,
    permutations: int = PERMUTATIONS,
) -> list[RankStability]:
    """Compare the order of methods by pairs of scores.

    P-values are (1 + hits) / (1 + permutations) under permuted labels: what they would be if all
    methods were alike. Two scores that share benchmarks are correlated there, too.

    Args:
        score_SKM: scores without a gap, of S seeds, K methods (three at least), M metrics.
        pairs: names of two scores → their weights (M) over metrics.
        rng: draws permutations.
        permutations: how many.
    """
    weights_MX = np.stack([w for pair in pairs.values() for w in pair], axis=1)
    (rho_1Y, spread_1X), (rho_PY, spread_PX) = _seen_and_null(
        score_SKM @ weights_MX, _neighbours, rng, permutations
    )
    p_rho = _low_p(rho_1Y[0], rho_PY)
    p_spread = _high_p(spread_1X[0], spread_PX)
    return [
        RankStability(
            names.first,
            names.second,
            *(float(rho_1Y[0, i]), float(p_rho[i])),
            *(float(spread_1X[0, 2 * i]), float(p_spread[2 * i])),
            *(float(spread_1X[0, 2 * i + 1]), float(p_spread[2 * i + 1])),
            left_out=names.left_out,
        )
        for i, names in enumerate(pairs)
    ]


def leave_one_out(
    score_SKM: Float,
    weight_M: Float,
    metrics: Sequence[str],
    rng: np.random.Generator,
    permutations: int = PERMUTATIONS,
) -> RankStability:
    """The lowest correlation of the overall score with itself less one benchmark.

    Its p is that of the minimum over benchmarks.

    Args:
        score_SKM: scores without a gap.
        weight_M: weights of the overall score, of two benchmarks at least.
        metrics: names of the M benchmarks.
        rng: draws permutations.
        permutations: how many.
    """
    at = np.flatnonzero(weight_M)
    keep_MX = np.repeat(weight_M[:, None], len(at), axis=1)
    keep_MX[at, np.arange(len(at))] = 0.0
    weights_MX = np.column_stack([keep_MX / keep_MX.sum(axis=0), weight_M])
    (rho_1Y, spread_1X), (rho_PY, spread_PX) = _seen_and_null(
        score_SKM @ weights_MX, _with_last, rng, permutations
    )
    lowest = int(np.argmin(np.where(np.isnan(rho_1Y[0]), np.inf, rho_1Y[0])))
    p_spread = _high_p(spread_1X[0], spread_PX)
    smallest_P = np.min(np.where(np.isnan(rho_PY), np.inf, rho_PY), axis=1, keepdims=True)
    return RankStability(
        f"all but {metrics[at[lowest]]}",
        "all",
        *(float(rho_1Y[0, lowest]), float(_low_p(rho_1Y[0, [lowest]], smallest_P)[0])),
        *(float(spread_1X[0, lowest]), float(p_spread[lowest])),
        *(float(spread_1X[0, -1]), float(p_spread[-1])),
        median=float(np.median(rho_1Y[0])),
        left_out=metrics[at[lowest]],
    )


def _seen_and_null(
    scores_SKX: Float,
    correlate: Callable[[Float], Float],
    rng: np.random.Generator,
    permutations: int,
) -> list[tuple[Float, Float]]:
    """Correlations (P, Y) and spreads (P, X) as seen (P = 1), and under permuted labels."""
    seen_1KX = scores_SKX.mean(axis=0)[None]
    null = permuted_means(scores_SKX, permutations, rng)
    blocks = [(correlate(m), np.ptp(m, axis=1)) for m in null]
    found = [np.concatenate(v) for v in zip(*blocks, strict=True)]
    return [(correlate(seen_1KX), np.ptp(seen_1KX, axis=1)), (found[0], found[1])]


def _neighbours(mean_PKX: Float) -> Float:
    """Correlations of columns 0 and 1, 2 and 3, …"""
    return _stacked(mean_PKX, [(i, i + 1) for i in range(0, mean_PKX.shape[2], 2)])


def _with_last(mean_PKX: Float) -> Float:
    """Correlations of every column with the last."""
    last = mean_PKX.shape[2] - 1
    return _stacked(mean_PKX, [(i, last) for i in range(last)])


def _stacked(mean_PKX: Float, columns: Sequence[tuple[int, int]]) -> Float:
    return np.stack([spearman(mean_PKX[..., a], mean_PKX[..., b]) for a, b in columns], axis=1)


def _low_p(seen_Y: Float, null_PY: Float) -> Float:
    return _p(seen_Y, null_PY <= seen_Y + _ROUNDING)


def _high_p(seen_Y: Float, null_PY: Float) -> Float:
    return _p(seen_Y, null_PY >= seen_Y - _ROUNDING)


def _p(seen_Y: Float, hit_PY: NDArray[np.bool_]) -> Float:
    p_Y = (1 + hit_PY.sum(axis=0)) / (1 + len(hit_PY))
    return np.where(np.isnan(seen_Y), np.nan, p_Y)
