"""Mixers against an independent slow implementation, and the goldens derived by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observed import ABC, MIXERS, asked_for, observation, rewards_step, step_of

from dfsim.strategies.build import build
from dfsim.strategies.sample.mixer import hold_floor
from dfsim.traces.assemble import from_columns
from reference import mixers_slow as slow
from reference.mixers_slow import NAN, Seen, Step

SELECTORS = [None, "dapo", "difffilter", "topk", "maxvar", "gfpo@paper"]


def random_params(rng, preset, size):
    warmup = int(rng.integers(0, 5))
    # Where warm-up is 0 the text leaves open which steps the interval counts from.
    params = {"warmup_steps": warmup, "window_steps": int(rng.integers(1, 13))}
    params["update_every_steps"] = int(rng.integers(1, 5)) if warmup else 1
    rule, fixed = slow.PRESETS[preset]
    if preset.endswith("@paper") and rng.random() < 0.5:
        params = {**params, "window_steps": fixed.get("window_steps", 300)}
    if preset == "dump_ucb@paper":
        params["window_steps"] = 300
    if rule == "static":
        shares = {f"d{i:02d}": int(rng.integers(1, 5)) for i in range(size) if rng.random() < 0.7}
        return {**params, "proportions": shares or None}
    if rng.random() < 0.6:
        params["temperature"] = float(10.0 ** rng.uniform(-2, 1))
    if rng.random() < 0.6:
        params["floor"] = float(rng.choice([0.0, 1 / size, rng.random() / size]))
    if rule == "dump_ucb" and rng.random() < 0.6:
        params["exploration"] = float(rng.choice([0.0, rng.random() * 3]))
    if rule == "dump_ucb" and rng.random() < 0.4:
        params |= {"window_responses": int(rng.integers(1, 40)), "window_steps": 300}
    return params


def random_history(rng, domains, count):
    """Steps that miss domains or steps, and show only NaN rewards now and then."""
    hidden = set(rng.choice(domains, int(rng.integers(0, len(domains))), replace=False).tolist())
    late = {d: int(rng.integers(0, count + 1)) if d in hidden else 0 for d in domains}
    gone = {d: int(rng.integers(1, count)) if rng.random() < 0.2 else count for d in domains}
    scale = 10.0 ** rng.integers(-2, 1)
    steps, number = [], int(rng.integers(0, 100))
    for past in range(count):
        number += int(rng.choice([1, 1, 1, 2, 7]))
        step = Step(number)
        for d in domains:
            if late[d] <= past < gone[d] and rng.random() < 0.8:
                nan, size = rng.random() < 0.15, int(rng.integers(1, 60))
                reward = NAN if nan else float(rng.normal() * scale)
                advantage = NAN if nan else float(rng.random() * 2)
                step.domains[d] = Seen(reward, advantage, size)
        steps.append(step)
    return steps


# Goldens


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reward_gap", [0.2397, 0.4367, 0.3236]),  # e^0, e^.6, e^.3 over 4.1720
        ("reward_gap@asrun", [0.2397, 0.4367, 0.3236]),
        ("dump_ucb@asrun", [0.4367, 0.2397, 0.3236]),
        ("tscl@asrun", [0.4367, 0.2397, 0.3236]),
        ("static", [1 / 3] * 3),
    ],
)
def test_goldens_of_mean_rewards(name, expected):
    got = asked_for(name, {}, ABC, [rewards_step(1, a=0.9, b=0.3, c=0.6)])
    np.testing.assert_allclose(got[-1], expected, atol=6e-5)


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("dump_ucb", {}, [0.31172, 0.29041, 0.39786]),
        ("dump_ucb", {"temperature": 0.1, "floor": 0}, [0.07714, 0.03800, 0.88487]),
        ("dump_ucb@paper", {}, [0.07714, 0.03800, 0.88487]),
    ],
)
def test_goldens_of_advantages_and_counts(name, params, expected):
    parts = {"a": Seen(0.1, 0.5, 100), "b": Seen(0.2, 0.3, 50), "c": Seen(0.9, 0.1, 10)}
    got = asked_for(name, params, ABC, [Step(1, parts)])
    np.testing.assert_allclose(got[-1], expected, atol=5.1e-6)


@pytest.mark.parametrize("way", [1, -1])
@pytest.mark.parametrize(
    ("name", "expected"),
    [("tscl", [0.33378, 0.33311, 0.33311]), ("tscl@paper", [0.98670, 0.00665, 0.00665])],
)
def test_goldens_of_slopes(name, expected, way):
    steps = [rewards_step(t, a=0.5 + way * 2e-3 * t, b=0.7, c=0.1) for t in (3, 4, 6, 10)]
    np.testing.assert_allclose(asked_for(name, {}, ABC, steps)[-1], expected, atol=5.1e-6)


@pytest.mark.parametrize(
    ("p", "floor", "expected"),
    [
        ([0.98, 0.01, 0.01], 0.05, [0.90, 0.05, 0.05]),
        ([0.6, 0.3, 0.1], 0.05, [0.6, 0.3, 0.1]),
        # .1 is raised: .88·.8/.9 = .7822, .02 raised with it; .12 stays above after scaling
        ([0.86, 0.12, 0.02], 0.1, [0.9 * 0.86 / 0.98, 0.9 * 0.12 / 0.98, 0.1]),
        # .21 falls below the floor only once the others were raised
        ([0.77, 0.21, 0.01, 0.01], 0.2, [0.4, 0.2, 0.2, 0.2]),
        ([0.97, 0.01, 0.01, 0.01], 0.25, [0.25] * 4),
    ],
)
def test_goldens_of_the_floor(p, floor, expected):
    np.testing.assert_allclose(hold_floor(np.array(p), floor), expected, atol=1e-12)


# Against the slow reference


@pytest.mark.parametrize("preset", MIXERS)
@pytest.mark.parametrize("seed", range(30))
def test_random_runs_as_the_slow_reference(preset, seed):
    rng = np.random.default_rng([seed, *preset.encode()])
    size = 10 if seed % 5 == 0 else int(rng.integers(1, 8))
    domains = tuple(f"d{i:02d}" for i in range(size))
    params = random_params(rng, preset, size)
    prior = None if rng.random() < 0.5 else rng.dirichlet(np.ones(size)).tolist()
    prior = None if preset == "static" else prior
    steps = random_history(rng, domains, int(rng.integers(2, 40)))
    expected = slow.proposals(preset, params, domains, steps, prior)
    np.testing.assert_allclose(
        asked_for(preset, params, domains, steps, prior), expected, rtol=0, atol=1e-12
    )


def random_columns(rng, number, domains, nan):
    """Prompt groups of the domains with the run's own advantages; rows in no order."""
    sizes = rng.integers(1, 7, int(rng.integers(1, 12)))
    count = int(sizes.sum())
    reward = rng.choice([0.0, 1.0, 0.1, -0.5], count) + rng.choice([0, 1]) * rng.random(count)
    reward[rng.random(count) < nan] = np.nan
    group = np.repeat(np.arange(len(sizes)), sizes)
    of_group = rng.choice(domains, len(sizes))
    if nan and rng.random() < 0.5:
        reward[(of_group == of_group[0])[group]] = np.nan
    order = rng.permutation(count)
    return {
        "step": number,
        "group_uid": np.array([f"u{g}" for g in group], dtype=object)[order],
        "rollout_idx": np.concatenate([rng.permutation(9)[:s] for s in sizes])[order],
        "domain": of_group[group].astype(object)[order],
        "reward": reward[order],
        "num_tokens": rng.integers(1, 20, count),
    }


def rows_of(batch, decision):
    weight = np.ones(batch.num_responses) if decision is None else decision.weight_N
    names = [batch.domains[code] for code in batch.domain_N]
    values = (batch.reward_N.tolist(), batch.advantage_N.tolist(), weight.tolist())
    return list(zip(names, *values, strict=True))


@pytest.mark.parametrize("nan", [0.0, 0.3])
@pytest.mark.parametrize("preset", MIXERS)
@pytest.mark.parametrize("seed", range(12))
def test_random_batches_as_the_slow_reference(preset, seed, nan):
    rng = np.random.default_rng([seed, int(10 * nan), *preset.encode()])
    domains = tuple(f"d{i:02d}" for i in range(int(rng.integers(1, 11))))
    params = random_params(rng, preset, len(domains))
    name = SELECTORS[seed % len(SELECTORS)]
    mixer = build(preset, params).start(domains)
    steps, got = [], []
    for number in range(1, 16):
        batch = from_columns(random_columns(rng, number, domains[: 1 + number], nan))
        decision = None if name is None else build(name).decide(batch)
        mixer.observe(step_of(batch, mixer, decision))
        got.append(mixer.propose())
        steps.append(slow.step_of_rows(number, rows_of(batch, decision)))
    expected = slow.proposals(preset, params, domains, steps)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
    assert set(slow.never_seen(domains, steps)) <= set(mixer.unseen)


def test_a_step_observes_what_a_selector_kept():
    columns = {
        "step": 7,
        "group_uid": ["g", "g", "h", "h", "i", "i"],
        "domain": ["math"] * 4 + ["code"] * 2,
        "reward": [1.0, 0.0, 1.0, 1.0, 0.25, NAN],
        "advantage": [0.5, -0.7, 0.0, 0.0, 0.3, 0.0],
    }
    batch = from_columns(columns)
    mixer = build("tscl").start(("code", "logic", "math"))
    every = step_of(batch, mixer)
    np.testing.assert_allclose(every.reward_U, [0.25, NAN, 0.75])
    np.testing.assert_allclose(every.advantage_U[1:], [NAN, 0.3])
    kept = step_of(batch, mixer, build("dapo").decide(batch))
    np.testing.assert_allclose(kept.reward_U, [NAN, NAN, 0.5])
    np.testing.assert_allclose(kept.advantage_U, [NAN, NAN, 0.6])
    assert (kept.step, kept.responses_U.tolist()) == (7, [0, 0, 2])


@pytest.mark.parametrize("seed", range(20))
def test_row_order_and_group_names_do_not_matter_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    columns = random_columns(rng, 4, ABC, 0.1)
    size = len(columns["reward"])
    columns["reward"] = columns["reward"] + rng.normal(size=size)
    columns["advantage"] = rng.normal(size=size)
    order = rng.permutation(size)
    other = {k: v if k == "step" else v[order] for k, v in columns.items()}
    # A run draws fresh uids, which turns the canonical order of the groups round too.
    fresh = dict(zip(sorted(set(columns["group_uid"])), rng.permutation(20), strict=False))
    other["group_uid"] = np.array([f"v{fresh[u]:02d}" for u in other["group_uid"]], dtype=object)
    other["rollout_idx"] = 9 - other["rollout_idx"]
    mixer = build("tscl").start(ABC)
    one, two = (step_of(from_columns(c), mixer) for c in (columns, other))
    assert one.reward_U.tobytes() == two.reward_U.tobytes()
    assert one.advantage_U.tobytes() == two.advantage_U.tobytes()
    assert one.responses_U.tolist() == two.responses_U.tolist()


# State


@pytest.mark.parametrize("preset", MIXERS)
@pytest.mark.parametrize("seed", range(6))
def test_a_saved_state_goes_on_bit_for_bit(preset, seed):
    rng = np.random.default_rng([seed, *preset.encode()])
    domains = tuple(f"d{i:02d}" for i in range(int(rng.integers(1, 7))))
    mix = build(preset, random_params(rng, preset, len(domains)))
    steps = [observation(s, domains) for s in random_history(rng, domains, 30)]
    prior = rng.dirichlet(np.ones(len(domains))).tolist()
    mixer = mix.start(domains, prior)
    cut = int(rng.integers(0, 25))
    for step in steps[:cut]:
        mixer.observe(step)
    resumed = mix.start(domains, prior)
    resumed.load_state_dict(json.loads(json.dumps(mixer.state_dict())))
    for step in [None, *steps[cut:]]:
        if step is not None:
            mixer.observe(step)
            resumed.observe(step)
        assert mixer.propose().tobytes() == resumed.propose().tobytes()
        assert mixer.signal_U.tobytes() == resumed.signal_U.tobytes()
        assert mixer.unseen == resumed.unseen
    assert json.dumps(mixer.state_dict()) == json.dumps(resumed.state_dict())


def test_a_proposal_is_the_callers_own():
    mixer = build("reward_gap", {}).start(ABC)
    mixer.propose()[0] = 9.0
    assert mixer.propose().tolist() == [1 / 3] * 3


# The floor


@st.composite
def shares_and_floor(draw):
    size = draw(st.integers(1, 10))
    weights = draw(st.lists(st.floats(0, 1), min_size=size, max_size=size))
    p = np.array(weights) + (0.0 if sum(weights) > 1e-3 else 1.0)
    fraction = draw(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)))
    return p / p.sum(), fraction / size


@settings(max_examples=400, deadline=None, derandomize=True)
@given(shares_and_floor())
def test_the_floor_holds_after_normalisation(case):
    p, floor = case
    q = hold_floor(p, floor)
    assert q.sum() == pytest.approx(1, abs=1e-12)
    assert (q >= floor).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(q[order]) >= 0).all()
    assert hold_floor(q, floor).tobytes() == q.tobytes()
    if (p >= floor).all():
        assert q.tobytes() == p.tobytes()
    np.testing.assert_allclose(q, slow.hold_floor(p.tolist(), floor), atol=1e-12)
