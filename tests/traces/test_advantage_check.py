"""Stored advantages held against rewards and groups: every estimator, every cause, by hand."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfsim.traces.checks.advantages import AdvantageCheck, check_groups, contradictions, count_draws
from dfsim.traces.ragged import offsets_of

GROUPS = [[1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0], [0.2, 0.9, 0.4], [1, 1, 1, 1], [2, -1]]


def by_formula(estimator, groups, eps=0.0, std=statistics.stdev):
    """Advantages of each group, from the estimators' definitions."""
    everything = [r for group in groups for r in group]
    out = []
    for group in groups:
        mean, n = statistics.fmean(group), len(group)
        spread = std(group)
        scale = {
            "grpo": 1.0 / (spread + eps) if spread else 0.0,
            "dr_grpo": 1.0,
            "rloo": n / (n - 1),
            "grpo_batch": 1.0 / (std(everything) + eps),
        }[estimator]
        out.append([(r - mean) * scale for r in group])
    return out


def flat(groups):
    return np.array([x for group in groups for x in group], dtype=np.float64)


def cuts(groups):
    return offsets_of(np.array([len(group) for group in groups]))


def report(groups, advantages, others=None, preferred=None):
    check = AdvantageCheck(preferred)
    check.add(flat(groups), flat(advantages), cuts(groups), others)
    return check.report()


def names(report, named=None):
    return [finding.name for finding in contradictions(report, named)]


# What fits


@pytest.mark.parametrize(
    ("estimator", "eps", "std", "ddof"),
    [
        ("grpo", 1e-6, statistics.stdev, 1),
        ("grpo", 1e-4, statistics.stdev, 1),
        ("grpo", 1e-6, statistics.pstdev, 0),
        ("dr_grpo", 0.0, statistics.stdev, 1),
        ("rloo", 0.0, statistics.stdev, 1),
        ("grpo_batch", 1e-4, statistics.stdev, 1),
        ("grpo_batch", 1e-4, statistics.pstdev, 0),
    ],
)
def test_each_estimator_is_told_by_its_formula(estimator, eps, std, ddof):
    told = report(GROUPS, by_formula(estimator, GROUPS, eps, std))
    assert (told.verdict, told.live, told.broken, told.error < 1e-9) == ("fits", 4, 0, True)
    config = told.config
    assert config.adv_estimator == estimator
    if eps:
        assert (config.eps, config.ddof) == (eps, ddof)
    assert names(told) == []
    assert names(told, named="grpo") == ([] if estimator == "grpo" else ["estimator_differs"])


def test_a_group_of_four_by_hand():
    # r = 1 0 0 0: mean 1/4, Bessel's s = 1/2; so A = 3/2, -1/2 by grpo and 1, -1/3 by rloo
    test = check_groups(flat(GROUPS[:1]), np.array([1.5, -0.5, -0.5, -0.5]), cuts(GROUPS[:1]))
    assert test.slope_G.tolist() == [pytest.approx(2.0)]
    test = check_groups(flat(GROUPS[:1]), np.array([1, -1 / 3, -1 / 3, -1 / 3]), cuts(GROUPS[:1]))
    assert test.slope_G.tolist() == [pytest.approx(4 / 3)]
    assert test.correlation_G.tolist() == [pytest.approx(1.0)]


@pytest.mark.parametrize("digits", [3, 4])
def test_rounded_advantages_still_fit(digits):
    stored = [[round(a, digits) for a in g] for g in by_formula("grpo", GROUPS)]
    told = report(GROUPS, stored)
    assert (told.verdict, told.config.adv_estimator) == ("fits", "grpo")
    assert told.error < 2 * 10.0**-digits


def test_advantages_of_bfloat16_still_fit():
    # eight bits of significand: the relative error is at most 2 ** -9
    def rounded(x):
        mantissa, exponent = math.frexp(x)
        return math.ldexp(round(mantissa * 256) / 256, exponent)

    stored = [[rounded(a) for a in g] for g in by_formula("rloo", GROUPS)]
    told = report(GROUPS, stored)
    assert (told.verdict, told.config.adv_estimator) == ("fits", "rloo")


def test_a_scale_of_its_own_is_linear_and_of_no_known_estimator():
    stored = [[3.7 * a for a in g] for g in by_formula("dr_grpo", GROUPS)]
    told = report(GROUPS, stored)
    assert (told.verdict, told.config) == ("scaled", None)
    assert names(told, named="grpo") == []


def test_groups_without_a_difference_tell_nothing():
    told = report([[1, 1], [0, 0, 0]], [[0, 0], [0, 0, 0]])
    assert (told.verdict, told.live) == ("untold", 0)
    assert names(told) == []


def test_a_reward_that_is_missing_takes_no_part():
    reward, stored = [[1, 0, math.nan, 0]], [[1.1547005, -0.5773503, 0.0, -0.5773503]]
    told = report(reward, stored)  # mean 1/3, s = 1/sqrt(3): A = 2/sqrt(3), -1/sqrt(3)
    assert (told.verdict, told.config.adv_estimator) == ("fits", "grpo")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(-8, 8).map(lambda k: k / 4), min_size=2, max_size=9),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(["grpo", "dr_grpo", "rloo", "grpo_batch"]),
)
def test_the_estimator_that_is_adopted_gives_the_stored_advantages(groups, estimator):
    if all(len(set(group)) == 1 for group in groups):
        return
    stored = by_formula(estimator, groups)
    told = report(groups, stored)
    assert told.verdict == "fits"
    config = told.config
    std = statistics.stdev if config.ddof else statistics.pstdev
    again = by_formula(config.adv_estimator, groups, config.eps, std)
    assert flat(again) == pytest.approx(flat(stored), rel=1e-2, abs=1e-9)


# What does not


def test_two_groups_under_one_id_differ_at_equal_rewards():
    reward = [[1, 0, 0, 0, 1, 1, 1, 0]]
    stored = [[1.5, -0.5, -0.5, -0.5, 0.5, 0.5, 0.5, -1.5]]
    told = report(reward, stored)
    # r and A around their means 1/2 and 0: r·A = 3, r·r = 2, A·A = 6
    assert told.correlation == pytest.approx(3 / math.sqrt(12))
    assert (told.verdict, told.cause, told.broken, told.unequal) == ("mismatch", "groups", 1, 1.0)
    assert names(told, named="grpo") == ["advantage_mismatch"]
    assert count_draws(flat(reward), flat(stored)) == 2


def test_a_group_that_was_split_has_advantages_where_rewards_agree():
    told = report([[1, 1], [0, 0]], [[0.866, 0.866], [-0.866, -0.866]])
    assert (told.verdict, told.live, told.broken) == ("mismatch", 0, 2)
    assert names(told) == ["advantage_mismatch"]


def test_advantages_of_another_baseline_are_linear_and_not_centred():
    # REINFORCE with the mean of the step, 1/3, as its baseline
    told = report([[1, 0, 0], [1, 1, 0], [0, 0, 0]], [[2 / 3, -1 / 3, -1 / 3]] * 1 + [
        [2 / 3, 2 / 3, -1 / 3], [-1 / 3] * 3])  # fmt: skip
    assert (told.verdict, told.linear, told.unequal) == ("mismatch", 1.0, 0.0)
    assert told.centred == 0.5  # the first group's own mean is 1/3 too
    assert told.broken == 2  # the second, and the third, whose rewards agree


def test_another_column_that_fits_is_named():
    told = report(
        [[0.3, 0.9, 0.5, 0.1], [0.7, 0.2, 0.6, 0.4]],
        by_formula("grpo", [[1, 0, 0, 1], [0, 1, 1, 0]]),
        {"acc": np.array([1.0, 0, 0, 1, 0, 1, 1, 0]), "length": np.arange(8.0)},
    )
    assert (told.verdict, told.cause, told.explained_by) == ("mismatch", "reward_column", "acc")


def test_a_wrong_column_without_a_right_one_is_told_by_its_correlation():
    stored = by_formula("grpo", [[1, 0, 0, 1], [0, 1, 1, 0]])
    told = report([[1, 2, 3, 4], [3, 1, 4, 2]], stored)
    # A is ±.866; around their means r·A is 0 in the first group, and 0 in the second
    assert told.correlation == pytest.approx(0.0, abs=1e-12)
    assert (told.verdict, told.cause) == ("mismatch", "reward_column")


def test_noise_beyond_the_tolerance_is_no_estimator():
    stored = by_formula("grpo", GROUPS)
    stored[2][0] += 0.05
    told = report(GROUPS, stored)
    assert (told.verdict, told.broken) == ("mismatch", 1)


# Zeros


def test_advantages_that_are_all_0_are_not_the_runs_own():
    told = report(GROUPS, [[0.0] * len(g) for g in GROUPS])
    assert (told.verdict, told.live, told.zero, told.broken) == ("zero", 4, 4, 0)
    assert names(told, named="grpo") == ["advantages_zero"]


def test_some_zeros_are_said_beside_the_estimator_that_the_others_fit():
    stored = by_formula("grpo", GROUPS)
    stored[0] = [0.0] * 4
    told = report(GROUPS, stored)
    assert (told.verdict, told.zero, told.config.adv_estimator) == ("fits", 1, "grpo")
    assert names(told) == ["advantages_zero"]


# Draws


@pytest.mark.parametrize("draws", [2, 3, 4])
def test_draws_are_counted_by_their_advantages(draws):
    groups = [[1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]][:draws]
    stored = by_formula("dr_grpo", groups)
    assert count_draws(flat(groups), flat(stored)) == draws


def test_a_whole_group_is_one_draw_and_so_is_what_nothing_explains():
    whole = [[1, 0, 0, 0, 1, 1]]
    assert count_draws(flat(whole), flat(by_formula("grpo", whole))) == 1
    assert count_draws(flat(whole), np.array([3.0, 1, -2, 5, 0, 1])) == 1
