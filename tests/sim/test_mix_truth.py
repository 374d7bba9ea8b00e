"""Clocks against worlds whose truth is known: reward a function of exposure, or of time.

Both worlds write the same kind of uniform log (own exposure and time are collinear there), but a
mixer that steers meets different rewards in them. The truth is played by a simulator of its own.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from made import trace_of
from mixing_made import read_log

from dfsim.sim.mix.simulate import Candidates, simulate
from dfsim.strategies.build import build
from dfsim.traces.synthetic import exact_step
from reference import mixers_slow as slow

DOMAINS = ("algebra", "logic", "trivia")
EACH, N = 8, 8
BATCH = EACH * len(DOMAINS)
LOGGED, PLAYED = 100, 40
SEEDS = range(8)
MIXERS = [
    ("reward_gap", {"temperature": 0.15}),
    ("dump_ucb", {"temperature": 0.1}),
    ("dump_ucb@paper", {}),
]
IDS = [name for name, _ in MIXERS]
HALF_NORMAL = math.sqrt(2 / math.pi)  # E|z|


def solve_rate(domain, consumed):
    """Reward of a domain after so much of it: two learn at their own pace, one can already."""
    middle = {"algebra": 250.0, "logic": 120.0}.get(domain)
    if middle is None:
        return 0.85
    return 0.1 + 0.8 / (1 + math.exp((middle - consumed) / 25))


def consumed_at(world, step, exposure):
    """What reward depends on; ``step`` from 0. Under uniform draws both are the same on average."""
    return exposure if world == "exposure" else EACH * (step + 0.5)


def mean_abs_advantage(solved):
    """Of a group with that many of N solved: 2k(n−k)/n² over the Bessel std."""
    var = solved * (N - solved) / (N * (N - 1))
    return 0.0 if var == 0 else 2 * solved * (N - solved) / N**2 / math.sqrt(var)


def true_run(world, mixer, params, seed):
    """Targets (steps × domains) of a mixer that really steers the world."""
    rng = np.random.default_rng([1, seed, world == "exposure"])
    rule, fixed = slow.PRESETS[mixer]
    settings = {**slow.SHARED, "window_steps": 10, **fixed, **params}
    exposure = dict.fromkeys(DOMAINS, 0)
    p, carry = [1 / 3] * 3, [0.0] * 3
    history, targets = [], []
    for step in range(PLAYED):
        targets.append(p)
        counts, carry = slow.quota(DOMAINS, p, carry, BATCH)
        seen = {}
        for domain, count in zip(DOMAINS, counts, strict=True):
            solved = []
            for _ in range(count):
                rate = solve_rate(domain, consumed_at(world, step, exposure[domain]))
                solved.append(int(rng.binomial(N, rate)))
                exposure[domain] += 1
            if count:
                advantage = math.fsum(map(mean_abs_advantage, solved)) / count
                seen[domain] = slow.Seen(sum(solved) / (N * count), advantage, N * count)
        history.append(slow.Step(step + 1, seen))
        scores = slow.scores_of(rule, settings, DOMAINS, history)
        shares = slow.softmax([s / settings["temperature"] for s in scores])
        p = slow.hold_floor(shares, settings["floor"])
    return targets


@cache
def truths(world, mixer):
    params = dict(MIXERS)[mixer]
    return np.array([true_run(world, mixer, params, seed) for seed in SEEDS])


def uniform_log(folder, world, seed):
    rng = np.random.default_rng([2, seed, world == "exposure"])
    names = [d for d in DOMAINS for _ in range(EACH)]
    steps = []
    for step in range(LOGGED):
        rates = [
            solve_rate(d, consumed_at(world, step, EACH * step + place % EACH))
            for place, d in enumerate(names)
        ]
        columns = exact_step(
            rng.binomial(N, rates).tolist(), N, step=step + 1, domains=names, num_tokens=1
        )
        del columns["old_log_probs"]
        steps.append(columns)
    return trace_of(folder, steps)


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    """world → mixer → clock → targets, seeds × steps × domains."""
    mixes = [build(name, params) for name, params in MIXERS]
    found = {}
    for world in ("exposure", "step"):
        parts = {name: {"exposure": [], "step": []} for name in IDS}
        for seed in SEEDS:
            log = read_log(uniform_log(tmp_path_factory.mktemp("log"), world, seed), mixes)
            for mix in mixes:
                for clock, runs in parts[mix.name].items():
                    run = simulate(mix, log, Candidates("prompts"), clock)
                    runs.append(run.target_SD[:PLAYED])
        found[world] = {m: {c: np.array(r) for c, r in of.items()} for m, of in parts.items()}
    return found


def off(one, two):
    """Mean over steps of the total variation between two mean trajectories, and what chance gives.

    Of two means of K independent runs each, a proportion differs by |z|·SE with SE² = (s₁²+s₂²)/K.
    """
    gap = 0.5 * np.abs(one.mean(axis=0) - two.mean(axis=0)).sum(axis=1).mean()
    error = np.sqrt((one.var(axis=0, ddof=1) + two.var(axis=0, ddof=1)) / len(one))
    return gap, 0.5 * HALF_NORMAL * error.sum(axis=1).mean()


OTHER = {"step": "exposure", "exposure": "step"}


@pytest.mark.parametrize("mixer", IDS)
@pytest.mark.parametrize("world", ["exposure", "step"])
def test_the_clock_of_a_world_reproduces_its_truth(world, mixer, predicted):
    # Were all steps moved as one, the mean over them would be a half-normal |z|·SE: three times its
    # expectation is |z| = 2.4, past which chance goes once in 60.
    assert not np.isnan(predicted[world][mixer][world]).any(), "the log is too short"
    gap, chance = off(predicted[world][mixer][world], truths(world, mixer))
    assert gap < 3 * chance


@pytest.mark.parametrize("mixer", IDS)
@pytest.mark.parametrize("world", ["exposure", "step"])
def test_a_clock_is_clearly_wrong_in_the_other_world(world, mixer, predicted):
    right, chance = off(predicted[world][mixer][world], truths(world, mixer))
    wrong, _ = off(predicted[world][mixer][OTHER[world]], truths(world, mixer))
    assert wrong > 3 * right
    assert wrong > 3 * chance


@pytest.mark.parametrize("mixer", IDS)
@pytest.mark.parametrize("world", ["exposure", "step"])
def test_single_runs_differ_from_the_truth_as_two_true_runs_do(world, mixer, predicted):
    """Prediction and truth have one law, so their distance has that of two true runs."""

    def distances(some, others):
        pairs = ((a, b) for i, a in enumerate(some) for j, b in enumerate(others) if i != j)
        return np.mean([0.5 * np.abs(a - b).sum(axis=1).mean() for a, b in pairs])

    true = truths(world, mixer)
    usual = distances(true, true)
    assert 0.7 * usual < distances(predicted[world][mixer][world], true) < 1.3 * usual


@pytest.mark.parametrize("mixer", IDS)
@pytest.mark.parametrize("world", ["exposure", "step"])
def test_the_band_of_the_two_clocks_covers_both_truths(world, mixer, predicted):
    """From one log, whichever world wrote it, widened by what a single run varies.

    The edge that stands for a world lies about its mean truth by s, the std of a run: within
    1.645 s for 90 % of (step, domain), more where the band is wide.
    """
    runs, covered, alone = predicted[world][mixer], [], []
    width = NormalDist().inv_cdf(0.95)
    for true in ("exposure", "step"):
        middle = truths(true, mixer).mean(axis=0)
        edges = np.stack([runs["step"], runs["exposure"]])
        spread = width * edges.std(axis=1, ddof=1).max(axis=0)
        low, high = edges.min(axis=0) - spread, edges.max(axis=0) + spread
        covered.append(((low <= middle) & (middle <= high)).mean())
        lone = runs[OTHER[true]]
        alone.append((np.abs(lone - middle) <= width * lone.std(axis=0, ddof=1)).mean())
    assert min(covered) > 0.88
    assert max(alone) < 0.75  # neither clock alone covers the other's world
