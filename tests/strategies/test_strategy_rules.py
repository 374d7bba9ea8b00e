"""Every preset against an independent slow implementation, and the goldens derived by hand."""

from __future__ import annotations

import numpy as np
import pytest
from rows import keys_of, rows_of

from dfsim.strategies.build import build
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.advantage import AdvantageConfig, advantages
from dfsim.traces.assemble import from_columns
from dfsim.traces.synthetic import random_step
from reference import strategies_slow as slow

SELECTORS = [n for n in WEIGHING if build(n).kind == "select"]
PARAMS = {
    "difffilter": [{}, {"low": 0.3, "high": 0.7}, {"success_threshold": 0.0}],
    "dapo": [{}, {"reward_tol": 0.3}, {"metric": "num_tokens", "reward_tol": 2.0}],
    "maxvar": [{}, {"keep_frac": 0.25}, {"keep_frac": 0.7}, {"keep_frac": 1.0}],
    "gfpo": [{}, {"k": 1}, {"metric": "short"}],
    "topk": [{}, {"fraction": 0.1}, {"fraction": 1.0}],
    "softmax": [{}, {"temperature": 0.2}],
    "per": [{}, {"alpha": 1.3}, {"alpha": 0.0}],
    "diffband": [{}, {"low_q": 0.1, "high_q": 0.6, "focus_weight": 5.0}],
    "ar": [{}, {"alpha": 0.9}],
    "maxvar@paper": [{}, {"keep_frac": 0.3}],
    "gfpo@paper": [{}, {"k": 2, "metric": "short"}],
    "ar@paper": [{}],
    "none": [{}],
}


def batch_of(rewards, lengths=None, log_probs=None, uids=None):
    """One group a list of rewards."""
    uid = [u for u, group in zip(uids or "abcdefgh", rewards, strict=False) for _ in group]
    columns = {
        "step": 1,
        "group_uid": uid,
        "rollout_idx": [i for group in rewards for i in range(len(group))],
        "reward": [r for group in rewards for r in group],
    }
    if lengths is not None:
        columns["num_tokens"] = lengths
    if log_probs is not None:
        columns["old_log_probs"] = (
            [p for row in log_probs for p in row],
            [len(r) for r in log_probs],
        )
    return from_columns(columns)


def assert_as_reference(batch, preset, params, tie_seed=0):
    decision = build(preset, params, tie_seed=tie_seed).decide(batch)
    config = batch.advantage_config
    expected = slow.weights(
        preset,
        rows_of(batch),
        step=batch.step,
        tie_seed=tie_seed,
        eps=config.eps,
        norm_by_std=config.adv_estimator == "grpo",
        **params,
    )
    keys = keys_of(batch)
    wanted = np.array([expected.weight[k] for k in keys])
    tolerance = 0 if preset in SELECTORS else 1e-12
    np.testing.assert_allclose(decision.weight_N, wanted, rtol=tolerance, atol=0, err_msg=preset)
    if expected.token_weights is not None:
        wanted = [w for k in keys for w in expected.token_weights[k]]
        np.testing.assert_allclose(decision.token_weight_T, wanted, rtol=1e-12)
    assert (expected.advantage is None) == (decision.advantage_N is None)
    if expected.advantage is not None:
        wanted = np.array([expected.advantage[k] for k in keys])
        np.testing.assert_allclose(decision.advantage_N, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("preset", WEIGHING)
def test_random_batches(preset):
    rng = np.random.default_rng(20260721)
    for i in range(200):
        batch = from_columns(random_step(rng, nan_rewards=i % 5 == 4))
        for params in PARAMS[preset]:
            assert_as_reference(batch, preset, params, tie_seed=i % 3)


def test_every_preset_is_compared():
    assert set(PARAMS) == set(WEIGHING)


@pytest.mark.parametrize("adv_estimator", ["grpo", "dr_grpo", "rloo"])
def test_advantages_as_reference(adv_estimator):
    rng = np.random.default_rng(7)
    for _ in range(100):
        batch = from_columns(random_step(rng))
        got = advantages(
            batch.reward_N, batch.group_offsets, AdvantageConfig(adv_estimator, eps=1e-6)
        )
        rows = rows_of(batch)
        if adv_estimator == "rloo":
            expected = slow.rloo_advantages(rows)
        else:
            expected = slow.grpo_advantages(rows, norm_by_std=adv_estimator == "grpo")
        wanted = [expected[k] for k in keys_of(batch)]
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)


def test_maxvar_keeps_one_of_each():
    kept = build("maxvar").decide(batch_of([[1, 1, 0, 0]])).weight_N
    np.testing.assert_array_equal(kept, [1, 0, 1, 0])


def test_maxvar_rounds_half_to_even_and_leaves_a_sum():
    batch = batch_of([[0, 1, 0, 0, 0]])
    kept = build("maxvar").decide(batch).weight_N
    np.testing.assert_allclose(np.sort(batch.advantage_N[kept > 0]), [-0.447, 1.789], atol=5e-4)
    assert (kept * batch.advantage_N).sum() == pytest.approx(1.342, abs=5e-4)


def test_maxvar_of_two_keeps_the_higher():
    np.testing.assert_array_equal(build("maxvar").decide(batch_of([[-1, 0.1]])).weight_N, [0, 1])


def test_gfpo_keeps_the_shortest_solved():
    batch = batch_of([[1, 1, 1]], lengths=[10, 5, 20])
    np.testing.assert_array_equal(build("gfpo", {"k": 1}).decide(batch).weight_N, [0, 1, 0])


def test_diffband_at_mean_85():
    weight = build("diffband").decide(batch_of([[1] * 17 + [0] * 3])).weight_N
    assert weight[0] == pytest.approx(1.08, abs=0.005)
    assert weight[-1] == pytest.approx(0.54, abs=0.005)


def test_per_inflates_live_rows_by_five_when_eight_in_ten_are_dead():
    groups = [[1, 1]] * 4 + [[1, 0]]
    weight = build("per").decide(batch_of(groups)).weight_N
    assert weight[-1] == pytest.approx(5.0, rel=1e-3)


def test_difffilter_at_five_keeps_two_and_three():
    groups = [[1.0] * k + [0.0] * (5 - k) for k in range(6)]
    kept = build("difffilter").decide(batch_of(groups)).weight_N[::5]
    np.testing.assert_array_equal(kept, [0, 0, 1, 1, 0, 0])


@pytest.mark.parametrize("count", range(3, 31))
def test_diffband_is_a_no_op_exactly_where_the_band_holds_both_rewards(count):
    for solved in range(count + 1):
        weight = build("diffband").decide(batch_of([[1.0] * solved + [0.0] * (count - solved)]))
        edges = 0.25 * count + 0.75 <= solved <= 0.75 * count - 0.75
        no_op = len(np.unique(weight.weight_N)) == 1
        assert no_op == (edges or solved in (0, count))


def test_log_prob_without_a_value_keeps_weight_one():
    batch = batch_of([[1, 0]], log_probs=[[-1.0, np.nan], [-2.0, -np.inf]])
    weight = build("ar").decide(batch).token_weight_T
    assert weight[1] == 1.0
    assert np.isfinite(weight).all()
    assert weight[[0, 2, 3]].mean() == pytest.approx(1.0)


@pytest.mark.parametrize("preset", WEIGHING)
def test_bundled_trace(preset, bundled):
    columns = ["num_tokens", "old_log_probs", "prompt_id", "advantage"]
    for batch in bundled.batches(columns):
        assert_as_reference(batch, preset, {})
