"""Intervals: resampling groups inside steps, blocks of steps, and what is left out of both."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from made import solved_trace, trace_of

import dfsim
from dfsim.sim.stats.intervals import (
    MIN_FUTURE_STEPS,
    Mean,
    block_weights,
    group_counts,
    interval,
    variation,
)
from dfsim.traces.synthetic import binary_steps

values_or_nan = st.one_of(st.floats(-100, 100), st.just(math.nan))


@pytest.fixture(scope="module")
def varied(bundled):
    return dfsim.replay(bundled, ["softmax", "per", "gfpo@paper"], resamples=20)


# Groups


@given(st.integers(1, 30), st.integers(2, 20), st.integers(0, 9), st.integers(0, 1000))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_a_resample_holds_as_many_groups_as_the_step(groups, resamples, seed, step):
    counts = group_counts(groups, resamples, seed, step)
    assert counts.shape == (resamples, groups)
    assert (counts.sum(axis=1) == groups).all()
    assert np.array_equal(counts, group_counts(groups, resamples, seed, step))


def test_resamples_differ_between_steps_and_seeds():
    first = group_counts(50, 4, 0, 1)
    assert not np.array_equal(first, group_counts(50, 4, 0, 2))
    assert not np.array_equal(first, group_counts(50, 4, 1, 1))


def test_group_counts_have_the_bootstrap_s_moments():
    """Multinomial: each count has mean 1 and variance 1 − 1/G."""
    counts = group_counts(20, 4000, 0, 1)
    assert counts.mean(axis=0) == pytest.approx(np.ones(20), abs=5 / math.sqrt(4000))
    assert counts.var(axis=0).mean() == pytest.approx(1 - 1 / 20, rel=0.03)


def test_interval_of_the_live_share_has_the_binomial_width(tmp_path):
    """Steps are fixed, groups drawn: variance Σ p_t(1−p_t)/G over S² steps."""
    steps, groups = 6, 40
    solved = [[1] * (5 + 3 * t) + [0] * (groups - 5 - 3 * t) for t in range(steps)]
    share = np.array([(5 + 3 * t) / groups for t in range(steps)])
    error = math.sqrt((share * (1 - share)).sum() / groups) / steps
    trace = solved_trace(tmp_path, solved, 4)
    got = dfsim.replay(trace, ["none"], resamples=2000).strategies["none"]
    live = got.estimates["live_group_frac"]
    assert live.mean == pytest.approx(share.mean())
    assert (live.high - live.low) / (2 * 1.96) == pytest.approx(error, rel=0.08)
    assert (live.high + live.low) / 2 == pytest.approx(live.mean, abs=0.3 * error)
    early = got.by_phase["early"]["live_group_frac"]
    expected = math.sqrt((share[:2] * (1 - share[:2])).sum() / groups) / 2
    assert (early.high - early.low) / (2 * 1.96) == pytest.approx(expected, rel=0.1)


def test_what_no_resample_can_change_has_no_width(tmp_path):
    got = dfsim.replay(solved_trace(tmp_path, [[1, 2, 0]] * 3, 4), ["none"], resamples=20)
    groups = got.strategies["none"].estimates["num_groups"]
    assert (groups.low, groups.mean, groups.high) == (3.0, 3.0, 3.0)
    largest = got.strategies["none"].estimates["weight_max"]
    assert math.isnan(largest.low)
    assert "maximum" in largest.reason


# Steps


@given(st.integers(12, 90), st.integers(0, 5))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_future_has_as_many_steps_as_the_run(steps, seed):
    weights = block_weights(steps, 7, seed)
    assert weights.shape == (7, steps)
    assert (weights.sum(axis=1) == steps).all()


@pytest.mark.parametrize("steps", [1, MIN_FUTURE_STEPS - 1])
def test_few_steps_say_nothing_of_the_future(steps):
    assert MIN_FUTURE_STEPS == 12
    assert block_weights(steps, 5, 0) is None


@pytest.mark.parametrize(("steps", "length"), [(12, 2), (27, 3), (60, 4), (64, 4), (125, 5)])
def test_steps_come_in_blocks_of_the_cube_root(steps, length):
    """Whole blocks: from the left, what starts at a step is its count less what runs on."""
    drawn = block_weights(steps, 40, 3).astype(int)
    assert [_blocks(row, length) for row in drawn] == [steps // length] * 40
    assert sum(_blocks(row, length + 1) is not None for row in drawn) < 5


def _blocks(row, length):
    starts = []
    for i, count in enumerate(row):
        new = count - sum(starts[max(0, i - length + 1) : i])
        if new < 0 or (new and i + length > len(row)):
            return None
        starts.append(new)
    return sum(starts)


def test_futures_of_unrelated_steps_spread_like_their_mean():
    rng = np.random.default_rng(0)
    series = rng.normal(size=400)
    means = block_weights(400, 3000, 1) @ series / 400
    assert means.std() == pytest.approx(series.std() / 20, rel=0.25)


def test_futures_of_related_steps_spread_wider():
    """AR(1) with φ = .8: the mean's variance is (1+φ)/(1−φ) = 9 times that of unrelated steps."""
    rng = np.random.default_rng(0)
    series = np.zeros(2000)
    for t in range(1, 2000):
        series[t] = 0.8 * series[t - 1] + rng.normal()
    means = block_weights(2000, 1000, 1) @ series / 2000
    assert means.std() > 2 * series.std() / math.sqrt(2000)


def test_future_intervals_need_twelve_steps_each(tmp_path):
    for steps, there in ((11, False), (12, True)):
        trace = solved_trace(tmp_path / str(steps), [[1, 2, t % 2] for t in range(steps)], 4)
        result = dfsim.replay(trace, ["none"], resamples=20).strategies["none"]
        live = result.estimates["live_group_frac"]
        assert math.isnan(live.future_low) is not there
        assert (live.reason is None) is there
        if not there:
            assert "11 steps, 12 are needed" in live.reason
        early = result.by_phase["early"]["live_group_frac"]
        assert math.isnan(early.future_high)


def test_each_phase_has_the_future_of_its_own_steps(tmp_path):
    solved = [[1, 1]] * 12 + [[1, 0]] * 12 + [[0, 0]] * 12
    trace = solved_trace(tmp_path, solved, 4)
    phases = dfsim.replay(trace, ["none"], resamples=20).strategies["none"].by_phase
    for name, share in (("early", 1.0), ("middle", 0.5), ("late", 0.0)):
        live = phases[name]["live_group_frac"]
        assert (live.future_low, live.mean, live.future_high) == (share, share, share)


def test_the_future_interval_is_the_quantiles_of_block_means(tmp_path):
    steps = binary_steps({"a": 0.2}, steps=27, groups_per_domain=12, n=4, seed=2)
    result = dfsim.replay(trace_of(tmp_path, steps), ["none"], resamples=300, seed=4)
    whole = result.steps().filter(pl.col("domain").is_null())
    series = whole["live_group_frac"].to_numpy()
    rng = np.random.default_rng(4)
    starts = rng.integers(0, 27 - 3 + 1, (300, 9))
    means = [np.concatenate([series[s : s + 3] for s in row]).mean() for row in starts]
    got = result.strategies["none"].estimates["live_group_frac"]
    assert (got.future_low, got.future_high) == pytest.approx(
        tuple(np.quantile(means, [0.025, 0.975]))
    )


# Sums and quantiles


@given(hnp.arrays(float, (3, 2, 11), elements=values_or_nan))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_interval_is_the_central_quantiles_of_what_is_known(resampled):
    for axis in range(3):
        low, high = interval(resampled, axis)
        rows = np.moveaxis(resampled, axis, -1)
        for place in np.ndindex(*rows.shape[:-1]):
            known = rows[place][~np.isnan(rows[place])]
            if len(known) == 0:
                assert math.isnan(low[place])
                assert math.isnan(high[place])
            else:
                expected = np.percentile(known, [2.5, 97.5])
                assert (low[place], high[place]) == pytest.approx(tuple(expected))


@given(hnp.arrays(float, (9, 2), elements=values_or_nan))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_mean_leaves_out_what_is_nan(series):
    running, half = Mean((2,)), Mean((2,))
    for row in series[:4]:
        half.add(row)
    for row in series[4:]:
        running.add(row)
    running += half
    for column in range(2):
        known = series[:, column][~np.isnan(series[:, column])]
        expected = known.mean() if len(known) else math.nan
        assert running.mean()[column] == pytest.approx(expected, abs=1e-9, nan_ok=True)


@given(hnp.arrays(float, 12, elements=st.one_of(st.floats(0.5, 3), st.just(math.nan))))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_variation_is_std_over_mean_of_the_drawn_steps(series):
    weights = np.vstack([np.ones(12), block_weights(12, 5, 0)])
    got = variation(series[:, None], weights)[:, 0]
    for row, value in zip(weights.astype(int), got, strict=True):
        drawn = np.repeat(series, row)
        drawn = drawn[~np.isnan(drawn)]
        expected = drawn.std(ddof=1) / drawn.mean() if len(drawn) > 1 else math.nan
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-7, nan_ok=True)


def test_variation_of_equal_values_is_nothing():
    assert variation(np.full((60, 1), 0.1 + 0.2), np.ones((1, 60)))[0, 0] < 1e-15


def test_signal_scale_cv_is_std_over_mean_of_the_steps(varied):
    whole = varied.steps().filter(pl.col("domain").is_null())
    for name in ("softmax", "per", "gfpo@paper"):
        scale = whole.filter(strategy=name)["signal_scale"].to_numpy()
        got = varied.strategies[name].estimates["signal_scale_cv"]
        assert got.mean == pytest.approx(scale.std(ddof=1) / scale.mean(), rel=1e-9)
        assert math.isnan(got.low)
        assert "noise inside a step" in got.reason
        assert got.future_low < got.future_high


def test_equal_steps_do_not_vary(tmp_path):
    trace = solved_trace(tmp_path, [[1, 2, 3, 0]] * 13, 8)
    got = dfsim.replay(trace, ["softmax"], resamples=5).strategies["softmax"]
    cv = got.estimates["signal_scale_cv"]
    assert (cv.mean, cv.future_high) == pytest.approx((0, 0), abs=1e-12)


def test_the_same_seed_gives_the_same_interval_and_another_does_not(bundled):
    def low(seed):
        result = dfsim.replay(bundled, ["none"], resamples=10, seed=seed)
        return result.strategies["none"].estimates["effective_batch"].low

    assert low(0) == low(0) != low(1)
