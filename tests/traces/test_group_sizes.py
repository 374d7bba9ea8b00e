"""Group sizes against n and against the run's own pattern: found every time, never ragged n."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfsim.traces.checks.group_sizes import GroupSizes


def findings(by_step, n=None, whole=False, prompts=None):
    sizes = GroupSizes(n, whole)
    for step, found in by_step.items():
        sizes.add(step, found, None if prompts is None else prompts[step])
    return list(sizes.findings())


def names(*args, **options):
    return [finding.name for finding in findings(*args, **options)]


def test_one_size_is_nothing_to_speak_of():
    assert names({s: [8] * 4 for s in range(3)}) == []
    assert names({s: [8] * 4 for s in range(3)}, n=8) == []


def test_larger_groups_than_n_are_named_with_their_steps():
    (found,) = findings({1: [8, 8], 2: [8, 16], 3: [24, 8]}, n=8)
    assert found.name == "groups_too_large"
    assert found.evidence == {"n": 8, "sizes": {"16": 1, "24": 1}}
    assert "steps 2, 3" in found.message


def test_smaller_groups_than_n_everywhere_were_split():
    (found,) = findings({1: [4, 4], 2: [3, 4]}, n=8)
    assert (found.name, found.evidence) == ("groups_too_small", {"n": 8, "largest": 4})
    assert names({1: [8, 4], 2: [4, 4]}, n=8) == []  # ragged below n


def test_a_multiple_of_the_usual_size_is_several_draws_unless_it_is_known_to_be_one():
    run = {1: [4, 4, 4], 2: [4, 8, 4], 3: [12, 4, 4]}
    (found,) = findings(run)
    assert found.name == "groups_too_large"
    assert found.evidence == {"usual": 4, "sizes": {"8": 1, "12": 1}}
    assert names(run, whole=True) == []


@settings(max_examples=80, deadline=None)
@given(
    st.integers(2, 6).flatmap(
        lambda groups: st.lists(
            st.lists(st.integers(5, 9), min_size=groups, max_size=groups), min_size=1, max_size=6
        )
    )
)
def test_ragged_groups_are_never_accused(steps):
    # no size between 5 and 9 is a multiple of another
    assert names(dict(enumerate(steps))) == []
    assert names(dict(enumerate(steps)), n=9) in ([], ["groups_too_small"])


def test_a_run_of_single_responses_groups_by_trajectory():
    (found,) = findings({1: [1] * 40, 2: [1] * 40})
    assert (found.name, found.evidence) == ("singletons", {"groups": 80, "of": 80})


@pytest.mark.parametrize("seed", range(10))
def test_a_step_that_a_resumed_run_logged_twice_is_found_in_any_order(seed):
    shuffle = random.Random(seed).shuffle
    run = {s: [16 if s in (5, 6) else 8] * 12 for s in range(1, 11)}
    order = list(run)
    shuffle(order)
    (found,) = findings({s: run[s] for s in order})
    assert found.name == "step_repeated"
    assert found.evidence == {"steps": [5, 6], "usual": 8}


@pytest.mark.parametrize("known", [False, True])
def test_a_step_with_twice_the_groups_is_one_logged_twice(known):
    # each copy has ids of its own: sizes stay, groups double
    run = {s: [8] * (24 if s == 4 else 12) for s in range(1, 9)}
    prompts = {s: [f"p{s}-{i % 12}" for i in range(len(run[s]))] for s in run} if known else None
    (found,) = findings(run, n=8, prompts=prompts)
    assert (found.name, found.evidence) == ("step_repeated", {"steps": [4]})


def test_a_prompt_that_is_drawn_twice_now_and_then_is_no_repeated_step():
    run = {s: [8] * 4 for s in range(1, 6)}
    prompts = {s: ["a", "b", "c", "c" if s == 3 else "d"] for s in run}
    assert names(run, n=8, prompts=prompts) == []


def test_a_small_last_step_makes_no_other_step_a_double_one():
    assert names({1: [8] * 12, 2: [8] * 12, 3: [8] * 6}, n=8) == []
