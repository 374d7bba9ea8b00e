"""Segments against plain loops: reductions, the rounding that decides ties, advantages."""

from __future__ import annotations

import math
import statistics
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dfsim.traces.advantage import AdvantageConfig, advantages, live_groups
from dfsim.traces.ragged import (
    batch_sum,
    buckets,
    offsets_of,
    round_significant,
    segment_max,
    segment_mean,
    segment_min,
    segment_sum,
)

FEW = settings(max_examples=80, deadline=None, derandomize=True)

numbers = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 4))
ragged = st.lists(st.lists(numbers, max_size=12), max_size=9)
whole = st.lists(st.lists(st.integers(-(2**40), 2**40), max_size=6), max_size=9)


def flat(lists, dtype=np.float64):
    values = np.array([v for part in lists for v in part], dtype=dtype)
    return values, offsets_of(np.array([len(part) for part in lists], dtype=np.int64))


def loop(reduce, lists, empty):
    return [reduce(part) if part else empty for part in lists]


def mean(part):
    return math.fsum(part) / len(part)


@given(ragged)
@FEW
def test_offsets_cut_the_values_where_the_lists_ended(lists):
    values, offsets = flat(lists)
    assert [values[a:b].tolist() for a, b in pairwise(offsets)] == lists


@given(ragged)
@FEW
def test_float_reductions_equal_plain_loops(lists):
    values, offsets = flat(lists)
    np.testing.assert_allclose(
        segment_sum(values, offsets), loop(math.fsum, lists, 0.0), rtol=1e-12, atol=1e-8
    )
    np.testing.assert_allclose(
        segment_mean(values, offsets), loop(mean, lists, math.nan), rtol=1e-12, atol=1e-8
    )
    assert segment_max(values, offsets).tolist() == loop(max, lists, -math.inf)
    assert segment_min(values, offsets).tolist() == loop(min, lists, math.inf)


@given(whole)
@FEW
def test_integer_sums_are_exact_integers(lists):
    values, offsets = flat(lists, np.int64)
    sums = segment_sum(values, offsets)
    assert sums.dtype == np.int64
    assert sums.tolist() == [sum(part) for part in lists]


@given(st.lists(st.lists(st.booleans(), max_size=5), max_size=9))
@FEW
def test_a_sum_of_booleans_counts_them(lists):
    values, offsets = flat(lists, np.bool_)
    assert segment_sum(values, offsets).tolist() == [sum(part) for part in lists]


@given(st.integers(0, 2**32 - 1))
@FEW
def test_a_sum_depends_on_its_own_segment_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 300, 8)
    values = rng.normal(size=int(lengths.sum())) * 10.0 ** rng.integers(-8, 9, int(lengths.sum()))
    offsets = offsets_of(lengths)
    together = segment_sum(values, offsets)
    for i, (a, b) in enumerate(pairwise(offsets)):
        alone = values[a:b].copy()
        assert segment_sum(alone, offsets_of(np.array([b - a])))[0] == together[i]


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_nothing_to_reduce(lengths):
    values, offsets = np.zeros(0), offsets_of(np.array(lengths, dtype=np.int64))
    assert segment_sum(values, offsets).tolist() == [0.0] * len(lengths)
    assert np.isnan(segment_mean(values, offsets)).all()
    assert segment_max(values, offsets).tolist() == [-math.inf] * len(lengths)
    assert segment_min(values, offsets).tolist() == [math.inf] * len(lengths)
    assert len(segment_mean(values, offsets)) == len(lengths)


@given(ragged)
@FEW
def test_buckets_hold_every_row_once_in_segments_of_one_length(lists):
    values, offsets = flat(lists)
    found = buckets(offsets)
    segments = np.concatenate([b.segments for b in found]) if found else np.zeros(0)
    assert sorted(segments.tolist()) == list(range(len(lists)))
    assert [b.size for b in found] == sorted({len(part) for part in lists})
    for bucket in found:
        for segment, rows in zip(bucket.segments, bucket.rows, strict=True):
            assert values[rows].tolist() == lists[segment]


@given(st.lists(st.floats(-1e12, 1e12), max_size=40), st.integers(0, 2**32 - 1))
@FEW
def test_a_batch_sum_does_not_depend_on_row_order(values, seed):
    array = np.array(values, dtype=np.float64)
    shuffled = np.random.default_rng(seed).permutation(array)
    assert batch_sum(array) == batch_sum(shuffled)
    assert batch_sum(array) == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-2)


def six_digits(x: float) -> float:
    return float(f"{x:.5e}")


def far_from_half(x: float) -> bool:
    """Whether the seventh and later digits are clearly above or below one half."""
    exact = abs(Decimal(x))
    if not exact:
        return True
    scaled = exact.scaleb(5 - exact.adjusted())
    return abs(scaled % 1 - Decimal("0.5")) > Decimal("1e-6")


any_size = st.builds(
    lambda mantissa, exponent: mantissa * 10.0**exponent,
    st.floats(-9.999999, 9.999999),
    st.integers(-250, 250),
)


@given(any_size)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_rounding_is_that_of_six_printed_digits(x):
    assume(abs(x) > 1e-290 and far_from_half(x))
    rounded, wanted = float(round_significant(np.array([x]))[0]), six_digits(x)
    assert abs(rounded - wanted) <= abs(np.spacing(wanted))


@given(st.lists(any_size, min_size=2, max_size=8), st.integers(0, 2**32 - 1))
@FEW
def test_scores_are_tied_when_their_six_digits_are(values, seed):
    nudges = 1 + np.random.default_rng(seed).normal(size=len(values)) * 1e-7
    array = np.concatenate([values, np.array(values) * nudges])
    assume(all(abs(x) > 1e-290 and far_from_half(x) for x in array.tolist()))
    rounded = round_significant(array)
    printed = [six_digits(x) for x in array.tolist()]
    for i in range(len(array)):
        for j in range(i):
            assert (rounded[i] == rounded[j]) == (printed[i] == printed[j])


@given(st.lists(any_size, max_size=20))
@FEW
def test_rounding_twice_changes_nothing_and_keeps_signs_and_order(values):
    array = np.sort(np.array(values, dtype=np.float64))
    once = round_significant(array)
    assert round_significant(once).tolist() == once.tolist()
    assert round_significant(-array).tolist() == (-once).tolist()
    assert (np.diff(once) >= 0).all()


def test_what_has_no_six_digits_passes_through():
    odd = np.array([0.0, math.inf, -math.inf, math.nan, 1e-300, 1e300, 5e-324])
    np.testing.assert_array_equal(round_significant(odd), odd)
    mixed = round_significant(np.array([math.nan, 1.23456789, math.inf]))
    np.testing.assert_array_equal(mixed, [math.nan, 1.23457, math.inf])


@given(st.lists(st.integers(-(10**6), 10**6), max_size=20))
@FEW
def test_whole_numbers_of_six_digits_are_kept(values):
    array = np.array(values, dtype=np.int64)
    assert round_significant(array).tolist() == [float(v) for v in values]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (9.999999, 10.0),
        (999999.6, 1e6),
        (0.1 + 0.2, 0.3),
        (1000.004, 1000.0),
        (1 / 3, 0.333333),
        (-2 / 3, -0.666667),
        (1.2345674e-9, 1.23457e-9),
    ],
)
def test_known_roundings(value, wanted):
    assert round_significant(np.array([value]))[0] == wanted


@pytest.mark.parametrize("power", [-141, -35, -1, 1, 12, 23, 199])
def test_digits_that_carry_tie_with_the_power_of_ten(power):
    # 10⁶/10⁴⁰ is not 10⁵/10³⁹ in floats, so both must take the same road
    below, above = round_significant(np.array([9.9999996, 10.0]) * 10.0**power)
    assert below == above


def group_loop(rewards: list[float], config: AdvantageConfig) -> list[float]:
    kept = [r for r in rewards if not math.isnan(r)]
    n = len(kept)
    if n == 1 and len(rewards) > 1:
        return [0.0] * len(rewards)  # nothing remains to compare it with (TRL#5773: all 0)
    if n == 1:
        scale = 1 / (1 + config.eps) if config.adv_estimator == "grpo" else 1.0
        return [0.0 if math.isnan(r) else r * scale for r in rewards]
    if n == 0 or max(kept) - min(kept) <= 1e-6:
        return [0.0] * len(rewards)
    out = []
    for r in rewards:
        others = (math.fsum(kept) - r) / (n - 1)
        a = r - statistics.fmean(kept)
        if config.adv_estimator == "grpo":
            a /= statistics.stdev(kept) + config.eps
        elif config.adv_estimator == "rloo":
            a = r - others
        out.append(0.0 if math.isnan(r) else a)
    return out


ESTIMATORS = [AdvantageConfig(e, eps) for e in ("grpo", "dr_grpo", "rloo") for eps in (1e-6, 1e-4)]
graded = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, math.nan]), st.floats(-9, 9).map(lambda x: round(x, 2))
)


@given(st.lists(st.lists(graded, min_size=1, max_size=9), max_size=6), st.sampled_from(ESTIMATORS))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_advantages_equal_a_plain_loop(groups, config):
    reward = np.array([r for g in groups for r in g], dtype=np.float64)
    offsets = offsets_of(np.array([len(g) for g in groups], dtype=np.int64))
    wanted = [a for g in groups for a in group_loop(g, config)]
    np.testing.assert_allclose(advantages(reward, offsets, config), wanted, rtol=1e-9, atol=1e-12)


def of_group(rewards: Any, estimator: str = "grpo", eps: float = 1e-6) -> Any:
    array = np.asarray(rewards, dtype=np.float64)
    return advantages(array, np.array([0, len(array)]), AdvantageConfig(estimator, eps))


@pytest.mark.parametrize(
    ("rewards", "estimator", "eps", "wanted"),
    [
        ([1, 0, 0, 0], "grpo", 1e-9, [1.5, -0.5, -0.5, -0.5]),
        ([1, 0, 0, 0], "dr_grpo", 1e-6, [0.75, -0.25, -0.25, -0.25]),
        ([1, 0, 0, 0], "rloo", 1e-6, [1, -1 / 3, -1 / 3, -1 / 3]),
        ([0, 1], "grpo", 1e-9, [-math.sqrt(0.5), math.sqrt(0.5)]),
        ([0, 0.01], "grpo", 1e-9, [-math.sqrt(0.5), math.sqrt(0.5)]),
        # TRL's eps, rewards that a scorer left out: issue TRL#5773
        (
            [1, 0, math.nan, math.nan, 1, 0, 0, 1],
            *("grpo", 1e-4),
            [0.9127, -0.9127, 0, 0, 0.9127, -0.9127, -0.9127, 0.9127],
        ),
        # a shaped reward, as NeMo-RL#2431 reports it
        ([-1] * 6 + [-1.5, -2], "grpo", 1e-6, [0.504] * 6 + [-0.840, -2.184]),
        ([1, 1.00001], "grpo", 1e-6, [-0.6195, 0.6195]),  # eps matters: verl#6348
    ],
)
def test_known_advantages(rewards, estimator, eps, wanted):
    np.testing.assert_allclose(of_group(rewards, estimator, eps), wanted, atol=2e-4)


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
@pytest.mark.parametrize(
    "rewards",
    [
        [0.1] * 6,
        np.full(12, 0.9, dtype=np.float32),
        [0.1 + 0.2, 0.3, 0.3],
        [1e9, 1e9, 1e9],
        [-0.25] * 5,
        [0.0] * 8,
        [math.nan, 0.7, 0.7],
        [math.nan] * 4,
    ],
)
def test_a_constant_group_has_advantage_exactly_zero(rewards, estimator):
    assert of_group(rewards, estimator).tolist() == [0.0] * len(rewards)


def test_the_residue_that_makes_a_zero_test_unsafe_is_real():
    assert np.std([0.1] * 6, ddof=1) > 0
    assert np.std(np.full(12, 0.9, dtype=np.float32), ddof=1) > 0


def test_a_group_of_one_is_its_own_reward_as_in_verl():
    assert of_group([0.7], "grpo")[0] == pytest.approx(0.7 / (1 + 1e-6), rel=1e-15)
    assert of_group([0.7], "dr_grpo").tolist() == [0.7]
    assert of_group([-2.0], "rloo").tolist() == [-2.0]


def test_groups_of_equal_rewards_side_by_side_do_not_mix():
    reward = np.repeat([0.0, 1.0, 2.0, 3.0], 8)
    offsets = np.arange(0, 33, 8)
    assert not advantages(reward, offsets, AdvantageConfig()).any()
    assert not live_groups(reward, offsets).any()


def test_liveness_ignores_missing_rewards_and_float_noise():
    reward = np.array([1, math.nan, 0, 1, math.nan, 1, math.nan, 0.3, 0.1 + 0.2, 0, 2e-6])
    offsets = np.array([0, 3, 6, 7, 9, 11])
    assert live_groups(reward, offsets).tolist() == [True, False, False, False, True]
    assert live_groups(reward, offsets, reward_tol=3e-6).tolist() == [True] + [False] * 4


def test_verls_own_advantages_of_a_real_run_are_recomputed(bundled):
    steps = 0
    for batch in bundled.batches(["advantage"]):
        mine = advantages(batch.reward_N, batch.group_offsets, AdvantageConfig())
        np.testing.assert_allclose(mine, batch.advantage_N, atol=2e-6)
        steps += 1
    assert steps == 60


def test_trls_own_advantages_of_a_real_run_are_recomputed(shared):
    frame = pl.read_parquet(shared / "trl_run" / "*.parquet")
    reward = frame["correctness_reward"].to_numpy()
    offsets = np.arange(0, frame.height + 1, 6)  # 300 steps of one group of six
    mine = advantages(reward, offsets, AdvantageConfig(eps=1e-4))
    np.testing.assert_allclose(mine, frame["advantage"].to_numpy(), atol=2e-7)
    assert len(offsets) == 301
    assert (~live_groups(reward, offsets)).sum() == 189
