"""Each finding on a trace that holds it and nothing else, and on its nearest neighbour."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from made import solved_trace, trace_of

import dfsim
from dfsim.strategies.base import Decision
from dfsim.strategies.build import build, build_own
from dfsim.traces.synthetic import exact_step

HALF_SOLVED = [4] * 8  # eight groups of eight, half of each solved: every |A| is the same


def diagnosed(trace, strategy, **options):
    """Finding name → finding."""
    if isinstance(strategy, type):
        strategy = build_own(strategy, strategy.__name__, {}, 0)
    elif isinstance(strategy, str):
        strategy = build(strategy)
    result = dfsim.replay(trace, [strategy], resamples=2, **options).strategies[strategy.name]
    for finding in result.diagnosis:
        assert strategy.name in finding.message
        json.dumps(finding.to_dict(), allow_nan=False)
    found = {d.name: d for d in result.diagnosis}
    assert len(found) == len(result.diagnosis) or "domain_starved" in found
    return found


@dataclass(frozen=True)
class BySign:
    """Weight of positive advantages, of negative ones, of none."""

    up: float = 1.0
    down: float = 1.0
    zero: float = 1.0

    def weights(self, batch):
        sign = np.sign(np.where(np.abs(batch.advantage_N) > 1e-9, batch.advantage_N, 0))
        return np.select([sign > 0, sign < 0], [self.up, self.down], self.zero)


def by_sign(up=1.0, down=1.0, zero=1.0):
    return build_own(BySign, "own", {"up": up, "down": down, "zero": zero}, 0)


@pytest.fixture
def even(tmp_path):
    return solved_trace(tmp_path, [HALF_SOLVED], 8)


def test_small_imbalance_is_no_finding(even):
    assert diagnosed(even, by_sign(1.15, 0.85)) == {}


def test_the_baseline_has_no_finding(even):
    assert dfsim.replay(even, ["none"], resamples=2).strategies["none"].diagnosis == []


# no_op


def test_no_op_is_the_quantile_band_over_a_middling_mean(tmp_path):
    """Mean .5: both quantiles' values are 0 and 1, so every response is inside the band."""
    trace = solved_trace(tmp_path, [HALF_SOLVED, [7] * 8, HALF_SOLVED], 8)
    found = diagnosed(trace, "diffband")
    assert found["no_op"].evidence == {"share": 2 / 3, "steps": [1, 3]}
    assert "on 2 of 3 steps" in found["no_op"].message
    always = solved_trace(tmp_path / "always", [HALF_SOLVED], 8)
    assert set(diagnosed(always, "diffband")) == {"no_op"}
    never = solved_trace(tmp_path / "never", [[7] * 8], 8)
    assert "no_op" not in diagnosed(never, "diffband")


def test_keeping_everything_is_a_no_op(even):
    assert set(diagnosed(even, "dapo")) == {"no_op"}
    everything = build("topk", {"fraction": 1.0})
    assert set(diagnosed(even, everything)) == {"no_op"}


def test_a_constant_weight_is_a_no_op_of_another_scale(even):
    found = diagnosed(even, by_sign(2.0, 2.0, 2.0))
    assert set(found) == {"no_op", "scale_shift"}
    assert "but for a loss 2.00 times as large" in found["no_op"].message
    assert "times as large" not in diagnosed(even, by_sign())["no_op"].message


def test_equal_weights_with_replaced_advantages_are_no_no_op(even):
    class Recentred:
        def weights(self, batch):
            return Decision(np.ones(batch.num_responses), advantage_N=0.9 * batch.advantage_N)

    assert "no_op" not in diagnosed(even, Recentred)


def test_rare_uniform_steps_are_not_reported(tmp_path):
    class Once:
        def weights(self, batch):
            return (
                BySign(1.1, 0.9).weights(batch) if batch.step > 1 else np.ones(len(batch.group_N))
            )

    for steps, reported in ((10, True), (11, False)):
        trace = solved_trace(tmp_path / str(steps), [HALF_SOLVED] * steps, 8)
        assert ("no_op" in diagnosed(trace, Once)) is reported


# scale_shift


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("AdamW", ["AdamW and gradient clipping cancel a constant factor", "KL and entropy"]),
        ("SGD", ["Under SGD that is a learning rate × 0.50", "run `none` with it"]),
        (None, ["names no optimizer", "AdamW and clipping", "Under SGD"]),
    ],
)
def test_scale_shift_names_the_optimizer(tmp_path, optimizer, words):
    config = {"optimizer": optimizer} if optimizer else {}
    trace = solved_trace(tmp_path, [[*HALF_SOLVED, 0]], 8, config=config)
    found = diagnosed(trace, by_sign(0.5, 0.5))
    assert set(found) == {"scale_shift"}
    assert found["scale_shift"].evidence["signal_scale"] == pytest.approx(0.5)
    assert all(part in found["scale_shift"].message for part in words)


@pytest.mark.parametrize(
    ("scale", "reported"), [(0.79, True), (0.81, False), (1.24, False), (1.26, True)]
)
def test_scale_shift_has_a_band(tmp_path, scale, reported):
    trace = solved_trace(tmp_path, [[*HALF_SOLVED, 0]], 8)
    assert ("scale_shift" in diagnosed(trace, by_sign(scale, scale))) is reported


def test_scale_shift_says_how_much_it_varies(tmp_path):
    class Alternating:
        def weights(self, batch):
            scale = 2.0 if batch.step % 2 else 3.0
            return BySign(scale, scale).weights(batch)

    trace = solved_trace(tmp_path, [[*HALF_SOLVED, 0]] * 2, 8)
    expected = np.std([2, 3], ddof=1) / 2.5
    found = diagnosed(trace, Alternating)["scale_shift"]
    assert found.evidence["signal_scale_cv"] == pytest.approx(expected)
    assert "varying by 28% over steps" in found.message


# biased_groups, one_sided


@pytest.mark.parametrize(("up", "down", "word"), [(1.5, 0.5, "up"), (0.5, 1.5, "down")])
def test_biased_groups(even, up, down, word):
    """Half of each sign: |Σ wA| / Σ w|A| = |up − down| / (up + down) = .5; the scale stays 1."""
    found = diagnosed(even, by_sign(up, down))
    assert set(found) == {"biased_groups"}
    assert found["biased_groups"].evidence["group_bias"] == pytest.approx(0.5)
    assert f"pushes responses {word}" in found["biased_groups"].message


def test_one_sided_is_also_biased(even):
    found = diagnosed(even, by_sign(2.0, 0.0))
    assert set(found) == {"biased_groups", "one_sided"}
    assert found["one_sided"].evidence["one_sided_frac"] == 1.0
    assert found["biased_groups"].evidence["positive_share"] == 1.0


def test_half_of_the_groups_one_sided_is_not_most(tmp_path):
    class HalfOfThem:
        def weights(self, batch):
            sided = BySign(2.0, 0.0).weights(batch)
            return np.where(batch.group_N % 2 == 0, sided, 1.0)

    found = diagnosed(solved_trace(tmp_path, [HALF_SOLVED], 8), HalfOfThem)
    assert set(found) == {"biased_groups"}


def test_the_paper_s_variant_is_the_cure_for_maxvar_only(tmp_path):
    """n = 8, 6 solved: maxvar keeps 2 of each, A = +.54 and −1.62, so bias .5."""
    trace = solved_trace(tmp_path, [[6] * 8], 8)
    assert "maxvar@paper re-normalises" in diagnosed(trace, "maxvar")["biased_groups"].message
    assert "biased_groups" not in diagnosed(trace, "maxvar@paper")
    assert "@paper" not in diagnosed(trace, by_sign(1.5, 0.5))["biased_groups"].message


# thin_batch, empty_step


class First:
    """All weight on the first ``kept`` of eight groups, so that the scale stays 1."""

    kept: int = 1

    def weights(self, batch):
        return np.where(batch.group_N < self.kept, 8 / self.kept, 0.0)


@pytest.mark.parametrize(("kept", "thin"), [(1, True), (3, True), (5, False)])
def test_thin_batch(even, kept, thin):
    found = diagnosed(even, build_own(First, "own", {"kept": kept}, 0))
    assert set(found) == ({"thin_batch"} if thin else set())
    if thin:
        expected = pytest.approx({"effective_batch": kept, "none": 8})
        assert found["thin_batch"].evidence == expected


def test_empty_step(tmp_path):
    class NotTheThird:
        def weights(self, batch):
            uneven = BySign(1.1, 0.9).weights(batch)
            return uneven * (0.0 if batch.step == 3 else 1.0)

    trace = solved_trace(tmp_path, [HALF_SOLVED] * 12, 8)
    found = diagnosed(trace, NotTheThird)
    assert set(found) == {"empty_step"}
    assert found["empty_step"].evidence == {"steps": [3]}
    assert "on 1 of 12 steps" in found["empty_step"].message


def test_a_run_that_keeps_nothing_is_not_said_to_starve_each_domain(tmp_path):
    step = exact_step(HALF_SOLVED, 8, domains=["a", "b"] * 4)
    found = diagnosed(trace_of(tmp_path, [step]), by_sign(0.0, 0.0, 0.0))
    assert set(found) == {"empty_step", "thin_batch", "scale_shift"}
    assert "Nothing is left to learn from" in found["scale_shift"].message
    assert "AdamW" not in found["scale_shift"].message


# tie_break


def test_tie_break_counts_the_tied(even):
    class Tied:
        share: float = 1.0

        def weights(self, batch):
            tied = np.arange(batch.num_responses) < self.share * batch.num_responses
            return Decision(BySign(1.1, 0.9).weights(batch), tied_N=tied)

    assert set(diagnosed(even, Tied)) == {"tie_break"}
    few = build_own(Tied, "own", {"share": 0.09}, 0)
    assert diagnosed(even, few) == {}


def test_topk_ties_where_advantages_have_few_levels(tmp_path):
    """All 64 |A| are one value: every decision is a tie; distinct ones leave none."""
    trace = solved_trace(tmp_path / "a", [HALF_SOLVED], 8)
    assert diagnosed(trace, "topk")["tie_break"].evidence == {"tied_frac": 1.0}
    rng = np.random.default_rng(1)
    graded = {**exact_step(HALF_SOLVED, 8), "reward": rng.random(64)}
    assert "tie_break" not in diagnosed(trace_of(tmp_path / "b", [graded]), "topk")


# splits_nothing


def test_splits_nothing_is_dropping_what_has_no_advantage(tmp_path):
    trace = solved_trace(tmp_path, [[0, 8, *HALF_SOLVED]], 8)
    found = diagnosed(trace, "dapo")
    assert set(found) == {"splits_nothing"}
    assert found["splits_nothing"].evidence == {"dropped": 16, "refill_factor": 10 / 8}
    assert "splits_nothing" not in diagnosed(trace, by_sign(1.1, 0.9, 0.0))
    with_one_live = solved_trace(tmp_path / "live", [[0, 1, *HALF_SOLVED]], 8)
    assert "splits_nothing" not in diagnosed(with_one_live, "difffilter")


def test_a_solved_group_of_one_has_an_advantage_to_lose(tmp_path):
    """verl gives a group of one A = r, so dapo drops signal there."""
    columns = exact_step([1, 1, 1], 1)
    trace = trace_of(tmp_path, [columns, exact_step([2, 0], 4, step=2)])
    assert "splits_nothing" not in diagnosed(trace, "dapo")


# kl_dominates


def with_reference(columns, gap):
    values, lengths = columns["old_log_probs"]
    return {**columns, "ref_log_probs": (values + np.float32(gap), lengths)}


@pytest.mark.parametrize(
    ("gap", "weight", "reported"),
    [(0.5, 0.9, True), (0.5, 1.0, False), (0.0, 0.9, False), (None, 0.9, False)],
)
def test_kl_dominates(tmp_path, gap, weight, reported):
    """Weights .9 where there is signal keep every row: the ratio rises 1/.9, rows explain 1."""
    step = exact_step([*HALF_SOLVED, 0], 8)
    columns = step if gap is None else with_reference(step, gap)
    found = diagnosed(trace_of(tmp_path, [columns]), by_sign(weight, weight))
    assert ("kl_dominates" in found) is reported
    assert set(found) <= {"kl_dominates", "no_op"}
    if reported:
        evidence = found["kl_dominates"].evidence
        assert evidence["ratio_rise"] == pytest.approx(1 / 0.9)
        k3 = math.exp(gap) - gap - 1  # per token; the mean over tokens is the same
        signal = 0.9 * 8 / 9 * math.sqrt(7 / 8)  # |A| = √(1·7/8) in 8 of 9 groups
        assert evidence["kl_to_policy_gradient"] == pytest.approx(k3 / signal, rel=1e-4)


def test_dropping_rows_evenly_does_not_make_kl_dominate(tmp_path):
    class EveryOther:
        kind = "select"

        def weights(self, batch):
            return (batch.rollout_idx_N % 2).astype(float)

    step = with_reference(exact_step(HALF_SOLVED, 8), 0.3)
    assert "kl_dominates" not in diagnosed(trace_of(tmp_path, [step]), EveryOther)


# domain_starved


@pytest.mark.parametrize(("weight", "starved"), [(0.0, True), (0.05, True), (0.2, False)])
def test_domain_starved(tmp_path, weight, starved):
    """Six groups of a, ten of b: without weights a has 6/16 of the signal."""

    class Favours:
        small: float = 1.0

        def weights(self, batch):
            large = (16 - 6 * self.small) / 10
            return np.where(batch.group_N < 6, self.small, large)

    step = exact_step([4] * 16, 8, domains=["a"] * 6 + ["b"] * 10)
    trace = trace_of(tmp_path, [step])
    found = diagnosed(trace, build_own(Favours, "own", {"small": weight}, 0))
    assert set(found) == ({"domain_starved"} if starved else set())
    if starved:
        evidence = found["domain_starved"].evidence
        assert evidence["domain"] == "a"
        assert evidence["none"] == pytest.approx(6 / 16)
        assert evidence["signal_share"] == pytest.approx(6 * weight / 16)


# prefers_long


@pytest.mark.parametrize(
    ("low", "metric", "reported"),
    [(-1.0, "efficiency", True), (0.0, "efficiency", False), (-1.0, "short", False)],
)
def test_prefers_long(tmp_path, low, metric, reported):
    step = exact_step(HALF_SOLVED, 8)
    step["reward"] = np.where(step["reward"] > 0, 1.0, low)
    strategy = build("gfpo", {"metric": metric})
    found = diagnosed(trace_of(tmp_path, [step]), strategy)
    assert ("prefers_long" in found) is reported
    if reported:
        assert found["prefers_long"].evidence == {"negative_frac": 0.5}
