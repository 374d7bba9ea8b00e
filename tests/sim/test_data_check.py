"""Truncation and policy lag: what is counted, by hand, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest

import dfsim
from dfsim.sim.replay.data_check import PolicyLag, Truncation


def step_of(number, groups, **columns):
    """A step of groups of rewards; other columns one value a response."""
    uids = [f"g{g}" for g, rewards in enumerate(groups) for _ in rewards]
    rewards = [r for group in groups for r in group]
    return dfsim.from_columns({"step": number, "group_uid": uids, "reward": rewards, **columns})


def names(part):
    return [finding.name for finding in part.findings()]


# Truncation

GROUPS = [[1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]
ENDED = [0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0]
LENGTHS = [3, 9, 9, 2, 1, 9, 4, 4, 9, 1, 1, 2]


def test_responses_tokens_and_live_groups_that_end_by_length():
    seen = Truncation()
    assert seen.add(step_of(1, GROUPS, truncated=ENDED, num_tokens=LENGTHS), None)
    assert (seen.frac, seen.token_frac) == (4 / 12, 36 / 54)
    # the first group fails only by length, the second also by an answer that ended
    assert (seen.live, seen.live_by_length) == (2, 1)
    assert names(seen) == ["truncated"]


def test_a_limit_of_the_run_says_it_where_no_reason_is_logged():
    seen = Truncation()
    assert seen.add(step_of(1, GROUPS, num_tokens=LENGTHS), 9)
    assert (seen.truncated, seen.truncated_tokens, seen.live_by_length) == (4, 36, 1)


def test_without_a_reason_or_a_limit_nothing_is_claimed():
    assert not Truncation().add(step_of(1, GROUPS, num_tokens=LENGTHS), None)
    assert not Truncation().add(step_of(1, GROUPS), 9)


def test_without_lengths_the_share_of_tokens_is_unknown():
    seen = Truncation()
    seen.add(step_of(1, GROUPS, truncated=ENDED), None)
    assert np.isnan(seen.token_frac)
    (found,) = seen.findings()
    assert found.to_dict()["evidence"]["token_frac"] is None


@pytest.mark.parametrize(("ended", "said"), [(0, []), (1, []), (2, ["truncated"])])
def test_a_twentieth_is_where_it_starts(ended, said):
    # 32 responses, none of the truncated ones below its group's best alone
    seen = Truncation()
    flags = [1] * ended + [0] * (32 - ended)
    seen.add(step_of(1, [[1, 0, 0, 0]] * 8, truncated=flags), None)
    assert names(seen) == said


def test_a_truncated_response_that_is_right_fails_nobody():
    seen = Truncation()
    seen.add(step_of(1, [[1, 0]], truncated=[1, 0]), None)
    assert (seen.live, seen.live_by_length) == (1, 0)


def test_a_row_without_a_reward_decides_nothing():
    seen = Truncation()
    seen.add(step_of(1, [[1, 0, np.nan]], truncated=[0, 1, 0]), None)
    assert (seen.live, seen.live_by_length) == (1, 1)


# Policy lag


def lag_of(versions, newest=None):
    seen = PolicyLag()
    for number, oldest in versions.items():
        more = {} if newest is None else {"policy_version_max": newest[number]}
        assert seen.add(step_of(number, [[1, 0]], policy_version_min=oldest, **more))
    return seen


def test_step_t_of_verl_trains_on_version_t_minus_1():
    seen = lag_of({1: [0, 0], 2: [1, 1], 3: [2, 2]})
    assert (seen.mean, seen.max, names(seen)) == (0.0, 0, [])


def test_versions_that_start_with_the_step_are_no_lag_either():
    seen = lag_of({1: [1, 1], 2: [2, 2]})
    assert (seen.mean, seen.max) == (0.0, 0)


def test_older_policies_are_counted_in_steps():
    seen = lag_of({1: [0, 0], 2: [0, 1], 3: [0, 2], 4: [1, 3]})
    # behind version t - 1 by 0 0, 1 0, 2 0, 2 0
    assert (seen.mean, seen.max, names(seen)) == (5 / 8, 2, ["stale"])


def test_a_partial_rollout_counts_by_its_oldest_version():
    seen = lag_of({1: [0, 0], 2: [0, 1], 3: [1, 1]}, {1: [0, 0], 2: [1, 1], 3: [2, 2]})
    assert (seen.mean, seen.max) == (3 / 6, 1)


def test_versions_that_run_ahead_of_steps_are_held_against_the_newest_so_far():
    # four updates a step
    seen = lag_of({1: [0, 3], 2: [4, 7], 3: [5, 11]})
    assert not seen.by_step
    assert (seen.max, seen.mean) == (6, (3 + 0 + 3 + 0 + 6 + 0) / 6)


def test_without_versions_nothing_is_claimed():
    assert not PolicyLag().add(step_of(1, [[1, 0]]))
