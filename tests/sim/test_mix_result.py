"""What a mixer's replay says of a run: estimators, findings, and the exposure curve."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from mixing_made import scheduled

from dfsim.sim.mix.exposure import exposure_curve
from dfsim.sim.mix.log import GroupTable, MixLog, Units
from dfsim.sim.mix.result import findings, summarise
from dfsim.sim.mix.simulate import Candidates, MixRun
from dfsim.strategies.build import build

ABC = ("a", "b", "c")


def log_of(shares, steps=40):
    counts = np.tile(np.rint(100 * np.array(shares)).astype(int), (steps, 1))
    return logged(tuple("abcdefghij"[: len(shares)]), counts)


def logged(domains, counts, **tables):
    """A log of so many groups a step and domain."""
    size = counts.sum(axis=1)
    domain_M = np.concatenate([np.repeat(np.arange(len(domains)), row) for row in counts])
    units = Units(domains, domain_M, np.arange(len(domains)))
    step_S = np.arange(1, len(counts) + 1)
    step_M = np.repeat(np.arange(len(counts)), size)
    return MixLog(domains, step_S, step_M, domain_M, {"domain": units}, {}, tables, counts)


def run_of(target, realised=None, mix=None, clock="step", candidates=None, **rest):
    target = np.array(target, dtype=float)
    realised = np.rint(target * 20) if realised is None else np.array(realised, dtype=float)
    nothing = np.zeros_like(target)
    values = {
        "mix": mix or build("reward_gap", {}),
        "clock": clock,
        "candidates": candidates or Candidates("prompts"),
        "steering_S": 0.5 * np.abs(target - 1 / target.shape[1]).sum(axis=1),
        "target_SD": target,
        "signal_SD": nothing,
        "candidates_SD": realised,
        "realised_SD": realised,
        "exposures_SD": realised.cumsum(axis=0),
        "live_exposures_SD": nothing,
        "replaced_SD": nothing,
        "surplus_S": np.zeros(len(target)),
        "supported_until": None,
        "used_up": (),
        "unseen": (),
    }
    return MixRun(**{**values, **rest})


def found(run, log):
    summary = summarise(run, log.domains)
    return {d.name: d for d in findings(run, summary, log)}


# Estimators


@pytest.mark.parametrize("seed", range(6))
def test_a_summary_is_the_slow_one(seed):
    rng = np.random.default_rng(seed)
    steps, floor, warmup = 15, 0.1, int(rng.integers(1, 4))
    target = rng.dirichlet([1, 1, 1], steps)
    held = rng.random(steps) < 0.4
    target[held] = [0.1, 0.3, 0.6]
    realised = rng.integers(0, 4, (steps, 3)).astype(float)
    realised[:, 1] += 1
    end = int(rng.integers(8, 16))
    target[end:] = realised[end:] = np.nan
    replaced, surplus = rng.integers(0, 3, (steps, 3)) * 1.0, rng.integers(0, 9, steps) * 1.0
    replaced[end:], surplus[end:] = np.nan, np.nan
    mix = build("reward_gap", {"floor": floor, "warmup_steps": warmup})
    run = run_of(target, realised, mix, replaced_SD=replaced, surplus_S=surplus)
    got = summarise(run, ABC)

    off, moves, hits, pairs = [], [], 0, 0
    for t in range(end):
        size = sum(realised[t])
        off.append(sum(abs(target[t][d] - realised[t][d] / size) for d in range(3)) / 2)
        for d in range(3):
            if t:
                moves.append(abs(target[t][d] - target[t - 1][d]))
            if t >= warmup:
                pairs += 1
                hits += target[t][d] < floor + 1e-9
    assert math.isclose(got.total_variation, math.fsum(off) / len(off))
    steering = [sum(abs(target[t][d] - 1 / 3) for d in range(3)) / 2 for t in range(end)]
    assert math.isclose(got.steering, math.fsum(steering) / end)
    assert math.isclose(got.volatility, math.fsum(moves) / len(moves))
    assert math.isclose(got.floor_hits, hits / pairs)
    starved = [sum(realised[t][d] == 0 for t in range(end)) for d in range(3)]
    assert list(got.starved_steps.values()) == starved
    assert got.replaced == sum(replaced[t][d] for t in range(end) for d in range(3))
    assert got.surplus == sum(surplus[:end])
    assert got.steps == end
    assert list(got.realised.values()) == [sum(realised[:end, d]) for d in range(3)]
    np.testing.assert_allclose(list(got.last_target.values()), target[end - 1])
    np.testing.assert_allclose(list(got.mean_target.values()), target[:end].mean(axis=0))


def test_floor_hits_are_nothing_without_a_floor():
    run = run_of([[0.0, 0.5, 0.5]] * 5, mix=build("dump_ucb@paper", {}))
    assert math.isnan(summarise(run, ABC).floor_hits)


def test_a_run_that_could_play_nothing_is_said_so():
    nan = np.full((4, 3), np.nan)
    run = run_of(nan, nan, supported_until=1, used_up=("a",))
    summary = summarise(run, ABC)
    assert summary.steps == 0
    assert math.isnan(summary.total_variation)
    assert summary.to_dict()["total_variation"] is None
    assert "log_used_up" in found(run, log_of([0.3, 0.3, 0.4], 4))


# Findings


def swinging(size, steps=40):
    sign = np.where(np.arange(steps) % 2, 1.0, -1.0)[:, None]
    return np.array([1 / 3, 1 / 3, 1 / 3]) + sign * size * np.array([1, -1, 0])


def test_oscillates():
    log = log_of([0.3, 0.3, 0.4])
    assert "oscillates" in found(run_of(swinging(0.2)), log)
    assert "oscillates" not in found(run_of(swinging(0.002)), log)  # too small to matter
    drift = np.linspace([0.1, 0.5, 0.4], [0.7, 0.1, 0.2], 40)
    assert "oscillates" not in found(run_of(drift), log)
    assert "oscillates" not in found(run_of(swinging(0.2)[:6]), log)  # too few to tell


def test_oscillation_shows_at_any_update_interval():
    """Between two updates the target rests; its swings are those between updates."""
    mix = build("reward_gap", {"update_every_steps": 2})
    log = log_of([0.3, 0.3, 0.4], 80)
    assert "oscillates" in found(run_of(np.repeat(swinging(0.2), 2, axis=0), mix=mix), log)


def test_one_jump_at_the_start_is_no_oscillation():
    steady = np.linspace([0.15, 0.5, 0.35], [0.2, 0.4, 0.4], 40)
    steady[0], steady[1] = [1 / 3] * 3, [0.05, 0.9, 0.05]
    assert "oscillates" not in found(run_of(steady), log_of([0.3, 0.3, 0.4]))


def test_on_floor():
    log = log_of([0.3, 0.3, 0.4])
    assert "on_floor" in found(run_of([[0.05, 0.35, 0.6]] * 40), log)  # 1 in 3
    assert "on_floor" not in found(run_of([[0.06, 0.34, 0.6]] * 40), log)


def test_domain_starved():
    log = log_of([0.3, 0.3, 0.4])
    target = np.tile([0.1, 0.4, 0.5], (40, 1))
    drawn = np.tile([2.0, 8.0, 10.0], (40, 1))
    assert "domain_starved" not in found(run_of(target, drawn), log)
    drawn[:4] = [0, 9, 11]
    assert "domain_starved" not in found(run_of(target, drawn), log)  # a tenth is not more
    drawn[4] = [0, 9, 11]
    finding = found(run_of(target, drawn), log)["domain_starved"]
    assert "a (5 of 40 steps)" in finding.message
    assert "b (" not in finding.message


def test_barely_steers():
    log = log_of([0.3, 0.3, 0.4])
    assert "barely_steers" in found(run_of([[0.32, 0.3, 0.38]] * 40), log)
    assert "barely_steers" not in found(run_of([[0.38, 0.26, 0.36]] * 40), log)


def test_fixed_proportions_have_no_temperature_to_blame():
    run = run_of([[1 / 3] * 3] * 40, mix=build("static", {}))
    assert "barely_steers" not in found(run, log_of([0.33, 0.33, 0.34]))


def test_one_domain_leaves_nothing_to_steer():
    run = run_of([[1.0]] * 40)
    said = found(run, log_of([1.0]))
    assert "temperature" not in " ".join(d.message for d in said.values())


def test_what_the_run_itself_says():
    log = log_of([0.3, 0.3, 0.4])
    target = [[0.2, 0.3, 0.5]] * 40
    assert found(run_of(target), log) == {}
    said = found(run_of(target, used_up=("b",), supported_until=41), log)
    assert list(said) == ["log_used_up"]
    assert "b" in said["log_used_up"].message
    assert "41" in said["log_used_up"].message
    said = found(run_of(target, unseen=("c",)), log)
    assert list(said) == ["domain_unseen"]
    assert list(found(run_of(target, candidates=Candidates("sync")), log)) == ["mix_vacuous"]


def test_a_schedule_without_floor_is_judged_too():
    run = run_of([[0.2, 0.3, 0.5]] * 40, mix=scheduled({}))
    assert found(replace(run, unseen=("a",)), log_of([0.3, 0.3, 0.4])).keys() == {"domain_unseen"}


# Exposure curves


def table_of(rewards, rewarded=8):
    count = len(rewards)
    rewarded = np.broadcast_to(rewarded, count)
    reward = np.array(rewards) * rewarded
    table = GroupTable(reward, reward, rewarded, np.ones(count, dtype=bool))
    return logged(("a", "b"), np.array([[count, 0]]), **{"": table})


def learned(rng, count, rising=True):
    rate = 0.2 + 0.6 * np.arange(count) / count
    return rng.binomial(8, rate if rising else rate[::-1]) / 8


@pytest.mark.parametrize("rising", [True, False])
def test_a_known_curve_is_recovered(rising):
    """Isotonic least squares over 1,000 groups: risk (σ²·range/n)^⅓ ≈ (.031·.6/1000)^⅓ = .027."""
    rng = np.random.default_rng(5)
    curve = exposure_curve(table_of(learned(rng, 1000, rising)), 0, seed=1)
    true = 0.2 + 0.6 * curve.exposure_P / 1000
    true = true if rising else true[::-1]
    inner = slice(10, -10)  # at its ends an isotonic fit has nothing to lean on
    assert np.sqrt(((curve.middle_P - true)[inner] ** 2).mean()) < 2 * 0.027
    step = np.diff(curve.middle_P) * (1 if rising else -1)
    assert (step >= 0).all()
    inside = (curve.low_P <= curve.middle_P) & (curve.middle_P <= curve.high_P)
    assert inside.mean() > 0.9
    assert ((curve.low_P <= true) & (true <= curve.high_P))[inner].mean() > 0.8


def test_a_curve_is_seeded():
    rewards = learned(np.random.default_rng(2), 60)
    one, two = (exposure_curve(table_of(rewards), 0, seed=s) for s in (3, 3))
    other = exposure_curve(table_of(rewards), 0, seed=4)
    np.testing.assert_array_equal(one.low_P, two.low_P)
    assert (one.low_P != other.low_P).any()
    np.testing.assert_array_equal(one.middle_P, other.middle_P)


def test_few_groups_give_no_curve():
    rewards = np.linspace(0, 1, 8)
    assert exposure_curve(table_of(rewards[:7]), 0) is None
    assert exposure_curve(table_of(rewards), 0) is not None
    assert exposure_curve(table_of(rewards), 1) is None


def test_a_group_without_rewards_was_consumed_all_the_same():
    rewards = np.concatenate([np.zeros(10), np.full(10, np.nan), np.ones(10)])
    rewarded = np.where(np.isnan(rewards), 0, 8)
    curve = exposure_curve(table_of(np.nan_to_num(rewards), rewarded), 0)
    assert curve.exposure_P[0] == 1
    assert curve.exposure_P[-1] == 30
