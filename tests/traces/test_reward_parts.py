"""Which reward columns and which rule of TRL give the stored advantages: each rule by hand."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from dumps import Desk, trl_folder

from dfsim.traces.checks.reward_parts import RewardBatch, find_parts, parts_of, reproduce

EPS = 1e-4
N = 4


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def drawn(seed, groups=6, names=("exact_reward", "format_reward")):
    """Values of reward functions, a list a function."""
    random.seed(seed)
    return {
        name: [random.choice([0.0, 1.0, 0.25 * (k + 1)]) for _ in range(groups * N)]
        for k, name in enumerate(names)
    }


def blocks(values):
    return [values[i : i + N] for i in range(0, len(values), N)]


def centred(values, std=True):
    """Less the group's mean, over its deviation + eps."""
    out = []
    for group in blocks(values):
        mean, spread = statistics.fmean(group), statistics.stdev(group) + EPS if std else 1.0
        out += [(v - mean) / spread for v in group]
    return out


def weighted(columns, weights):
    return [
        sum(w * columns[c][i] for c, w in weights.items())
        for i in range(len(columns[next(iter(columns))]))
    ]


def by_rule(rule, columns, weights):
    """Advantages of a step as TRL computes them (GRPOTrainer, scale_rewards and aggregation)."""
    if rule == "gdpo":
        total = weighted({c: centred(columns[c]) for c in weights}, weights)
        mean, spread = statistics.fmean(total), statistics.stdev(total)
        return [(t - mean) / (spread + EPS) for t in total]
    total = weighted(columns, weights)
    if rule == "grpo_batch":
        spread = statistics.stdev(total) + EPS
        return [a / spread for a in centred(total, std=False)]
    return centred(total, std=rule == "grpo")


def batch_of(columns, advantage):
    return RewardBatch(
        {c: np.array(v) for c, v in columns.items()},
        np.array(advantage),
        np.arange(0, len(advantage) + 1, N),
    )


RULES = ["grpo", "dr_grpo", "grpo_batch", "gdpo"]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_reproduced(rule):
    columns = drawn(0)
    weights = {"exact_reward": 1.0, "format_reward": 0.5}
    stored = by_rule(rule, columns, weights)
    again = reproduce(batch_of(columns, stored), weights, rule)
    assert again.tolist() == pytest.approx(stored, abs=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_and_unequal_weights_are_found(rule):
    steps = [drawn(seed) for seed in range(4)]
    weights = {"exact_reward": 1.0, "format_reward": 0.5}
    parts = find_parts([batch_of(c, by_rule(rule, c, weights)) for c in steps], list(weights))
    assert parts.rule == rule
    assert dict(parts.weights) == pytest.approx(weights, abs=1e-3)
    assert parts.solved


@pytest.mark.parametrize("rule", RULES)
def test_weights_of_one_need_no_solving(rule):
    columns = drawn(1)
    ones = dict.fromkeys(columns, 1.0)
    parts = find_parts([batch_of(columns, by_rule(rule, columns, ones))], list(columns))
    assert (parts.rule, dict(parts.weights), parts.solved) == (rule, ones, False)


def test_a_penalty_under_another_name_is_part_of_the_reward():
    columns = drawn(2)
    columns["overlong_penalty"] = [-0.5 * (i % 3 == 0) for i in range(24)]
    ones = dict.fromkeys(columns, 1.0)
    stored = by_rule("grpo", columns, ones)
    parts = find_parts([batch_of(columns, stored)], ["exact_reward", "format_reward"])
    assert (parts.rule, dict(parts.weights)) == ("grpo", ones)


def test_a_column_that_is_logged_and_not_rewarded_is_left_out():
    columns = drawn(3)
    stored = by_rule("grpo", columns, {"exact_reward": 1.0})
    parts = find_parts([batch_of(columns, stored)], list(columns))
    assert (parts.rule, dict(parts.weights)) == ("grpo", {"exact_reward": 1.0})


def test_advantages_of_nothing_logged_are_not_explained():
    columns = drawn(4)
    random.seed(9)
    stored = [random.gauss(0, 1) for _ in range(24)]
    assert find_parts([batch_of(columns, stored)], list(columns)) is None
    assert parts_of([batch_of(columns, stored)], {"exact_reward": 1.0}) is None


def test_advantages_of_0_explain_nothing():
    columns = drawn(5)
    assert find_parts([batch_of(columns, [0.0] * 24)], list(columns)) is None


@pytest.mark.parametrize("rule", RULES)
def test_a_trl_log_is_read_without_weights(desk, tmp_path, rule):
    steps = {step: drawn(10 + step) for step in (1, 2, 3)}
    files = {}
    for step, columns in steps.items():
        advantage = by_rule(rule, columns, dict.fromkeys(columns, 1.0))
        files[step] = [
            {
                "step": step, "prompt": f"p{step}-{i // N}", "completion": f"{step} {i}",
                **{c: v[i] for c, v in columns.items()}, "advantage": advantage[i],
            }
            for i in range(24)
        ]  # fmt: skip
    summary, trace = desk(trl_folder(tmp_path / "trl", files))
    assert [f.name for f in summary.findings] == []
    told = {"grpo": "grpo", "dr_grpo": "dr_grpo", "grpo_batch": "grpo_batch"}.get(rule)
    assert told is None or trace.manifest.config["adv_estimator"] == told
    (first, *_) = [frame for _, frame in trace.frames(["reward", "advantage"])]
    total = weighted(steps[1], dict.fromkeys(steps[1], 1.0))
    assert first["reward"].to_list() == pytest.approx(total)
    stored = by_rule(rule, steps[1], dict.fromkeys(steps[1], 1.0))
    assert first["advantage"].to_list() == pytest.approx(stored)
