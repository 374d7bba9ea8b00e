"""Paired-seed statistics: derived goldens, slow references, and calibration by simulation.

Bounds on a simulated share are its expectation ± 4 binomial standard errors: a right
implementation fails such a test with probability 6e-5.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from dfsim.sim.stats import bootstrap as resample
from dfsim.sim.stats import paired, power, ranks

SIMULATIONS = 20_000


def normal(seeds, count=SIMULATIONS, seed=0, shift=0.0):
    return np.random.default_rng(seed).standard_normal((seeds, count)) + shift


def bound(share, count):
    return 4 * math.sqrt(share * (1 - share) / count)


def flips_alone(d_SF):
    """Raw sign-flip p of many comparisons; max-T over so many would mean nothing."""
    return paired.sign_flips(d_SF, np.random.default_rng(1)).p_F


def test_paired_t_is_scipys():
    d = normal(5, 7, shift=0.3)
    found = paired.paired_t(d, 0.1)
    slow = stats.ttest_1samp(d, 0.0)
    ends = slow.confidence_interval(0.9)
    np.testing.assert_allclose(found.p_F, slow.pvalue)
    np.testing.assert_allclose([found.low_F, found.high_F], [ends.low, ends.high])


def test_missing_pairs_are_left_out():
    d = normal(6, 2)
    d[[1, 4], 0] = np.nan
    found = paired.paired_t(d, 0.05)
    assert found.n_F.tolist() == [4, 6]
    assert found.p_F[0] == pytest.approx(stats.ttest_1samp(d[[0, 2, 3, 5], 0], 0.0).pvalue)
    flips = paired.sign_flips(d, np.random.default_rng(0))
    assert flips.smallest_F.tolist() == [2 / 16, 2 / 64]
    alone = paired.sign_flips(d[[0, 2, 3, 5], :1], np.random.default_rng(0))
    assert flips.p_F[0] == alone.p_F[0]


def test_sign_flip_by_hand():
    """|1+2+3| = 6 is reached by 2 of 8 sign vectors; |−1+2+3| = 4 by those and −(…): 4 of 8."""
    d = np.array([[1.0, -1.0, 0.0, 2.0], [2.0, 2.0, 0.0, 2.0], [3.0, 3.0, 0.0, 2.0]])
    found = paired.sign_flips(d, np.random.default_rng(0))
    assert found.p_F.tolist() == [2 / 8, 4 / 8, 1.0, 2 / 8]
    assert found.smallest_F.tolist() == [0.25] * 4


def test_max_t_is_the_slow_definition():
    d = normal(4, 5, seed=3, shift=0.5)

    def t(x):
        return np.abs(x.mean(axis=0)) / (x.std(axis=0, ddof=1) / 2)

    largest = [
        t(d * np.array(signs)[:, None]).max() for signs in itertools.product([1, -1], repeat=4)
    ]
    slow = [(np.array(largest) >= seen - 1e-9).mean() for seen in t(d)]
    np.testing.assert_allclose(paired.sign_flips(d, np.random.default_rng(0)).max_t_p_F, slow)


def test_equal_differences_have_no_spread():
    d = np.array([[0.1 + 0.2, 0.0, 5.0], [0.3, 0.0, 5.1], [0.3, 0.0, 5.0]])
    found = paired.paired_t(d, 0.05, step_F=np.array([0.0, 0.0, 3.3]))
    assert found.std_F.tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(found.p_F).all()
    assert paired.sign_flips(d, np.random.default_rng(0)).p_F.tolist() == [0.25, 1.0, 0.25]


def test_the_step_of_scores():
    """Coarse: two values in four scores; then all equal; a lone score; four different ones."""
    nan = np.nan
    scores = np.array(
        [[10.0, 1, nan, 1.0], [13.3, 1, 2, 1.1], [10.0, 1, nan, 2.0], [13.3, 1, nan, 5.0]]
    )
    assert paired.steps_of(scores) == pytest.approx([3.3, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("seeds", [3, 5])
def test_sign_flip_keeps_its_level_at_few_seeds(seeds):
    """With a continuous symmetric difference P(p ≤ k·2/2^n) = k·2/2^n exactly."""
    p = flips_alone(np.random.default_rng(2).standard_t(2, (seeds, SIMULATIONS)))
    for k in range(1, 2 ** (seeds - 1)):
        level = k * 2 / 2**seeds
        assert abs((p <= level + 1e-9).mean() - level) < bound(level, SIMULATIONS)
    assert p.min() >= 2 / 2**seeds


def test_sign_flip_is_uniform_from_ten_seeds():
    p = flips_alone(normal(10, 4_000, seed=4))
    assert stats.kstest(p, "uniform").pvalue > 1e-4  # steps of 1/512 are far below KS's 1/√4000


def test_sign_flip_by_chance_draws_agrees_with_all():
    d = normal(13, 3, seed=5, shift=0.3)
    exact = paired.sign_flips(d, np.random.default_rng(0)).p_F
    padded = np.vstack([d, np.full((1, 3), np.nan)])  # a fourteenth seed without a pair
    drawn = paired.sign_flips(padded, np.random.default_rng(0)).p_F
    for a, b in zip(exact, drawn, strict=True):
        assert abs(a - b) < bound(a, paired.FLIPS) + 2 / paired.FLIPS


@pytest.mark.parametrize("seeds", [3, 5, 12])
def test_paired_t_covers(seeds):
    found = paired.paired_t(normal(seeds, seed=6, shift=2.0), 0.05)
    assert abs(((found.low_F <= 2) & (found.high_F >= 2)).mean() - 0.95) < 0.02


@pytest.mark.parametrize("seeds", [3, 10])
def test_corrections_keep_the_familywise_level(seeds):
    """Eight methods against one baseline, none different: any rejection is a false one.

    Holm rejects something exactly if the smallest p times eight is at most α.
    """
    families = 1_500
    rng = np.random.default_rng(7)
    d = rng.standard_normal((families, seeds, 8)) - rng.standard_normal((families, seeds, 1))
    p = paired.paired_t(np.moveaxis(d, 0, 1).reshape(seeds, -1), 0.05).p_F.reshape(families, 8)
    assert np.mean(8 * p.min(axis=1) <= 0.05) < 0.05 + bound(0.05, families)
    max_t = np.array([paired.sign_flips(one, rng).max_t_p_F.min() for one in d])
    for level in (0.05, 0.25):
        assert np.mean(max_t <= level + 1e-9) < level + bound(level, families)


def test_corrections_by_hand():
    """Sorted .01 .02 .04 times 3, 2, 1: .03 .04 .04; a NaN is no member of the family."""
    p = np.array([0.04, np.nan, 0.01, 0.02])
    np.testing.assert_allclose(paired.adjusted(p, "holm"), [0.04, np.nan, 0.03, 0.04])
    np.testing.assert_allclose(paired.adjusted(p, "bh"), [0.04, np.nan, 0.03, 0.03])
    assert np.isnan(paired.adjusted(np.full(2, np.nan), "bh")).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.sampled_from(["holm", "bh"]))
def test_corrections_are_statsmodels(p_values, method):
    p = np.array(p_values)
    expected = multipletests(p, method={"bh": "fdr_bh"}.get(method, method))[1]
    np.testing.assert_allclose(paired.adjusted(p, method), expected, rtol=1e-12)


def test_equivalence_is_statsmodels():
    d = normal(6, 4, seed=8) * 0.4
    found = paired.equivalence_p(paired.paired_t(d, 0.05), 0.5)
    slow = [DescrStatsW(x).ttost_mean(-0.5, 0.5)[0] for x in d.T]
    np.testing.assert_allclose(found, slow)


def test_equivalence_keeps_its_level_at_the_margin():
    d = normal(8, seed=9) * 0.2 + 1.0
    p = paired.equivalence_p(paired.paired_t(d, 0.05), 1.0)
    assert abs((p <= 0.05).mean() - 0.05) < bound(0.05, SIMULATIONS)


@pytest.mark.parametrize("seeds", [2, 3, 5, 12])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 8])
def test_detectable_is_statsmodels(seeds, alpha):
    """Its solver stops early at three seeds and α .00625, where its answer has power .7988."""
    slow = TTestPower().solve_power(nobs=seeds, alpha=alpha, power=0.8)
    found = power.detectable(seeds, alpha, 0.8)
    assert found == pytest.approx(slow, rel=2e-3)
    assert power.power(found, seeds, alpha) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("seeds", [3, 8])
def test_detectable_is_found_as_often_as_said(seeds):
    effect = power.detectable(seeds, 0.05, 0.8)
    p = paired.paired_t(normal(seeds, seed=10, shift=effect), 0.05).p_F
    assert abs((p <= 0.05).mean() - 0.8) < bound(0.8, SIMULATIONS)


def test_seeds_needed_are_the_fewest():
    for effect in (0.3, 0.7, 1.5, 4.0):
        n = int(power.seeds_needed(effect, 0.05, 0.8))
        assert power.power(effect, n, 0.05) >= 0.8
        assert n == 2 or power.power(effect, n - 1, 0.05) < 0.8
    assert power.seeds_needed(math.inf, 0.05, 0.8) == 2
    assert power.seeds_needed(1e-6, 0.05, 0.8) == math.inf
    assert math.isnan(power.seeds_needed(math.nan, 0.05, 0.8))


def test_spread_interval_covers():
    std = normal(4, 5_000, seed=11).std(axis=0, ddof=1)
    ends = [power.spread_range(float(s), 3) for s in std]
    held = np.mean([r.low <= 1 <= r.high for r in ends])
    assert abs(held - 0.95) < bound(0.95, 5_000)


def slow_pooled(d_SM):
    values = sorted(v for row in d_SM for v in row if not math.isnan(v))
    cut = len(values) // 4
    middle = values[cut : len(values) - cut]
    wins = sum(1.0 if v > 0 else 0.5 if v == 0 else 0.0 for v in values)
    return sum(middle) / len(middle), wins / len(values)


def test_pooled_numbers_are_a_slow_loop():
    d = np.round(normal(5, 12, seed=12), 1).reshape(5, 3, 4)
    d[0, 1, 2] = np.nan
    d[1, 0, :] = 0.0
    iqm, wins = resample.interquartile_mean(d), resample.probability_of_improvement(d)
    for k in range(3):
        assert (iqm[k], wins[k]) == pytest.approx(slow_pooled(d[:, k]))
    assert iqm[0] == pytest.approx(stats.trim_mean(d[:, 0].ravel(), 0.25))


def test_bootstrap_of_three_seeds_is_all_27_resamples():
    """Percentile ends of d = 0, 1, 3: the 27 equally likely means, by hand."""
    d = np.array([[0.0], [1.0], [3.0]])
    found = resample.bootstrap(d, d[:, :, None], 0.2, 20_000, np.random.default_rng(0))
    means = [np.mean(x) for x in itertools.product([0.0, 1.0, 3.0], repeat=3)]
    slow = np.quantile(means, [0.1, 0.9], method="inverted_cdf")
    np.testing.assert_allclose(found.mean_2F[:, 0], slow)


def slow_studentized(x, count, seed):
    """Quantiles of (mean* − mean) / error*, in a plain loop over resamples of its own."""
    rng = np.random.default_rng(seed)
    t = []
    for _ in range(count):
        drawn = rng.choice(x, len(x))
        error = drawn.std(ddof=1) / math.sqrt(len(x))
        t.append((drawn.mean() - x.mean()) / error)
    error = x.std(ddof=1) / math.sqrt(len(x))
    return x.mean() - np.quantile(t, [0.975, 0.025]) * error


def test_bootstrap_is_studentized_from_fifteen():
    """As a slow one, within 4 Monte Carlo errors of a 2.5 % quantile (thrice, in a skewed tail)."""
    count = 20_000
    d = np.random.default_rng(13).exponential(size=(40, 1)) ** 2
    found = resample.bootstrap(d, d[:, :, None], 0.05, count, np.random.default_rng(0))
    assert found.kind == "studentized"
    slow = slow_studentized(d[:, 0], count, 1)
    quantile = math.sqrt(0.025 * 0.975 / count) / stats.norm.pdf(1.96)
    error = 12 * math.sqrt(2) * quantile * d.std() / math.sqrt(40)
    np.testing.assert_allclose(found.mean_2F[:, 0], slow, atol=error)
    low, high = found.mean_2F[:, 0] - d.mean()
    assert high > 1.5 * -low  # a skewed tail: further up than down
    beside = np.column_stack([d, 100 + d])  # columns do not disturb each other
    both = resample.bootstrap(beside, beside[:, :, None], 0.05, count, np.random.default_rng(0))
    np.testing.assert_allclose(both.mean_2F, found.mean_2F + np.array([0.0, 100.0]))


@pytest.mark.parametrize("skewed", [False, True])
def test_studentized_intervals_cover(skewed):
    """600 runs of 15: .95 less 2 points, less 3 binomial errors of .009."""
    rng = np.random.default_rng(21)
    d = rng.exponential(size=(15, 600)) - 1 if skewed else rng.standard_normal((15, 600))
    ends = resample.bootstrap(d, d[:, :, None], 0.05, 999, rng).mean_2F
    cover = ((ends[0] <= 0) & (ends[1] >= 0)).mean()
    assert 0.90 <= cover <= 0.98


def test_the_bootstrap_survives_what_does_not_vary():
    d = np.abs(normal(20, 2, seed=14)) + 1
    d[:, 1] = 2.0
    found = resample.bootstrap(d, d[:, :, None], 0.05, 500, np.random.default_rng(0))
    assert found.improve_2K.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert found.mean_2F[:, 1].tolist() == [2.0, 2.0]
    assert found.mean_2F[0, 0] < d[:, 0].mean() < found.mean_2F[1, 0]


def test_spearman_is_scipys():
    a, b = np.random.default_rng(15).integers(0, 4, (2, 6, 7)).astype(float)
    slow = [stats.spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(ranks.spearman(a, b), slow)
    assert np.isnan(ranks.spearman(np.ones((1, 4)), a[:1, :4])[0])


def test_rank_null_of_two_seeds_is_all_permutations():
    """Three methods, two seeds: the 6 × 6 relabellings, enumerated, bound the drawn p-values."""
    score = np.random.default_rng(16).standard_normal((2, 3, 2))
    pair = {ranks.ScorePair("a", "b"): (np.array([1.0, 0.0]), np.array([0.0, 1.0]))}
    (found,) = ranks.rank_stability(score, pair, np.random.default_rng(0))
    orders = [list(o) for o in itertools.permutations(range(3))]
    means = [(score[0][a] + score[1][b]) / 2 for a in orders for b in orders]
    rho = np.array([stats.spearmanr(m[:, 0], m[:, 1]).statistic for m in means])
    spread = np.array([np.ptp(m[:, 1]) for m in means])
    for p, slow in (
        (found.p, (rho <= found.correlation + 1e-9).mean()),
        (found.p_spread_second, (spread >= found.spread_second - 1e-9).mean()),
    ):
        assert abs(p - slow) < bound(slow, ranks.PERMUTATIONS) + 1e-3


def test_rank_p_values_are_uniform_if_methods_are_alike():
    rng = np.random.default_rng(17)
    pair = {ranks.ScorePair("a", "b"): (np.array([1.0, 0, 0]), np.array([0, 0.5, 0.5]))}
    found = []
    for _ in range(500):
        score = rng.standard_normal((3, 6, 3)) + rng.standard_normal((3, 6, 1))
        found.append(ranks.rank_stability(score, pair, rng, 199)[0])
    spreads = [r.p_spread_first for r in found]
    assert stats.kstest(spreads, "uniform").pvalue > 1e-4
    for level in (0.1, 0.3, 0.5):  # correlations of six methods tie, so p is at most too large
        assert np.mean([r.p <= level for r in found]) < level + bound(level, 500)


def test_leave_one_out_finds_the_benchmark_that_decides():
    base = np.array([[1.0, 1, 30], [2, 2, 20], [3, 3, 10]])
    score = np.stack([base, base + 0.1])
    found = ranks.leave_one_out(score, np.full(3, 1 / 3), ("a", "b", "c"), np.random.default_rng(0))
    assert found.first == "all but c"
    assert (found.correlation, found.median) == (-1.0, 1.0)
