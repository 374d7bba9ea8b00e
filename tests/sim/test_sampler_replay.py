"""Samplers of prompts replayed against a slow loop, and what a screen says of samplers."""

from __future__ import annotations

import numpy as np
import pytest
from made import trace_of
from mixing_made import read_log
from pools import pool_file

import dfsim
from dfsim.sim.mix.screened import noise_band, screen_sampler
from dfsim.sim.mix.simulate import Candidates, simulate
from dfsim.strategies.build import build
from dfsim.strategies.sample.quota import draw_prompts
from dfsim.traces.synthetic import binary_steps, exact_step

N = 4


def visits_trace(folder, seed, steps=8, prompts=6, a_step=4):
    """Prompts in no order, some twice at a step, some never again; the log and its visits."""
    rng = np.random.default_rng(seed)
    made, visits = [], []
    for step in range(1, steps + 1):
        chosen = rng.integers(0, prompts, a_step)
        if step == 1:
            chosen = np.arange(prompts)[:a_step]
        if step == 2:
            chosen[: prompts - a_step] = np.arange(a_step, prompts)
        solved = rng.integers(0, N + 1, a_step)
        columns = exact_step(solved.tolist(), N, step=step, num_tokens=1)
        columns["prompt_id"] = np.repeat(np.array([f"q{p}" for p in chosen], dtype=object), N)
        made.append(columns)
        visits.append(list(zip(chosen.tolist(), (solved / N).tolist(), strict=True)))
    return trace_of(folder, made), visits


def pool_by_hand(visits, clock, seed, prompts=6, a_step=4, memory=0.5, least=0.1):
    """Proposals of the pool in ``docs/own_sampler.md``, one prompt at a time."""
    rate = [0.5] * prompts
    flat = [(p, reward, t) for t, step in enumerate(visits) for p, reward in step]
    queue = {p: [reward for q, reward, _ in flat if q == p] for p in range(prompts)}
    used = dict.fromkeys(range(prompts), 0)
    proposals = []
    for t, _ in enumerate(visits):
        weight = [least + 1 - r for r in rate]
        share = np.array(weight) / sum(weight)
        proposals.append(share)
        drawn = draw_prompts(share, a_step, np.random.default_rng((seed, t))).tolist()
        seen = {}
        for p in sorted(set(drawn)):
            if clock == "exposure":
                rewards = []
                for _ in range(drawn.count(p)):
                    rewards.append(queue[p][min(used[p], len(queue[p]) - 1)])
                    used[p] += 1
            else:
                here = [reward for q, reward, at in flat if q == p and at == t]
                before = [at for q, _, at in flat if q == p and at < t]
                after = [at for q, _, at in flat if q == p and at > t]
                when = t if here else max(before) if before else min(after)
                rewards = [reward for q, reward, at in flat if q == p and at == when]
                rewards = rewards[:1] if not (here or before) else rewards
            seen[p] = sum(rewards) / len(rewards)
        for p, reward in seen.items():
            rate[p] += (1 - memory) * (reward - rate[p])
    return np.array(proposals)


@pytest.mark.parametrize("clock", ["step", "exposure"])
@pytest.mark.parametrize("seed", range(12))
def test_a_pool_of_prompts_is_the_slow_loop(clock, seed, tmp_path):
    trace, visits = visits_trace(tmp_path / "t", seed)
    pool = build(f"{pool_file(tmp_path)}:HardPool")
    log = read_log(trace, [pool])
    run = simulate(pool, log, Candidates("prompts"), clock, seed)
    proposals = pool_by_hand(visits, clock, seed)
    prior = np.array([sum(q == p for step in visits for q, _ in step) for p in range(6)])
    away = 0.5 * np.abs(proposals - prior / prior.sum()).sum(axis=1)
    np.testing.assert_allclose(run.steering_S, away, atol=1e-12)
    assert run.realised_SD.sum(axis=1).tolist() == [4.0] * len(visits)
    assert run.supported_until is None  # a prompt's last visit stands in


def test_a_skipped_visit_is_not_seen(tmp_path):
    """What came of prompts that step 1 did not draw changes nothing that step 2 asks for."""
    pool = build(f"{pool_file(tmp_path)}:HardPool")
    seed = 5
    drawn = draw_prompts(np.full(6, 1 / 6), 4, np.random.default_rng((seed, 0))).tolist()
    _, visits = visits_trace(tmp_path / "a", 3)
    skipped = {p for p, _ in visits[0]} - set(drawn)
    assert skipped

    def asked_with(changed, folder):
        made = []
        for step, listed in enumerate(visits, 1):
            solved = [round(reward * N) for _, reward in listed]
            if step == 1:
                solved = [
                    N - k if p in changed else k for k, (p, _) in zip(solved, listed, strict=True)
                ]
            columns = exact_step(solved, N, step=step, num_tokens=1)
            names = np.array([f"q{p}" for p, _ in listed], dtype=object)
            made.append({**columns, "prompt_id": np.repeat(names, N)})
        log = read_log(trace_of(tmp_path / folder, made), [pool])
        return simulate(pool, log, Candidates("prompts"), "step", seed).steering_S[1]

    unchanged = asked_with((), "b")
    assert asked_with(skipped, "c") == unchanged
    seen = {p for p, reward in visits[0] if p in drawn and reward != 0.5}
    assert asked_with(seen, "d") != unchanged


# Screening


def rates_trace(folder, rates, steps=40):
    return trace_of(folder, binary_steps(rates, steps=steps, groups_per_domain=6, n=8, seed=2))


def row_of(trace, name, params=None, **options):
    result = dfsim.replay(trace, [build(name, params)], resamples=2, **options)
    return screen_sampler(result.mixers[name], 40, 1)


def test_a_sampler_that_follows_a_real_difference_steers(tmp_path):
    trace = rates_trace(tmp_path / "t", {"a": 0.15, "b": 0.5, "c": 0.85})
    row = row_of(trace, "reward_gap", {"temperature": 0.3})
    assert row.verdict == "steers"
    assert row.steering["asked"] > row.noise_high > row.noise_low >= 0


def test_a_sampler_of_equal_domains_moves_no_more_than_noise(tmp_path):
    trace = rates_trace(tmp_path / "t", {"a": 0.5, "b": 0.5, "c": 0.5})
    row = row_of(trace, "reward_gap", {"temperature": 0.02, "window_steps": 1})
    assert row.verdict == "noise"
    assert row.noise_low <= row.steering["asked"] <= row.noise_high
    assert row.steering["asked"] > 0.05


@pytest.mark.parametrize(
    ("name", "params", "options", "verdict"),
    [
        ("static", {"proportions": {"a": 0.8, "b": 0.1, "c": 0.1}}, {}, "fixed"),
        ("tscl", {}, {}, "barely"),
        ("reward_gap", {"temperature": 0.3}, {"candidates": "sync"}, "vacuous"),
    ],
)
def test_what_does_not_steer_is_said(name, params, options, verdict, tmp_path):
    trace = rates_trace(tmp_path / "t", {"a": 0.15, "b": 0.5, "c": 0.85}, steps=12)
    row = row_of(trace, name, params, **options)
    assert row.verdict == verdict
    assert row.sentence.startswith(name)


def test_one_domain_has_no_noise_to_compare_with(tmp_path):
    trace = rates_trace(tmp_path / "t", {"a": 0.5}, steps=12)
    result = dfsim.replay(trace, ["reward_gap"], resamples=2).mixers["reward_gap"]
    assert all(np.isnan(noise_band(result, 5, 0)))
    assert screen_sampler(result, 5, 0).to_dict()["noise_high"] is None


def test_a_screen_takes_every_kind(tmp_path):
    trace = rates_trace(tmp_path / "t", {"a": 0.15, "b": 0.5, "c": 0.85}, steps=12)
    names = ["tscl", "maxvar", f"{pool_file(tmp_path)}:HardPool+topk"]
    record = dfsim.screen(trace, names, resamples=4).to_dict()["traces"][0]
    assert set(record["strategies"]) == {"none", "maxvar"}
    assert list(record["mixers"]) == [names[0], names[2]]
    assert {"verdict", "sentence", "steering", "noise_low"} <= set(record["mixers"]["tscl"])
