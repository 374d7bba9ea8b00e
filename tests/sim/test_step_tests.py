"""Paired differences over steps, against a slow second implementation and by simulation."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dfsim.sim.stats.series import ALPHA, MIN_STEPS, compare_series, freedom_of

# The slow one


def slow_variance(series, cosines):
    """Lazarus, Lewis, Stock and Watson 2018: EWC, Λ_j = √(2/T) Σ cos(πj(t−½)/T) z_t, averaged."""
    steps = len(series)
    centre = sum(series) / steps
    total = 0.0
    for j in range(1, cosines + 1):
        transform = 0.0
        for t in range(1, steps + 1):
            wave = math.cos(math.pi * j * (t - 0.5) / steps)
            transform += math.sqrt(2 / steps) * wave * (series[t - 1] - centre)
        total += transform**2
    return total / cosines


def slow_persistence(series):
    """r₁ + (1 + 3 r₁)/T, held in [0, .97]; 0 + 1/T for a constant."""
    steps, centre = len(series), sum(series) / len(series)
    away = [x - centre for x in series]
    bottom = sum(x * x for x in away)
    level = max(map(abs, series))
    r = (
        sum(a * b for a, b in pairwise(away)) / bottom
        if bottom > steps * (1e-9 * level) ** 2
        else 0
    )
    return min(max(r + (1 + 3 * r) / steps, 0.0), 0.97)


def slow_long_run(series, cosines):
    """The larger of the cosines' and that of an AR(1): σ²/(1 − φ)², σ² on T − 2."""
    phi, centre = slow_persistence(series), sum(series) / len(series)
    away = [x - centre for x in series]
    shocks = sum((b - phi * a) ** 2 for a, b in pairwise(away)) / (len(series) - 2)
    return max(slow_variance(series, cosines), shocks / (1 - phi) ** 2)


def slow_holm(p_values):
    """Step down: the k-th smallest of m times m − k + 1, never below an earlier one, at most 1."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def slow_compare(series_SK):
    """Pair → (mean, low, high, adjusted p), pairs that are alike, and the steps used."""
    columns = np.asarray(series_SK).T.tolist()
    steps = len(columns[0])
    compared = [k for k, c in enumerate(columns) if sum(map(math.isfinite, c)) > 0.9 * steps]
    used = [t for t in range(steps) if all(math.isfinite(columns[k][t]) for k in compared)]
    cosines = round(0.4 * len(used) ** (2 / 3))
    alike, differing, found = [], [], {}
    for i, j in combinations(compared, 2):
        gap = [columns[i][t] - columns[j][t] for t in used]
        (differing if any(gap) else alike).append((i, j))
        found[i, j] = gap
    tests = []
    for pair in differing:
        gap = found[pair]
        mean = sum(gap) / len(gap)
        error = math.sqrt(slow_long_run(gap, cosines) / len(gap))
        tests.append((mean, error, 2 * stats.t.cdf(-abs(mean) / error, cosines)))
    reach = stats.t.ppf(1 - 0.025 / max(len(differing), 1), cosines)
    adjusted = slow_holm([p for _, _, p in tests])
    return (
        {
            pair: (mean, mean - reach * error, mean + reach * error, p)
            for pair, (mean, error, _), p in zip(differing, tests, adjusted, strict=True)
        },
        alike,
        len(used),
    )


def autoregressive(rng, steps, count, phi):
    """Stationary AR(1) of variance 1, one a column."""
    series = np.empty((steps, count))
    series[0] = rng.normal(size=count)
    for t in range(1, steps):
        series[t] = phi * series[t - 1] + math.sqrt(1 - phi**2) * rng.normal(size=count)
    return series


@pytest.mark.parametrize("seed", range(12))
def test_the_slow_implementation_agrees(seed):
    """With gaps, a column that is too gappy, a constant, and two equal columns."""
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(70, 130))
    series = autoregressive(rng, steps, 7, rng.choice([0.0, 0.6])) + rng.normal(size=7) / 2
    series[rng.choice(steps, 4, replace=False), 1] = np.nan
    series[rng.choice(steps, 4, replace=False), 2] = np.inf
    series[rng.choice(steps, steps // 5, replace=False), 3] = np.nan
    series[:, 5] = 0.25
    series[:, 6] = series[:, 0]
    found = compare_series(series)
    expected, alike, used = slow_compare(series)
    assert found.reason is None
    assert (found.steps, found.comparisons) == (used, len(expected))
    assert found.compared_K.tolist() == [True, True, True, False, True, True, True]
    assert alike == [(0, 6)]
    assert found.mean_KK[0, 6] == 0
    for (i, j), (mean, low, high, p) in expected.items():
        got = [m[i, j] for m in (found.mean_KK, found.low_KK, found.high_KK, found.p_KK)]
        assert got == pytest.approx([mean, low, high, p], rel=1e-7, abs=1e-12)
        assert found.claimed(i, j) == (0 if p > 0.05 else math.copysign(1, mean))
        assert found.claimed(j, i) == -found.claimed(i, j)
        mirrored = [found.mean_KK[j, i], found.high_KK[j, i], found.low_KK[j, i]]
        assert mirrored == pytest.approx([-mean, -low, -high], rel=1e-7, abs=1e-12)
    for i, j in [*alike, *((3, k) for k in range(7))]:
        assert math.isnan(found.p_KK[i, j])
        assert found.claimed(i, j) == 0


def test_holm_by_hand():
    """.01, .04 and .03 become .03, .06 and .06."""
    assert slow_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@pytest.mark.parametrize(("steps", "cosines"), [(60, 6), (125, 10), (300, 18), (1000, 40)])
def test_freedom_follows_the_paper(steps, cosines):
    """ν = 0.4 S^⅔: 125^⅔ = 25 and 1000^⅔ = 100, exactly; 300^⅔ = 44.8, 60^⅔ = 15.3."""
    assert freedom_of(steps) == cosines


# What must not change the answer


@given(st.integers(0, 500), st.floats(0.01, 1e4), st.floats(-1e3, 1e3))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_scale_shift_and_what_all_share_change_nothing(seed, scale, shift):
    rng = np.random.default_rng(seed)
    series = autoregressive(rng, 64, 4, 0.5) + np.array([0, 0.4, 0.8, 0])
    shared = rng.normal(size=(64, 1)).cumsum(axis=0)
    before, after = compare_series(series), compare_series(scale * (series + shared) + shift)
    assert after.p_KK == pytest.approx(before.p_KK, rel=1e-5, abs=1e-9, nan_ok=True)
    for name in ("mean_KK", "low_KK", "high_KK"):
        expected = scale * getattr(before, name)
        assert getattr(after, name) == pytest.approx(expected, rel=1e-5, abs=1e-5, nan_ok=True)


@given(st.integers(0, 500), st.permutations(range(5)))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_the_order_of_series_is_no_matter(seed, order):
    series = autoregressive(np.random.default_rng(seed), 61, 5, 0.5) + np.arange(5) / 3
    series[3, 2] = np.nan
    before, after = compare_series(series), compare_series(series[:, order])
    shuffle = np.ix_(order, order)
    for name in ("mean_KK", "low_KK", "high_KK", "p_KK"):
        expected = getattr(before, name)[shuffle]
        assert getattr(after, name) == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


def test_a_series_that_differs_from_none_adds_no_comparison():
    rng = np.random.default_rng(3)
    series = autoregressive(rng, 60, 2, 0)
    doubled = np.column_stack([series, series[:, 0]])
    assert compare_series(series).comparisons == 1
    assert compare_series(doubled).comparisons == 2  # 0–1 and 1–2, not 0–2


# Degenerate


def test_no_claim_under_sixty_steps():
    assert MIN_STEPS == 60
    series = np.column_stack([np.zeros(60), 5 + np.sin(np.arange(60))])
    whole, short = compare_series(series), compare_series(series[:59])
    assert whole.claimed(1, 0) == 1
    assert short.claimed(1, 0) == 0
    assert short.mean_KK[1, 0] == pytest.approx(series[:59, 1].mean())
    assert np.isnan([short.low_KK[1, 0], short.high_KK[1, 0], short.p_KK[1, 0]]).all()
    assert "59 steps" in short.reason
    assert "60 are needed" in short.reason


def test_a_gap_can_take_a_run_under_sixty_steps():
    series = autoregressive(np.random.default_rng(0), 60, 3, 0) + np.array([0, 3, 6])
    series[10, 1] = np.nan
    found = compare_series(series)
    assert found.steps == 59
    assert found.claimed(2, 0) == 0  # paired on the steps that all three have


def test_a_constant_difference_is_one():
    """It has no noise, to the last rounding."""
    rng = np.random.default_rng(0)
    series = rng.normal(size=(60, 1)) + np.array([0.0, 0.1, -0.3])
    found = compare_series(series)
    assert [found.claimed(1, 0), found.claimed(2, 0), found.claimed(2, 1)] == [1, -1, -1]
    assert found.low_KK[1, 0] == pytest.approx(0.1)


def test_constant_and_equal_series_differ_in_nothing():
    found = compare_series(np.full((80, 3), 0.1))
    assert found.comparisons == 0
    assert not any(found.claimed(i, j) for i in range(3) for j in range(3))


def test_rounding_is_no_difference():
    rng = np.random.default_rng(1)
    series = rng.normal(size=80)
    found = compare_series(np.column_stack([series, series * (1 + 1e-15)]))
    assert found.comparisons == 0


@pytest.mark.parametrize("shape", [(0, 3), (60, 1), (1, 2)])
def test_too_little_of_anything(shape):
    found = compare_series(np.arange(float(np.prod(shape))).reshape(shape))
    assert found.p_KK.shape == (shape[1], shape[1])
    assert np.isnan(found.p_KK).all()


def test_nothing_known_claims_nothing():
    found = compare_series(np.full((70, 2), np.nan))
    assert not found.compared_K.any()
    assert found.claimed(0, 1) == 0
    assert found.reason is not None


def test_no_common_step_claims_nothing():
    """Each has nearly all of its values, and no step has them all."""
    series = np.random.default_rng(0).normal(size=(60, 12))
    for k in range(12):
        series[5 * k : 5 * k + 5, k] = np.nan
    found = compare_series(series)
    assert found.compared_K.all()
    assert found.steps == 0
    assert found.comparisons == 12 * 11 // 2
    assert found.reason is not None


def test_a_trend_widens_the_interval():
    """A steady drift apart is no evidence of a level: it counts as noise."""
    rng = np.random.default_rng(5)
    noise = autoregressive(rng, 60, 2, 0)
    drift = np.column_stack([np.zeros(60), np.linspace(-3, 3, 60)])

    def width(series):
        found = compare_series(series)
        return found.high_KK[1, 0] - found.low_KK[1, 0]

    assert width(noise + drift) > 3 * width(noise)


# By simulation

REPEATS = 400


def false_claims_bound(steps, series, phi):
    """Chance of a claim among equal AR(1) series, at most: pairs × size at the family's level.

    The mean and the cosine transforms of a Gaussian series are jointly normal, with a covariance
    that follows from φ. So t² = V₀ Z² / (Σ λ_j χ²_j / ν), and the size is an expectation over χ².
    For φ = 0 the λ equal V₀, so that t is Student's and the bound is 5 %; for φ = .6 the spectrum
    falls over the first ν cosines (the mean of λ/V₀ is .85 at 60 steps) and the bound is about 7 %.
    """
    cosines, pairs = freedom_of(steps), series * (series - 1) // 2
    at = np.arange(steps)
    waves = [np.full(steps, 1 / math.sqrt(steps))]
    for j in range(1, cosines + 1):
        waves.append(math.sqrt(2 / steps) * np.cos(math.pi * j * (at + 0.5) / steps))
    covariance = np.array(waves) @ phi ** np.abs(at[:, None] - at) @ np.array(waves).T
    spectrum = np.linalg.eigvalsh(covariance[1:, 1:])
    chi2 = np.random.default_rng(0).chisquare(1, (200_000, cosines))
    estimate = (chi2 * spectrum).mean(axis=1) / covariance[0, 0]
    limit = stats.t.isf(ALPHA / 2 / pairs, cosines)
    return pairs * 2 * stats.norm.sf(limit * np.sqrt(estimate)).mean()


def within(bound, repeats=REPEATS):
    """Bound and three standard errors of its simulation."""
    return bound + 3 * math.sqrt(bound * (1 - bound) / repeats)


@pytest.mark.parametrize("series", [2, 4, 8])
@pytest.mark.parametrize("steps", [60, 120])
@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_equal_series_are_seldom_told_apart(series, steps, phi):
    """And the simultaneous intervals hold the truth as often, around any true differences."""
    bound = false_claims_bound(steps, series, phi)
    assert bound < (0.051 if phi == 0 else 0.08)
    rng = np.random.default_rng(series + steps)
    truth = np.arange(series) * 0.3
    claims = misses = 0
    for _ in range(REPEATS):
        noise = autoregressive(rng, steps, series, phi)
        claims += bool((compare_series(noise).p_KK <= ALPHA).any())
        found = compare_series(noise + truth)
        apart = truth[:, None] - truth
        misses += bool(((found.low_KK > apart) | (found.high_KK < apart)).any())
    assert claims / REPEATS <= within(bound)
    assert misses / REPEATS <= within(bound)


@pytest.mark.parametrize(("steps", "phi"), [(60, 0.8), (300, 0.8)])
def test_closely_related_steps_make_no_claims(steps, phi):
    """Cosines alone claim in 15 % of such runs; the AR(1) estimate beside them holds 5 %."""
    rng = np.random.default_rng(steps)
    claims = sum(
        bool((compare_series(autoregressive(rng, steps, 8, phi)).p_KK <= ALPHA).any())
        for _ in range(REPEATS)
    )
    assert claims / REPEATS <= within(0.05)


@pytest.mark.parametrize(("phi", "shift"), [(0.0, 1.0), (0.6, 2.0)])
def test_a_true_shift_is_found(phi, shift):
    """One series of six lies higher; all five pairs with it are found in most runs.

    At 60 steps the mean difference of two such series has the error √(2 V₀/60), V₀ = (1+φ)/(1−φ):
    .18 and .37, so the shift is 5.5 errors, against a limit of t₆ = 4.7 for 15 pairs, which Holm
    relaxes. 80 % is asked of any one pair.
    """
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(200):
        series = autoregressive(rng, 60, 6, phi)
        series[:, 3] += shift
        result = compare_series(series)
        found += any(result.claimed(3, k) == 1 for k in (0, 1, 2, 4, 5))
    assert found >= 160
