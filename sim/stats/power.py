"""What so many seeds can find, and how many it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import optimize, stats

MOST_SEEDS = 1_000_000
_FAR = 5.0  # beyond, the other side's probability is under 1e-6 and SciPy's can be NaN


@dataclass(frozen=True)
class Range:
    """A number, and what it is at either end of the 95 % interval of the spread it rests on."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """As JSON: NaN becomes null."""
        return {k: None if not math.isfinite(v) else v for k, v in vars(self).items()}


def power(effect: float, n: int, alpha: float) -> float:
    """Power of a two-sided paired t-test by the noncentral t.

    Args:
        effect: true difference over the standard deviation of paired differences.
        n: pairs, at least two.
        alpha: level.
    """
    degrees, shift = n - 1, effect * math.sqrt(n)
    cut = stats.t.ppf(1 - alpha / 2, degrees)
    far_side = stats.nct.cdf(-cut, degrees, shift) if shift < _FAR else 0.0
    return float(stats.nct.sf(cut, degrees, shift) + far_side)


def detectable(n: int, alpha: float, wanted: float) -> float:
    """Smallest true difference, in standard deviations, found with power ``wanted`` by n pairs.

    NaN under two pairs.
    """
    if n < 2:
        return math.nan
    high = 1.0
    while power(high, n, alpha) < wanted:
        high *= 2
    return float(optimize.brentq(lambda effect: power(effect, n, alpha) - wanted, 0.0, high))


def seeds_needed(effect: float, alpha: float, wanted: float) -> float:
    """Smallest number of pairs that finds a true difference with power ``wanted``.

    Args:
        effect: true difference over the standard deviation; infinite needs two pairs.
        alpha: level.
        wanted: power.

    Returns:
        The number; infinite beyond a million, NaN if the effect is.
    """
    if math.isnan(effect):
        return math.nan
    if effect == math.inf or power(effect, 2, alpha) >= wanted:
        return 2
    low, high = 2, 4
    while high <= MOST_SEEDS and power(effect, high, alpha) < wanted:
        low, high = high, 2 * high
    if high > MOST_SEEDS:
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle, alpha) >= wanted else (middle, high)
    return high


def spread_range(std: float, degrees: int) -> Range:
    """A standard deviation with its 95 % interval by χ²; assumes normal differences."""
    if degrees < 1 or not math.isfinite(std):
        return Range(math.nan, math.nan, math.nan)
    low, high = (std * math.sqrt(degrees / stats.chi2.ppf(q, degrees)) for q in (0.975, 0.025))
    return Range(std, low, high)


def detectable_range(std: Range, n: int, alpha: float, wanted: float) -> Range:
    """Smallest true difference found, at the spread and at both ends of its interval."""
    effect = detectable(n, alpha, wanted)
    return Range(effect * std.value, effect * std.low, effect * std.high)


def needed_range(std: Range, margin: float, alpha: float, wanted: float) -> Range:
    """Pairs that find ``margin``, at the spread and at both ends of its interval."""

    def at(spread: float) -> float:
        if math.isnan(spread):
            return math.nan
        return seeds_needed(margin / spread if spread > 0 else math.inf, alpha, wanted)

    return Range(at(std.value), at(std.low), at(std.high))
