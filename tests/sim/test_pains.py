"""Pains of real users as small tests, numbered as in section 3 of the collection they come from."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import polars as pl
import pytest
from dumps import Desk, trl, trl_folder, v0, v1
from made import solved_trace, trace_of
from typer.testing import CliRunner

import dfsim
from dfsim.cli.app import app
from dfsim.sim.estimators import estimate_step
from dfsim.sim.estimators.aggregation import LOSS_AGG_MODES, coefficients
from dfsim.sim.estimators.terms import StepTerms, Weighted
from dfsim.sim.inspect.census import census
from dfsim.sim.replay.diagnosis import FACTS, step_facts
from dfsim.strategies.base import Decision, selection
from dfsim.strategies.build import build
from dfsim.traces.advantage import AdvantageConfig, advantages
from dfsim.traces.assemble import from_columns
from dfsim.traces.errors import TraceError
from dfsim.traces.synthetic import exact_step

NOT_HERE = {
    2: "refill is not simulated: replay gives refill_factor, no abort probability",
    3: "refill is not simulated: no fetch sizes",
    7: "refill is not simulated: no loader to exhaust",
    15: "refill is not simulated: no buffer of replaced groups",
    37: "off-policy weights are a live trainer's; a replay reads what was logged",
    39: "mixing comes later",
    40: "mixing comes later",
    42: "compares benchmark scores of finished runs: screening comes later",
    43: "the pass-rate sampler is a live sampler",
    44: "resuming is the live sampler's",
    45: "resuming is the live sampler's",
    46: "a log holds no durations of what was still in flight",
}

PAINS = [*range(1, 4), *range(5, 12), 13, 14, 15, *range(17, 22), 23, 24, 26, 28, 29, 30]
PAINS += [*range(32, 38), 39, 40, *range(42, 49), 50, 52]


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def one_group(rewards, config=None, **columns):
    """A batch of one group of one-token responses."""
    count = len(rewards)
    base = {"step": 1, "group_uid": ["g"] * count, "reward": rewards, "num_tokens": [1] * count}
    return from_columns({**base, **columns}, advantage_config=config)


def groups(*patterns):
    """A batch of binary groups, written as ``1010``."""
    uid = [f"g{i}" for i, text in enumerate(patterns) for _ in text]
    reward = [float(r) for text in patterns for r in text]
    return from_columns(
        {"step": 1, "group_uid": uid, "reward": reward, "num_tokens": [1] * len(uid)}
    )


def printed(*args):
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_pain_is_tested_or_says_why_not():
    tested = {int(m[1]) for name in globals() if (m := re.match(r"test_pain_(\d+)_", name))}
    assert tested.isdisjoint(NOT_HERE)
    assert tested | set(NOT_HERE) == set(PAINS)


def test_pain_01_verl_5228_constant_groups_are_dropped():
    batch = groups("1111", "0000", "1010", "1000")
    weight = build("dapo").decide(batch).weight_N.reshape(4, 4)
    assert weight.any(axis=1).tolist() == [False, False, True, True]
    assert weight.sum() == 8


def test_pain_05_openrlhf_1282_a_pass_rate_is_at_most_100_percent(desk):
    table = {"prompt_id": "p", "num_correct": 1, "num_samples": 1}
    found = census(desk([table])[1]).prompt_table()
    assert found["solve_rate"].to_list() == [1.0]
    text = desk.refusal([{**table, "num_correct": 8}])
    assert "num_correct 8 is above num_samples 1; a pass rate is at most 100 %" in text


def test_pain_06_molt_50_groups_in_flight_are_in_no_denominator(desk):
    rows = [
        {"step": 1, "group_uid": f"g{g}", "rollout_idx": i, "reward": r}
        for g, rewards in enumerate([[1, 0], [0, 1], [1, 1], [None, None]])
        for i, r in enumerate(rewards)
    ]
    _, trace = desk(rows, nan_reward="drop-group")
    result = dfsim.replay(trace, ["dapo"], resamples=2).strategies["dapo"]
    assert result.estimates["kept_group_frac"].mean == pytest.approx(2 / 3)


def test_pain_08_nemo_rl_2431_a_shaped_reward_is_no_outcome():
    batch = one_group([-1.0] * 6 + [-1.5, -2.0], acc=[0.0] * 8)
    assert batch.reward_N.std() == pytest.approx(0.348, abs=5e-4)
    np.testing.assert_allclose(batch.advantage_N, [0.504] * 6 + [-0.84, -2.18], atol=5e-3)
    assert batch.live_G.all()
    assert build("dapo", {"metric": "acc"}).decide(batch).weight_N.sum() == 0


def test_pain_09_verl_7792_either_metric_can_be_reported_and_none_is_guessed(tmp_path):
    columns = {
        **exact_step([2, 1], 4, num_tokens=1),
        "reward": [1.0, 1.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4],
        "acc": [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0],
    }
    trace = trace_of(tmp_path / "trace", [columns])
    batch = next(iter(trace.batches(["acc"])))
    by_reward, by_acc = (build("dapo", {"metric": s}).decide(batch) for s in ("reward", "acc"))
    assert by_reward.weight_N.tolist() == [1] * 8
    assert by_acc.weight_N.tolist() == [0] * 4 + [1] * 4
    args = ("replay", trace.path, "-s", "dapo", "--resamples", "2", "--json")
    record = json.loads(printed(*args, "-p", "metric=[reward, acc]"))
    assert {"dapo[metric=reward]", "dapo[metric=acc]"} < set(record["strategies"])
    lacking = CliRunner().invoke(app, [*map(str, args), "-p", "metric=pass"])
    assert lacking.exit_code == 2
    assert "needs column 'pass'" in lacking.stderr


def test_pain_10_rlhf_book_384_constant_is_not_only_0_or_1():
    for value in (1.125, -0.25):
        batch = one_group([value] * 4)
        assert not batch.live_G.any()
        assert not batch.advantage_N.any()
        assert build("dapo").decide(batch).weight_N.sum() == 0


def test_pain_11_nemo_rl_3794_rows_that_do_not_align_are_refused():
    with pytest.raises(TraceError, match=r"column 'reward' has 6 of 2 rows"):
        from_columns({"step": 1, "group_uid": ["g", "g"], "reward": [1, 0, 1, 0, 1, 0]})


def test_pain_13_prime_rl_1205_rewards_before_and_after_the_filter(tmp_path):
    trace = solved_trace(tmp_path / "trace", [[0, 2, 4, 4]], 4)
    assert census(trace).reward_mean == 0.625
    kept = tmp_path / "kept.parquet"
    printed("replay", trace.path, "-s", "dapo", "--resamples", "2", "--decisions", kept)
    ((_, rows),) = trace.frames([])
    joined = rows.join(pl.read_parquet(kept), on=["step", "group_uid", "rollout_idx"])
    assert joined.filter(pl.col("weight") > 0)["reward"].mean() == 0.5


def test_pain_14_prime_rl_2916_mastered_prompts_waste_their_rollouts(tmp_path):
    trace = solved_trace(tmp_path, [[8, 3]] * 5, 8)
    mastered, other = census(trace).prompt_table().sort("prompt_id").to_dicts()
    assert (mastered["status"], mastered["visits"]) == ("mastered", 5)
    assert mastered["constant_group_responses"] == 40
    assert other["constant_group_responses"] == 0


def test_pain_17_verl_6348_small_variance_is_not_shrunk():
    rewards = np.array([1, 1.00001], dtype=np.float32).tolist()  # as verl holds them
    np.testing.assert_allclose(one_group(rewards).advantage_N, [-0.6196, 0.6196], atol=5e-5)


def test_pain_18_trl_5767_two_rollouts_have_no_magnitude():
    for gap in (0.01, 1.0):
        near = one_group([0.0, gap]).advantage_N
        np.testing.assert_allclose(near, [-0.7071, 0.7071], atol=1e-4)
        centred = one_group([0.0, gap], AdvantageConfig("dr_grpo")).advantage_N
        np.testing.assert_allclose(centred, [-gap / 2, gap / 2])


def test_pain_19_trl_5773_rewards_of_none_poison_nothing_and_are_not_0(desk):
    rewards = [1, 0, None, None, 1, 0, 0, 1]
    source = trl_folder(desk.folder / "a", {1: trl(1, [rewards])})
    assert "--nan-reward" in desk.refusal(source)
    (batch,) = desk(source, nan_reward="drop-response")[1].batches([])
    np.testing.assert_allclose(np.abs(batch.advantage_N), 0.9127, atol=5e-5)
    missing = [math.nan if r is None else float(r) for r in rewards]
    found = one_group(missing, AdvantageConfig(eps=1e-4)).advantage_N
    wanted = [0.9127, -0.9127, 0, 0, 0.9127, -0.9127, -0.9127, 0.9127]
    np.testing.assert_allclose(found, wanted, atol=5e-5)
    collapsed = one_group([r or 0.0 for r in rewards], AdvantageConfig(eps=1e-4)).advantage_N
    assert (collapsed.max().round(3), collapsed.min().round(3)) == (1.207, -0.724)
    one_left = [1.0] + [math.nan] * 7
    assert not one_group(one_left).advantage_N.any()
    text = desk.refusal(
        trl_folder(desk.folder / "b", {1: trl(1, [one_left])}), nan_reward="drop-response"
    )
    assert "holds nothing to import" in text


def test_pain_20_relax_65_groups_are_not_guessed_from_a_size(desk):
    rows = [v0(f"q{i // 8}", i // 8, batch="one") for i in range(32)]
    (batch,) = desk(rows, group_size=8)[1].batches([])
    assert not batch.advantage_N.any()
    assert "holds 4 prompts" in desk.refusal(rows, group_size=32)
    flattened = one_group([float(i // 8) for i in range(32)]).advantage_N
    assert np.unique(flattened.round(4)).tolist() == [-1.3205, -0.4402, 0.4402, 1.3205]


def test_pain_21_rllm_776_a_uid_per_trajectory_is_warned_of(desk):
    rewards = [1.0, 0.0, 1.0, 0.0, 0.5, 0.0, 1.0, 1.0]
    rows = [{"step": 1, "group_uid": f"u{i}", "reward": r} for i, r in enumerate(rewards)]
    summary, trace = desk(rows)
    (batch,) = trace.batches([])
    np.testing.assert_allclose(batch.advantage_N, rewards, atol=2e-6)
    assert [f.name for f in summary.findings] == ["singletons"]


def test_pain_23_slime_2374_sessions_that_fan_out_load(desk):
    rows = [v1("u_0_0", 1.0), v1("u_0_1", 1.0), v1("u_1_0", 0.0)]
    summary, trace = desk(rows, length="chars")
    (batch,) = trace.batches(["num_tokens"])
    assert (summary.outputs, batch.group_size_G.tolist()) == (1, [2])
    assert np.diff(batch.output_offsets).tolist() == [2, 1]
    kept = dfsim.replay(trace, ["dapo"], resamples=2).strategies["dapo"].estimates
    assert kept["effective_batch"].mean == pytest.approx(1)  # its one live group, whole


def test_pain_24_trl_6351_blocks_of_two_prompts_are_detected(desk):
    rows = trl(1, [[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]])
    ranks = rows[:6], rows[6:]
    mixed = [row for pair in zip(*ranks, strict=True) for row in pair]
    source = trl_folder(desk.folder / "a", {1: mixed})
    assert "block 1 of 4 rows holds 2 prompts" in desk.refusal(source, group_size=4)
    assert "interleaved over ranks" in desk.refusal(source)


def sums(batch, decision=None, mode="token-mean"):
    uniform = Decision(np.ones(batch.num_responses))
    return Weighted(StepTerms(batch, mode), [decision or uniform])


def test_pain_26_unsloth_2291_a_loss_of_0_is_not_a_signal_of_0():
    whole = sums(groups("1010"))
    assert whole.signed_KN.sum() == pytest.approx(0, abs=1e-12)
    assert whole.signal_KG.sum() == pytest.approx(math.sqrt(3) / 2, rel=1e-5)  # mean |A|


def test_pain_28_verl_3741_weight_of_a_rollout_under_each_aggregation():
    columns = {"step": 1, "group_uid": ["g", "g"], "reward": [1.0, 0.0], "num_tokens": [2, 8]}
    batch = from_columns(columns, loss_scale_factor=16)
    wanted = {
        "token-mean": [2 / 10, 8 / 10],
        "token-sum": [2, 8],
        "seq-mean-token-mean": [1 / 2, 1 / 2],
        "seq-mean-token-sum": [2 / 2, 8 / 2],
        "seq-mean-token-sum-norm": [2 / 2 / 16, 8 / 2 / 16],
    }
    assert set(wanted) == set(LOSS_AGG_MODES)
    for mode, weights in wanted.items():
        np.testing.assert_allclose(coefficients(batch, mode) * [2, 8], weights)


def test_pain_29_trl_6365_dead_groups_dilute_the_gradient():
    diluted, alone = sums(groups("1010", "0000", "1111", "0000")), sums(groups("1010"))
    assert diluted.signal_KG.sum() == pytest.approx(0.25 * alone.signal_KG.sum())


def test_pain_30_mlx_node_4_dropped_rows_stay_in_the_denominator():
    batch = groups("1010", "1111")
    found = estimate_step(batch, {"dapo": build("dapo").decide(batch)})["dapo"]
    assert (found["num_responses"], found["kept_frac"]) == (8, 0.5)
    assert found["loss_scale"] == 0.5


def test_pain_32_trl_7068_a_dead_group_has_no_policy_signal_but_kl_moves_it(tmp_path):
    columns = exact_step([0], 4)
    values, lengths = columns["old_log_probs"]
    columns["ref_log_probs"] = (values - np.float32(1.0), lengths)
    (batch,) = trace_of(tmp_path, [columns]).batches(["ref_kl", "num_tokens"])
    facts = dict(zip(FACTS, step_facts(sums(batch))[0], strict=True))
    assert facts["policy_gradient"] == 0
    assert facts["kl"] == pytest.approx(math.exp(-1))  # k3 of a gap of −1, the same in every token


def test_pain_33_verl_7785_padding_rows_stay_out_of_perplexity(desk):
    row = {"step": 1, "group_uid": "g", "reward": 1.0, "old_log_probs": [-2.0, -2.0]}
    pads = [{**row, "group_uid": "p", "old_log_probs": [0.0], "is_padding": 1}] * 3
    raw = [math.exp(-np.mean(r["old_log_probs"])) for r in (row, *pads)]
    assert np.mean(raw) == pytest.approx(2.60, abs=5e-3)
    (batch,) = desk([{**row, "is_padding": 0}, *pads])[1].batches(["old_log_probs"])
    assert math.exp(-batch.old_log_prob_T.mean()) == pytest.approx(7.39, abs=1e-3)


def test_pain_34_verl_omni_602_padding_rows_are_no_responses(desk):
    rows = [v1(f"u{i // 3}_{i % 3}_0", i % 2) for i in range(9)]
    pads = [v0("", output="", uid=f"pad0f_{i}_0") for i in range(7)]
    summary, trace = desk(rows + pads)
    assert (summary.rows, summary.padding, trace.count("responses")) == (16, 7, 9)
    assert trace.count("groups") == 3


def test_pain_35_nemo_rl_3837_masked_rows_stay_out_of_the_mean_reward(desk):
    row = {"step": 1, "group_uid": "g"}
    marked = zip([1.0, 1.0, 0.0], [1, 0, 1], strict=True)
    rows = [
        {**row, "rollout_idx": i, "reward": r, "is_padding": 1 - m}
        for i, (r, m) in enumerate(marked)
    ]
    assert census(desk(rows)[1]).reward_mean == 0.5


@pytest.mark.parametrize("bad", [None, math.nan, -math.inf])
def test_pain_36_trl_6297_sampler_log_probs_without_a_value_are_counted(desk, bad):
    row = {"step": 1, "group_uid": "g", "old_log_probs": [-0.1, -0.2]}
    rows = [
        {**row, "rollout_idx": 0, "reward": 1.0, "rollout_log_probs": [-0.1, bad]},
        {**row, "rollout_idx": 1, "reward": 0.0, "rollout_log_probs": [-0.1, -0.2]},
    ]
    _, trace = desk(rows)
    (finding,) = census(trace).findings
    assert (finding.name, finding.evidence) == ("unusable_values", {"count": 1})
    (batch,) = trace.batches(["old_log_probs"])
    assert np.isfinite(build("ar").decide(batch).token_weight_T).all()


def test_pain_47_prime_rl_2960_a_stale_sibling_drops_a_group_a_row_or_its_weight(desk):
    rewards = [1.0, 0.0, 1.0, 0.0]
    mean = AdvantageConfig("dr_grpo")
    rows = [
        {"step": 1, "group_uid": g, "rollout_idx": i, "reward": None if g + str(i) == "a3" else r}
        for g in "ab"
        for i, r in enumerate(rewards)
    ]
    for choice, sizes in (("drop-group", {"b": 4}), ("drop-response", {"a": 3, "b": 4})):
        (batch,) = desk(rows, nan_reward=choice)[1].batches([])
        assert dict(zip(batch.uid_G, batch.group_size_G, strict=True)) == sizes
    whole = one_group(rewards, mean)
    fresh = np.array([True, True, True, False])
    inside = selection(whole, fresh, ~fresh, renormalise=True)
    np.testing.assert_allclose(inside.advantage_N, [1 / 3, -2 / 3, 1 / 3, 0])  # mean over 3
    held = selection(whole, fresh, ~fresh, renormalise=False)
    assert (held.weight_N.sum(), held.advantage_N) == (3, None)
    np.testing.assert_allclose(whole.advantage_N, [0.5, -0.5, 0.5, -0.5])  # mean over 4
    alone = advantages(np.array(rewards[:3]), np.array([0, 3]), mean)
    np.testing.assert_allclose(inside.advantage_N[:3], alone)


def test_pain_48_verl_6975_a_step_that_keeps_nothing_is_named_and_no_nan(tmp_path, desk):
    trace = solved_trace(tmp_path / "trace", [[4, 0], [2, 1]], 4)
    result = dfsim.replay(trace, ["dapo"], resamples=2).strategies["dapo"]
    (empty,) = [d for d in result.diagnosis if d.name == "empty_step"]
    assert empty.evidence["steps"] == [1]
    first = next(iter(trace.batches(["num_tokens"])))
    found = estimate_step(first, {"dapo": build("dapo").decide(first)})["dapo"]
    assert found["effective_batch"] == found["kept_frac"] == found["loss_scale"] == 0
    row = {"step": 1, "group_uid": "g", "reward": None}
    assert "have no finite reward" in desk.refusal([row, row], nan_reward="drop-group")


def test_pain_50_verl_7588_extras_of_some_rows_do_not_shift(desk):
    rows = [v0("a", 1.0, acc=1.0), v0("b", 0.5), v0("c", 0.0, acc=0.25), v0("d", 0.0)]
    (batch,) = desk(rows)[1].batches(["acc"])
    np.testing.assert_array_equal(batch.reward_N, [1.0, 0.5, 0.0, 0.0])
    np.testing.assert_array_equal(batch.extras["acc"], [1.0, math.nan, 0.25, math.nan])
    text = desk.refusal([rows[0], v0("b", {"score": 1.0, "acc": 1})])
    assert "1.jsonl:2: column 'reward' holds '{\"score\": 1.0, \"acc\": 1}'" in text


def test_pain_52_nemo_rl_938_pass_rates_by_prompt_and_texts_to_read(tmp_path, desk):
    rows = [v1(f"{u}_{i}_0", float(i < k)) for u, k in (("a", 3), ("b", 0)) for i in range(4)]
    _, trace = desk(rows, keep_text=True)
    table = tmp_path / "prompts.csv"
    printed("inspect", trace.path, "--prompts", table)
    assert sorted(pl.read_csv(table)["solve_rate"].to_list()) == [0.0, 0.75]
    ((_, frame),) = trace.frames(["prompt", "response"])
    assert frame["prompt"].unique().sort().to_list() == ["question a", "question b"]
    assert set(frame["response"]) == {"answer"}
