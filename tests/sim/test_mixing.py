"""Replay of mixers against slow loops of their own: what is asked, drawn, and observed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made import trace_of
from mixing_made import read_log, sampler, scheduled, uneven_trace
from observed import step_of

from dfsim.sim.mix.simulate import Candidates, asked, simulate
from dfsim.sim.replay.loop import columns_for, replay
from dfsim.strategies.build import build
from dfsim.traces.synthetic import exact_step
from reference import mixers_slow as slow

MIXERS = ["reward_gap", "dump_ucb", "dump_ucb@paper", "tscl", "tscl@paper", "reward_gap@asrun"]
SHARED = {"warmup_steps": 1, "update_every_steps": 1}


def played_by_hand(trace, preset, clock, select=None):
    """Targets and draws of a closed loop over single responses; stops where a log runs out."""
    batches = list(trace.batches(["step", "domain", "reward"]))
    domains = trace.manifest.domains
    logged, queue = [], {d: [] for d in domains}
    for batch in batches:
        keep = np.ones(batch.num_responses) if select is None else select.decide(batch).weight_N
        groups = {}
        for i in range(batch.num_responses):
            name = batch.domains[batch.domain_N[i]]
            row = (name, batch.reward_N[i], batch.advantage_N[i], keep[i])
            groups.setdefault((name, batch.group_N[i]), []).append(row)
        logged.append({d: [rows for (of, _), rows in groups.items() if of == d] for d in domains})
        for d in domains:
            queue[d] += logged[-1][d]
    total = [sum(len(step[d]) for step in logged) for d in domains]
    p = [t / sum(total) for t in total]
    carry, history, targets, draws = [0.0] * len(domains), [], [], []
    for batch, here in zip(batches, logged, strict=True):
        counts, carry = slow.quota(domains, p, carry, sum(len(g) for g in here.values()))
        short = [d for d, c in zip(domains, counts, strict=True) if c > len(queue[d])]
        if clock == "exposure" and short:
            break
        targets.append(p)
        draws.append(counts)
        if clock == "exposure":
            places = [d for d, c in zip(domains, counts, strict=True) for _ in range(c)]
            taken = [row for d in places for row in queue[d].pop(0)]
            seen = slow.step_of_rows(batch.step, taken)
        else:
            everything = [row for of in here.values() for rows in of for row in rows]
            seen = slow.step_of_rows(batch.step, everything)
            for d, c in zip(domains, counts, strict=True):
                if d in seen.domains and c:
                    part = seen.domains[d]
                    count = round(part.count / len(here[d]) * c)
                    seen.domains[d] = part._replace(count=count)
                else:
                    seen.domains.pop(d, None)
        history.append(seen)
        p = slow.proposals(preset, {**SHARED, "window_steps": 10}, domains, history)[-1]
    return np.array(targets), np.array(draws)


def replayed(trace, mix, **options):
    """What one sampler's replay gives."""
    return replay(trace, [mix], resamples=2, **options).mixers[mix.name]


# asked


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize("selector", [None, "maxvar", "topk"])
def test_asked_is_the_loop_of_observe_and_propose(name, selector, bundled):
    then = None if selector is None else build(selector, {})
    mix = sampler(name, {"window_steps": 4, "update_every_steps": 2}, then)
    run = asked(mix, read_log(bundled, [mix]))
    domains = bundled.manifest.domains
    batches = list(bundled.batches(columns_for(bundled, [then] if then else [])))
    counts = [[b.domains[c] for c in b.domain_G] for b in batches]
    total = [sum(step.count(d) for step in counts) for d in domains]
    mixer = mix.start(domains, [t / sum(total) for t in total])
    for index, batch in enumerate(batches):
        np.testing.assert_array_equal(run.target_SD[index], mixer.propose())
        assert run.realised_SD[index].tolist() == [counts[index].count(d) for d in domains]
        mixer.observe(step_of(batch, mixer, then.decide(batch) if then else None))
    assert run.clock is None
    assert run.target_SD.std(axis=0).max() > 0.001  # it does move


# Clocks


@pytest.mark.parametrize("name", ["reward_gap", "dump_ucb", "tscl@paper"])
@pytest.mark.parametrize("clock", ["step", "exposure"])
@pytest.mark.parametrize("selector", [None, "maxvar"])
def test_a_closed_loop_is_the_slow_one(name, clock, selector, tmp_path):
    trace = uneven_trace(tmp_path / "t", seed=4, every_domain=True)
    then = None if selector is None else build(selector, {"keep_frac": 0.5})
    mix = sampler(name, {}, then)
    run = simulate(mix, read_log(trace, [mix]), Candidates("prompts"), clock)
    targets, draws = played_by_hand(trace, name, clock, then)
    count = len(targets)
    assert count >= 5
    np.testing.assert_array_equal(run.realised_SD[:count], draws)
    np.testing.assert_allclose(run.target_SD[:count], targets, atol=1e-9)
    assert np.isnan(run.target_SD[count:]).all()
    if clock == "exposure":
        assert count < len(trace.manifest.steps)
        assert run.supported_until == trace.manifest.steps[count].step
        assert np.isnan(run.realised_SD[count:]).all()
        assert np.isnan(run.exposures_SD[count:]).all()
        assert run.replaced_SD[:count].sum() == 0
        assert run.used_up
    else:
        logged = read_log(trace, [mix]).counts_SD
        np.testing.assert_array_equal(run.replaced_SD, np.maximum(draws - logged, 0))
        assert run.supported_until is None
        assert run.used_up == ()


def graded_trace(folder, steps, domains="ab"):
    """Every group of its own mean reward; a step is {domain: [solved, …]} of 8."""
    made = []
    for number, step in enumerate(steps, 1):
        names = [d for d in domains for _ in step.get(d, [])]
        solved = [k for d in domains for k in step.get(d, [])]
        made.append(exact_step(solved, 8, step=number, domains=names, num_tokens=1))
    return trace_of(folder, made)


def test_exposure_takes_each_group_once_in_the_order_of_the_log(tmp_path):
    steps = [{"a": [0, 1], "b": [4, 3]}, {"a": [2, 3], "b": [2, 1]}, {"a": [8, 5], "b": [0, 8]}]
    trace = graded_trace(tmp_path / "t", steps)
    mix = scheduled({1: [0.75, 0.25], 2: [0.25, 0.75], 3: [0.5, 0.5]})
    run = simulate(mix, read_log(trace, [mix]), Candidates("prompts"), "exposure")
    # Draws 3 + 1, then 1 + 3, then 2 + 2: a takes 0 1 2, then 3, then 8 5; b takes 4, 3 2 1, 0 8.
    np.testing.assert_array_equal(run.realised_SD, [[3, 1], [1, 3], [2, 2]])
    np.testing.assert_array_equal(run.exposures_SD, [[3, 1], [4, 4], [6, 6]])
    # live: 1 2 of a's first three and b's 4; 3 and all three; 5 of (8, 5) and neither of (0, 8).
    np.testing.assert_array_equal(run.live_exposures_SD, [[2, 1], [3, 4], [4, 4]])
    # A score is what was seen one step before.
    np.testing.assert_allclose(run.signal_SD[1], [(0 + 1 + 2) / 24, 4 / 8])
    np.testing.assert_allclose(run.signal_SD[2], [3 / 8, (3 + 2 + 1) / 24])
    assert run.supported_until is None


def test_exposure_ends_at_the_first_step_past_the_log(tmp_path):
    trace = graded_trace(tmp_path / "t", [{"a": [1, 2], "b": [3, 4]}] * 4)
    mix = scheduled({t: [1.0, 0.0] for t in range(1, 6)})
    run = simulate(mix, read_log(trace, [mix]), Candidates("prompts"), "exposure")
    # 8 groups of a, four a step: two steps exactly use them up, the third goes past.
    assert run.supported_until == 3
    assert run.used_up == ("a",)
    assert run.exposures_SD[1].tolist() == [8, 0]
    for values in (run.target_SD, run.realised_SD, run.exposures_SD, run.live_exposures_SD):
        assert not np.isnan(values[:2]).any()
        assert np.isnan(values[2:]).all()


def test_the_step_clock_keeps_the_last_value_and_counts(tmp_path):
    steps = [
        {"a": [2, 2], "b": [4, 4]},
        {"a": [6, 6, 6, 6]},
        {"a": [1, 3], "b": [8, 8]},
        {"a": [1]},
    ]
    trace = graded_trace(tmp_path / "t", steps)
    mix = scheduled({t: [0.5, 0.5] for t in range(1, 6)})
    run = simulate(mix, read_log(trace, [mix]), Candidates("prompts"), "step")
    np.testing.assert_allclose(run.signal_SD[1:4], [[0.25, 0.5], [0.75, 0.5], [0.25, 1.0]])
    np.testing.assert_array_equal(run.replaced_SD[:3], [[0, 0], [0, 2], [0, 0]])


def test_the_step_clock_knows_what_was_logged_while_nothing_was_drawn(tmp_path):
    """Performance depends on time: the newest logged value is the last one, drawn or not."""
    steps = [{"a": [2, 2], "b": [4, 4]}, {"a": [2, 2], "b": [7, 7]}, {"a": [2, 2, 2, 2]}]
    trace = graded_trace(tmp_path / "t", [*steps, {"a": [2, 2]}])
    mix = scheduled({1: [0.5, 0.5], 2: [1.0, 0.0], 3: [0.5, 0.5], 4: [0.5, 0.5]})
    run = simulate(mix, read_log(trace, [mix]), Candidates("prompts"), "step")
    np.testing.assert_allclose(run.signal_SD[3], [0.25, 7 / 8])


# Candidates


@pytest.mark.parametrize("clock", ["step", "exposure"])
def test_sync_realises_the_logged_counts(clock, bundled):
    result = replayed(bundled, build("dump_ucb@paper"), candidates="sync", clocks=[clock])
    expected = [
        [np.sum(np.array(b.domains)[b.domain_G] == d) for d in bundled.manifest.domains]
        for b in bundled.batches(["domain"])
    ]
    np.testing.assert_array_equal(result.runs[clock].realised_SD, expected)
    assert "mix_vacuous" in {d.name for d in result.diagnosis()}
    assert result.runs[clock].surplus_S.sum() == 0


@pytest.mark.parametrize("name", ["reward_gap", "dump_ucb@paper", "tscl"])
def test_prompts_follow_the_cumulative_target(name, bundled):
    """What quotas carry is target less draws: above −1 each, summing to 0, so below D − 1."""
    result = replayed(bundled, build(name), clocks=["step"])
    run = result.runs["step"]
    size = run.realised_SD.sum(axis=1, keepdims=True)
    behind = (run.target_SD * size - run.realised_SD).cumsum(axis=0)
    assert (behind > -1).all()
    assert (behind < len(bundled.manifest.domains) - 1).all()
    assert "mix_vacuous" not in {d.name for d in result.diagnosis()}


@pytest.mark.parametrize("batches", [1.0, 1.5, 2.0, 5.0])
@pytest.mark.parametrize("name", ["dump_ucb@paper", "reward_gap"])
def test_oversampling_draws_from_the_pool(name, batches, bundled):
    mix = build(name, {})
    log = read_log(bundled, [mix])
    run = simulate(mix, log, Candidates("oversample", batches), "step")
    pool = [[math.floor(batches * c + 1e-9) for c in step] for step in log.counts_SD.tolist()]
    np.testing.assert_array_equal(run.candidates_SD, pool)
    assert (run.realised_SD <= run.candidates_SD).all()
    np.testing.assert_array_equal(run.realised_SD.sum(axis=1), log.counts_SD.sum(axis=1))
    surplus = [sum(p) - sum(c) for p, c in zip(pool, log.counts_SD.tolist(), strict=True)]
    assert run.surplus_S.tolist() == surplus
    if batches == 1:
        np.testing.assert_array_equal(run.realised_SD, log.counts_SD)


def test_a_pool_of_many_batches_gives_what_prompts_give(bundled):
    mix = build("reward_gap", {})
    log = read_log(bundled, [mix])
    wide = simulate(mix, log, Candidates("oversample", 50.0), "step")
    free = simulate(mix, log, Candidates("prompts"), "step")
    np.testing.assert_array_equal(wide.realised_SD, free.realised_SD)


def test_a_pool_is_not_short_by_rounding(tmp_path):
    trace = graded_trace(tmp_path / "t", [{"a": [1] * 100, "b": [2] * 100}])
    mix = scheduled({1: [0.5, 0.5]})
    log = read_log(trace, [mix])
    run = simulate(mix, log, Candidates("oversample", 1.15), "step")
    assert run.candidates_SD.tolist() == [[115, 115]]  # 1.15·100 is 114.99999999999999 in floats


# Pipelines and hostile logs


def test_a_pipeline_observes_kept_responses_only(bundled):
    maxvar = build("maxvar", {"keep_frac": 0.25})
    mix = sampler("dump_ucb", {}, maxvar)
    log = read_log(bundled, [mix])
    batches = bundled.batches(["step", "domain", "reward"])
    for batch, seen in zip(batches, log.steps[mix.name], strict=True):
        assert (np.bincount(batch.group_N) == 8).all()
        expected = [2 * np.sum(batch.domain_G == d) for d in range(len(log.domains))]
        assert seen.responses_U.tolist() == expected  # a quarter of eight


def test_a_sweep_of_the_selector_gives_each_its_own_observations(bundled):
    mixes = []
    for value in (0.25, 0.75):
        mix = build("dump_ucb+maxvar", {"keep_frac": value})
        mixes.append(replace(mix, name=f"m{value}"))
    log = read_log(bundled, mixes)
    first, second = (log.steps[m.name][0].responses_U.sum() for m in mixes)
    assert (first, second) == (24 * 2, 24 * 6)


@pytest.mark.parametrize("name", ["reward_gap", "dump_ucb", "tscl", "tscl@paper"])
def test_ten_domains_exhausted_unseen_and_without_rewards(name, tmp_path):
    domains = [f"d{i}" for i in range(10)]
    steps = []
    for step in range(1, 13):
        # d0 is logged in the first two steps only, d8 from step 7 on; all of d9's rewards are NaN.
        here = [d for d in domains if (d != "d0" or step < 3) and (d != "d8" or step > 6)]
        names = [d for d in here for _ in range(3)]
        solved = [(step * 3 + i) % 8 for i in range(len(names))]
        columns = exact_step(solved, 8, step=step, domains=names, num_tokens=1)
        gone = columns["domain"] == "d9"
        columns["reward"] = np.where(gone, np.nan, columns["reward"])
        steps.append(columns)
    trace = trace_of(tmp_path / "t", steps)
    result = replayed(trace, build(name, {"floor": 0.02}))
    step, exposure = result.runs["step"], result.runs["exposure"]
    assert step.unseen == ("d9",)
    assert result.asked.unseen == ("d9",)
    np.testing.assert_allclose(step.target_SD.sum(axis=1), 1)
    assert (step.target_SD[1:] >= 0.02 - 1e-12).all()
    # d0 has 6 groups, the fewest. tscl@paper takes what has no slope for the steepest: d9, always.
    first = "d9" if name == "tscl@paper" else "d0"
    assert first in exposure.used_up
    said = {d.name: d.message for d in result.diagnosis()}
    assert "d9" in said["domain_unseen"]
    assert first in said["log_used_up"]


def test_nan_rewards_count_alike_in_asked_and_replayed(tmp_path):
    """A response without a reward is no observation, whichever way it is read."""
    columns = exact_step([2, 3, 4, 5], 8, step=1, domains=list("aabb"), num_tokens=1)
    columns["reward"][:5] = np.nan
    trace = trace_of(tmp_path / "t", [columns])
    mix = scheduled({1: [0.5, 0.5]})
    log = read_log(trace, [mix])
    seen = log.steps[mix.name][0]
    assert seen.responses_U.tolist() == [11, 16]
    table = log.tables[""].observe(1, np.arange(4), log.units["domain"])
    assert table.responses_U.tolist() == [11, 16]
    np.testing.assert_allclose(table.reward_U, seen.reward_U)
    np.testing.assert_allclose(table.advantage_U, seen.advantage_U)
