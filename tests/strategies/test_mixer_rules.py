"""Single rules of the mixers: clocks, windows, domains without observations, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from observed import ABC, MIXERS, asked_for, observation, rewards_step, step_of

from dfsim.strategies.build import build
from dfsim.strategies.sample.base import UnitStep
from dfsim.traces.assemble import from_columns
from dfsim.traces.errors import StrategyError
from reference.mixers_slow import NAN, Seen, Step, softmax

TEN = tuple(f"d{i}" for i in range(10))
MOVING = [rewards_step(t, a=0.1 * t, b=0.5, c=0.9 - 0.05 * t) for t in range(1, 13)]
EVEN = [1 / 3] * 3


# Clocks


@pytest.mark.parametrize(("warmup", "every"), [(1, 1), (3, 1), (3, 4), (1, 5)])
def test_the_prior_until_warm_up_ends_then_an_update_every_so_often(warmup, every):
    prior = [0.5, 0.3, 0.2]
    params = {"warmup_steps": warmup, "update_every_steps": every}
    got = asked_for("reward_gap", params, ABC, MOVING, prior)
    assert got[: warmup - 1] == [prior] * (warmup - 1)
    changes = [t + 1 for t in range(12) if got[t] != ([prior, *got])[t]]
    assert changes == list(range(warmup, 13, every))


@pytest.mark.parametrize("every", [1, 2, 5])
def test_less_warm_up_never_acts_later(every):
    def first(warmup):
        params = {"warmup_steps": warmup, "update_every_steps": every}
        got = asked_for("reward_gap", params, ABC, MOVING)
        return next(t for t, p in enumerate(got) if p != EVEN)

    assert first(0) <= first(1)


def test_before_any_step_a_mixer_asks_for_its_prior():
    assert build("tscl", {}).start(ABC).propose().tolist() == EVEN
    assert build("tscl", {}).start(ABC, [0.5, 0.5, 0.0]).propose().tolist() == [0.5, 0.5, 0.0]


def test_a_prior_goes_with_its_domains_in_any_order():
    mixer = build("dump_ucb", {}).start(("b", "a"), [0.7, 0.3])
    assert dict(zip(mixer.units, mixer.propose(), strict=True)) == {"b": 0.7, "a": 0.3}


def test_a_prior_is_not_changed_through_the_callers_array():
    prior = np.array([0.7, 0.3])
    mixer = build("dump_ucb", {}).start(("a", "b"), prior)
    prior[:] = 0.5
    assert mixer.propose().tolist() == [0.7, 0.3]


# Windows


def test_a_window_forgets_older_steps():
    long = asked_for("reward_gap", {"window_steps": 2}, ABC, MOVING)[-1]
    assert long == asked_for("reward_gap", {"window_steps": 2}, ABC, MOVING[-2:])[-1]


def test_window_means_are_over_responses_not_steps():
    steps = [Step(1, {"a": Seen(1.0, 0, 30), "b": Seen(0.5, 0, 8)})]
    steps.append(Step(2, {"a": Seen(0.0, 0, 10)}))
    got = asked_for("tscl@asrun", {"floor": 0}, ("a", "b"), steps)[-1]
    np.testing.assert_allclose(got, softmax([0.75, 0.5]), atol=1e-12)


def test_a_window_mean_is_over_the_rewards_there_are():
    """Step 1: one reward of 1 beside nine NaN; step 2: nine rewards of 0. The mean is .1."""
    mixer = build("tscl@asrun", {"floor": 0}).start(("a", "b"))
    for step, reward in ((1, [1.0] + [NAN] * 9), (2, [0.0] * 9)):
        columns = {
            "step": step,
            "group_uid": ["g"] * len(reward) + ["h"],
            "domain": ["a"] * len(reward) + ["b"],
            "reward": [*reward, 0.0],
        }
        mixer.observe(step_of(from_columns(columns), mixer))
    np.testing.assert_allclose(mixer.propose(), softmax([0.1, 0.0]), atol=1e-12)


def test_a_window_of_responses_is_each_domains_own_and_has_no_other_limit():
    """`dump_ucb@paper`: 300 responses of a domain, here its last 300 of 450 steps, one a step."""
    steps = []
    for t in range(900):
        parts = {"a": Seen(0, 0.5, 4)}
        if t % 2:
            parts["b"] = Seen(0, 1.0 if t < 600 else 0.0, 1)
        steps.append(Step(t, parts))
    got = asked_for("dump_ucb@paper", {"exploration": 0}, ("a", "b"), steps)[-1]
    np.testing.assert_allclose(got, softmax([5.0, 5.0]), atol=1e-12)


def test_the_bonus_counts_responses_since_the_start():
    steps = [Step(t, {"a": Seen(0, 0.5, 9), "b": Seen(0, 0.5, 1)}) for t in range(1, 5)]
    got = asked_for("dump_ucb", {"window_steps": 1, "floor": 0}, ("a", "b"), steps)[-1]
    u = [0.5 + np.sqrt(2 * np.log(41) / (n + 1)) for n in (36, 4)]
    np.testing.assert_allclose(got, softmax(u), atol=1e-12)


def test_a_slope_is_against_the_step_not_the_observation():
    steps = [rewards_step(t, a=0.01 * t, b=0.5) for t in (1, 2, 12)]
    got = asked_for("tscl", {"temperature": 0.01, "floor": 0}, ("a", "b"), steps)[-1]
    np.testing.assert_allclose(got, softmax([1.0, 0.0]), atol=1e-9)


# Domains without observations


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("reward_gap", [0.0, 0.6, 0.6]),
        ("reward_gap@asrun", [0.0, 0.6, 0.9]),
        ("dump_ucb@asrun", [0.9, 0.3, 0.0]),
        ("tscl@asrun", [0.9, 0.3, 0.0]),
    ],
)
@pytest.mark.parametrize("shown", [False, True])
def test_an_unseen_domain_counts_as_the_best_and_as_run_as_reward_0(name, scores, shown):
    step = rewards_step(1, a=0.9, b=0.3)
    if shown:
        step.domains["c"] = Seen(NAN, NAN, 8)
    np.testing.assert_allclose(asked_for(name, {}, ABC, [step])[-1], softmax(scores), atol=1e-12)


def test_a_domain_with_only_nan_rewards_counts_as_the_best_under_dump_ucb_too():
    columns = {
        "step": 1,
        "group_uid": [u for u in "ghi" for _ in range(4)],
        "domain": [d for d in ABC for _ in range(4)],
        "reward": [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, NAN, NAN, NAN, NAN],
    }
    mixer = build("dump_ucb", {"exploration": 0}).start(ABC)
    mixer.observe(step_of(from_columns(columns), mixer))
    p = mixer.propose()
    assert mixer.unseen == ("c",)
    assert p[2] == pytest.approx(max(p[:2]), abs=1e-12)


def test_a_slope_of_one_point_counts_as_the_best_and_in_the_paper_as_1():
    steps = [rewards_step(1, a=0.0, b=0.0), rewards_step(2, a=0.3, b=0.1, c=0.5)]
    for name, third in (("tscl", 0.3), ("tscl@paper", 1.0)):
        got = asked_for(name, {"temperature": 1, "floor": 0}, ABC, steps)[-1]
        np.testing.assert_allclose(got, softmax([0.3, 0.1, third]), atol=1e-12)


@pytest.mark.parametrize("name", MIXERS)
def test_where_no_domain_was_seen_the_mix_is_even(name):
    steps = [Step(1), Step(2, {"a": Seen(NAN, NAN, 4)})]
    params = {"exploration": 0.0} if name in ("dump_ucb", "dump_ucb@paper") else {}
    for p in asked_for(name, params, ABC, steps):
        np.testing.assert_allclose(p, EVEN, atol=1e-12)


def ten_domains(t):
    """Step t: d3 is never drawn, d5 has only NaN rewards, d7 is exhausted after step 1."""
    parts = {d: Seen(0.1 * i, 0.5, 8) for i, d in enumerate(TEN) if d != "d3"}
    parts["d5"] = Seen(NAN, NAN, 8)
    if t > 1:
        del parts["d7"]
    return observation(Step(t, parts), TEN)


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_unseen_names_the_domains_without_a_reward_and_no_others(steps):
    mixer = build("tscl", {"window_steps": 6}).start(TEN)
    for t in range(1, steps + 1):
        mixer.observe(ten_domains(t))
    assert mixer.unseen == ("d3", "d5")


# Refusals: one line, with the value and the remedy


def refused(act):
    with pytest.raises(StrategyError) as caught:
        act()
    text = str(caught.value)
    assert "\n" not in text
    return text


def started(name="static", domains=ABC, prior=None, **params):
    return lambda: build(name, params).start(domains, prior)


NO_REWARD = UnitStep(1, np.full(3, NAN), np.full(3, NAN), np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (started("tscll"), ["'tscll'", "did you mean 'tscl'?", "dfsim strategies"]),
        (started("tscl", temprature=1), ["'temprature'", "did you mean 'temperature'?", "floor"]),
        (started("tscl", temperature=0), ["temperature=0", "(0, ∞"]),
        (started("dump_ucb", floor=1.5), ["floor=1.5", "[0, 1]"]),
        (started("reward_gap", window_steps=0), ["window_steps=0", "[1, ∞"]),
        (started("reward_gap", warmup_steps=1.5), ["warmup_steps=1.5", "whole number"]),
        (started("tscl", TEN, floor=0.11), ["floor=0.11", "10 domains", "at most 0.1"]),
        (started("tscl", ()), ["tscl", "at least one domain"]),
        (started("tscl", prior=[0.5, 0.6, 0.1]), ["0.6", "sum"]),
        (started("tscl", prior=[0.5, 0.5]), ["[0.5, 0.5]", "a, b, c"]),
        (started(domains=("math", "code"), proportions={"mat": 1}), ["'mat'", "mean 'math'?"]),
        (started(proportions={"a": -0.5, "b": 1.5}), ["-0.5", "≥ 0"]),
        (started(proportions={"a": 0, "b": 0}), ["'a': 0", "above 0"]),
        (started(proportions={"a": "x"}), ["'x'", "≥ 0"]),
        (started(proportions={"a": NAN}), ["proportions", "nan"]),
        (started(proportions={"a": float("inf"), "b": 1}), ["proportions", "inf"]),
        (started(proportions=[0.5, 0.5]), ["[0.5, 0.5]", "{DOMAIN: SHARE"]),
    ],
)
def test_what_can_not_be_is_refused_with_the_value_and_the_remedy(act, words):
    text = refused(act)
    assert [w for w in words if w not in text] == [], text


def test_a_batch_without_domains_is_refused():
    batch = from_columns({"step": 1, "group_uid": ["g", "g"], "reward": [0.0, 1.0]})
    text = refused(lambda: step_of(batch, build("tscl").start(ABC)))
    assert "--map domain=" in text


@pytest.mark.parametrize("other", [("a", "b"), ("a", "b", "d"), (*ABC, "d")])
def test_a_state_of_other_domains_is_refused(other):
    mixer = build("dump_ucb", {}).start(ABC)
    mixer.observe(NO_REWARD)
    state = mixer.state_dict()
    text = refused(lambda: build("dump_ucb", {}).start(other).load_state_dict(state))
    assert "a, b, c" in text
    assert ", ".join(other) in text


def test_a_floor_on_the_edge_is_allowed():
    mixer = build("reward_gap", {"floor": 0.1}).start(TEN)
    mixer.observe(ten_domains(1))
    np.testing.assert_allclose(mixer.propose(), [0.1] * 10, atol=1e-12)


def test_static_proportions_are_by_name():
    mixer = build("static", {"proportions": {"c": 3, "a": 1}}).start(("c", "a", "b"))
    assert mixer.units == ABC
    for step in [None, *MOVING]:
        if step is not None:
            mixer.observe(observation(step, ABC))
        assert mixer.propose().tolist() == [0.25, 0.0, 0.75]
