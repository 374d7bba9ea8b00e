"""Files that people bring (``shared/data/cases``): each comes out right, by its own raw figures."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics

import numpy as np
import polars as pl
import pytest
from dumps import Desk
from said import printed, refused

import dfsim
from dfsim.traces.advantage import advantages
from reference.strategies_slow import weights


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


@pytest.fixture
def cases(shared):
    return shared / "cases"


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_group(rows, *keys):
    """Rows of each group, in the order of the file."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in keys or ("step", "group_uid")), []).append(row)
    return groups


def live_of(groups):
    """Groups whose greatest and least reward differ."""
    values = {key: [row["reward"] for row in rows] for key, rows in groups.items()}
    return [key for key, held in values.items() if max(held) - min(held) > 1e-6]


def found(holder):
    """Findings of a summary, a manifest, a census or a result: name → evidence."""
    return {finding.name: finding.evidence for finding in holder.findings}


def kept_groups(trace, *strategies):
    result = dfsim.replay(trace, [dfsim.build(*s) for s in strategies], resamples=2)
    shares = {n: s.estimates["kept_group_frac"].mean for n, s in result.strategies.items()}
    return [share * trace.count("groups") for n, share in shares.items() if n != "none"]


def statuses(rows, solved):
    """Drift of each prompt over its visits, from the definitions."""
    counts = dict.fromkeys(("never_solved", "mastered", "forgotten", "learning"), 0)
    for visits in by_group(rows, "prompt_id").values():
        steps = [[solved(row) for row in visit] for visit in by_group(visits, "step").values()]
        *before, last = [sum(step) / len(step) for step in steps]
        fell = "forgotten" if max(before) - last >= 0.5 else "learning"
        status = "mastered" if last == 1 else fell
        counts[status if any(map(any, steps)) else "never_solved"] += 1
    return counts


def grpo(rewards, eps=1e-6):
    mean, spread = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(r - mean) / (spread + eps) if spread else 0.0 for r in rewards]


def line_about(name, source, out, monkeypatch):
    """The line that the import prints about a finding."""
    monkeypatch.setenv("COLUMNS", "1000")
    text = printed("import", source, "--out", out, "--quiet")
    (line,) = [line for line in text.splitlines() if name in line]
    return line


def off_centre(rows):
    """How far the stored advantages lie from r − m of these rows."""
    mean = statistics.fmean(row["reward"] for row in rows)
    return max(abs(row["advantage"] - (row["reward"] - mean)) for row in rows)


def test_c05_two_draws_of_a_prompt_are_two_groups_and_lengths_of_0_are_unknown(desk, cases):
    path = cases / "c05_prime_hosted_results.jsonl"
    raw = by_group(rows_of(path), "step", "problem_id")
    twice = raw.pop((40, 4))
    draws = [twice[:8], twice[8:]]
    assert off_centre(twice) > 1e-3
    assert max(map(off_centre, draws)) < 1e-6
    wanted = sorted(sorted(row["reward"] for row in group) for group in [*draws, *raw.values()])
    told = set()
    for _ in range(10):
        summary, trace = desk(path)
        (batch,) = trace.batches(["advantage"])
        parts = np.split(batch.reward_N, batch.group_offsets[1:-1])
        assert sorted(sorted(part.tolist()) for part in parts) == wanted
        told.add((trace.manifest.fingerprint, *batch.uid_G.tolist(), *summary.notes))
    assert len(told) == 1
    assert (summary.lengths, "num_tokens" in trace.columns) == (None, False)
    assert trace.manifest.config["adv_estimator"] == "dr_grpo"
    # only the second draw's rewards differ
    assert dfsim.inspect(trace).baseline.mean == pytest.approx(1.0)


def test_c06_paper_rules_follow_the_estimator_of_the_stored_advantages(desk, cases):
    path = cases / "c06_drgrpo_stored.jsonl"
    rows = [{**row, "prompt_id": None, "old_log_probs": None} for row in rows_of(path)]
    assert max(map(off_centre, by_group(rows).values())) < 1e-6
    scales = []
    for step in by_group(rows, "step").values():
        slow = weights("maxvar@paper", step, norm_by_std=False)
        kept = {(row["group_uid"], row["rollout_idx"]): row["num_tokens"] for row in step}
        trained = math.fsum(m * slow.weight[k] * abs(slow.advantage[k]) for k, m in kept.items())
        scales.append(trained / math.fsum(r["num_tokens"] * abs(r["advantage"]) for r in step))
    _, trace = desk(path)
    assert trace.manifest.advantage_config.adv_estimator == "dr_grpo"
    said = printed("replay", trace.path, "-s", "maxvar@paper", "--resamples", "2", "--json")
    estimates = json.loads(said)["strategies"]["maxvar@paper"]["estimates"]
    assert estimates["signal_scale"]["mean"] == pytest.approx(statistics.fmean(scales), rel=1e-5)
    assert round(statistics.fmean(scales), 2) == 0.62


def test_c07_a_validation_dump_is_neither_screened_nor_mixed(desk, cases):
    path = cases / "c07_verl_val"
    rows = [row for file in path.iterdir() for row in rows_of(file)]
    prompts = {frozenset(r["input"] for r in step) for step in by_group(rows, "step").values()}
    assert (len(prompts), all(r["reward"] == r["score"] for r in rows)) == (1, True)
    _, trace = desk(path)
    assert trace.manifest.evaluation
    for command in (("screen", trace.path), ("replay", trace.path, "-s", "dump_ucb")):
        assert "--purpose training" in refused(*command, "--quiet")
    _, overridden = desk(path, purpose="training")
    assert set(dfsim.screen(overridden, ["dapo"]).table()["strategy"]) == {"none", "dapo"}
    varied = [{**row, "input": f"{row['input']}{row['step']}"} for row in rows]
    assert desk(varied)[0].evaluation == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("c08_one_uid", ("step 1", "group '0'", "a group is one prompt")),
        ("c10_trainer_state.json", ("transformers", "log_completions=True")),
        ("c11_log.eval", ("inspect-ai", "--purpose evaluation")),
    ],
)
def test_c08_c10_and_c11_are_refused_by_what_they_are(cases, tmp_path, name, words):
    (line,) = {refused("import", cases / name, "--out", tmp_path / "out") for _ in range(3)}
    assert [word for word in words if word not in line] == []
    assert list(tmp_path.iterdir()) == []


def test_c15_separates_nothing_and_rests_on_the_score_alone(cases):
    path = cases / "c15_checkpoints.csv"
    quick = ("--resamples", "100", "--json", "--quiet")
    assert "--by checkpoint_step" in refused("compare", path)
    cells = json.loads(printed("compare", path, "--by", "checkpoint_step", *quick))["cells"]
    scores = {
        (r["checkpoint_step"], r["algorithm"], r["seed"]): r["sampled_pass_at_1"]
        for r in pl.read_csv(path).to_dicts()
    }
    for step, cell in zip((8, 16, 24, 32), cells, strict=True):
        assert cell["cell"] == {"checkpoint_step": str(step)}
        assert set(cell["weights"]) == {"sampled_pass_at_1"}
        one, two = (scores[step, "ppo", s] - scores[step, "grpo", s] for s in (42, 123))
        ppo = cell["overall"]["ppo"]
        assert ppo["difference"] == pytest.approx((one + two) / 2)
        # of four flips of two signs, two or all are as far from 0
        assert ppo["p_sign_flip"] == (0.5 if abs(one + two) > abs(one - two) else 1.0)
        assert ppo["verdict"] == "open"
    alone = ("--where", "checkpoint_step=32", "--metrics", "sampled_pass_at_1")
    (cell,) = json.loads(printed("compare", path, *alone, *quick))["cells"]
    assert [(m["p"], m["p_holm"]) for m in cell["metrics"]] == [(0.5, 0.5)]


def trl_steps(folder):
    """Each file's two rewards as groups × 8, and its advantages."""
    for frame in map(pl.read_parquet, sorted(folder.iterdir())):
        parts = [frame[name].to_numpy() for name in ("accuracy_reward", "length_reward")]
        yield [part.reshape(-1, 8) for part in parts], frame["advantage"].to_numpy()


def scaled(values, axis=None):
    spread = values.std(axis=axis, ddof=1, keepdims=True)
    return (values - values.mean(axis=axis, keepdims=True)) / (spread + 1e-4)


def gdpo(parts):
    return scaled(sum(scaled(part, axis=1) for part in parts)).ravel()


def batch_scaled(parts):
    total = sum(parts)
    centred = total - total.mean(axis=1, keepdims=True)
    return (centred / (total.std(ddof=1) + 1e-4)).ravel()


@pytest.mark.parametrize(
    ("name", "rule", "estimator"),
    [("c18_trl_gdpo", gdpo, "gdpo"), ("c19_trl_batch", batch_scaled, "grpo_batch")],
)
def test_c18_and_c19_are_read_without_reward_weights(desk, cases, name, rule, estimator):
    summary, trace = desk(cases / name)
    assert (summary.findings, trace.manifest.config["adv_estimator"]) == ([], estimator)
    steps = zip(trl_steps(cases / name), trace.batches(["advantage"]), strict=True)
    for (parts, stored), batch in steps:
        np.testing.assert_allclose(rule(parts), stored, atol=1e-6)
        np.testing.assert_array_equal(batch.advantage_N, stored)
        np.testing.assert_allclose(batch.reward_N, sum(parts).ravel(), atol=1e-12)
        if estimator == "grpo_batch":
            own = advantages(batch.reward_N, batch.group_offsets, trace.manifest.advantage_config)
            np.testing.assert_allclose(own, stored, atol=1e-6)


def test_c20_dapo_keeps_every_live_group_and_no_drift_is_claimed(desk, cases):
    path = cases / "c20_rm_scores.jsonl"
    rows = rows_of(path)
    assert (len(live_of(by_group(rows))), max(row["reward"] for row in rows) < 0) == (112, True)
    _, trace = desk(path)
    assert kept_groups(trace, ("dapo",)) == [pytest.approx(112)]
    seen = dfsim.inspect(trace)
    assert (seen.drift, found(seen)["threshold_misplaced"]["solved"]) == (None, 0)
    split = dfsim.inspect(trace, success=dfsim.Success(threshold=-2.5))
    assert split.drift == statuses(rows, lambda row: row["reward"] > -2.5)
    assert found(split) == {}


def test_c46_dapo_keeps_80_and_the_threshold_is_said_and_settable(desk, cases):
    path = cases / "c46_format_plus_accuracy.jsonl"
    rows = rows_of(path)
    groups = by_group(rows)
    assert len(live_of(groups)) == 80
    _, trace = desk(path)
    assert kept_groups(trace, ("dapo",)) == [pytest.approx(80)]

    def inside(limit):
        solved = [sum(row["reward"] > limit for row in group) for group in groups.values()]
        return sum(2 <= k <= 6 for k in solved)  # .2·8 < k < .8·8

    assert inside(0.5) != inside(5.5)
    assert kept_groups(trace, ("difffilter",)) == [pytest.approx(inside(0.5))]
    for given in ({"success_threshold": 5.5}, {"success": "acc"}):
        assert kept_groups(trace, ("difffilter", given)) == [pytest.approx(inside(5.5))]
    assert {row["reward"] for row in rows} == {0, 1, 10, 11}
    misplaced = found(dfsim.inspect(trace))["threshold_misplaced"]
    assert (misplaced["threshold"], misplaced["suggested"]) == (0.5, (1 + 10) / 2)
    for option in (("--success-threshold", "5.5"), ("--success", "acc")):
        record = json.loads(printed("inspect", trace.path, *option, "--json", "--quiet"))
        assert record["prompt_drift"] == statuses(rows, lambda row: row["acc"] == 1)
        assert "threshold_misplaced" not in {f["name"] for f in record["findings"]}


def test_c23_log_probs_are_the_samplers_and_advantages_of_0_a_finding(desk, cases):
    path = cases / "c23_open_instruct"
    rows = rows_of(path / "r_rollouts_000000.jsonl")
    summary, trace = desk(path)
    assert summary.rows == summary.responses == len(rows)  # none of r_metadata.jsonl
    assert trace.count("tokens") == sum(len(row["response_tokens"]) for row in rows)
    assert trace.manifest.domains == tuple(sorted({row["dataset"] for row in rows}))
    assert {"rollout_log_probs", "old_log_probs"} & set(trace.columns) == {"rollout_log_probs"}
    assert set(dfsim.inspect(trace).cannot_run) == {"ar", "ar@paper"}
    assert "old_log_probs" in refused("replay", trace.path, "-s", "ar", "--quiet")
    live = len(live_of(by_group(rows, "step", "prompt_idx")))
    assert {row["advantage"] for row in rows} == {0.0}
    for seen in (summary, dfsim.inspect(trace), dfsim.replay(trace, ["dapo"], resamples=2)):
        assert found(seen)["advantages_zero"]["zero"] == live
    mended, trace = desk(path, without=("advantage",))
    assert (mended.findings, live) == ([], 77)
    assert dfsim.inspect(trace).baseline.mean == pytest.approx(live / 14)


def test_c28_a_wrong_reward_column_is_said_and_the_right_one_named(desk, cases, monkeypatch):
    path = cases / "c28_wrong_reward.jsonl"
    groups = by_group(rows_of(path))
    columns = [[[row[c] for row in g] for c in ("reward", "advantage")] for g in groups.values()]
    inside = statistics.fmean(statistics.correlation(*pair) for pair in columns)
    summary, trace = desk(path)
    replayed = dfsim.replay(trace, ["maxvar"], resamples=2)
    for seen in (summary, dfsim.inspect(trace), replayed):
        evidence = found(seen)["advantage_mismatch"]
        assert (evidence["live"], evidence["broken"]) == (len(live_of(groups)), len(groups))
        assert evidence["correlation"] == pytest.approx(inside, abs=1e-6)
        assert (evidence["cause"], evidence["explained_by"]) == ("reward_column", "score")
    line = line_about("advantage_mismatch", path, desk.folder / "cli", monkeypatch)
    assert "--map reward=score" in line
    maxvar = replayed.strategies["maxvar"]
    assert maxvar.estimates["effective_batch_high"].mean > len(groups) / 14
    assert "bracket_beyond_live" in {finding.name for finding in maxvar.diagnosis}
    mended, trace = desk(path, columns={"reward": "score"})
    assert (mended.findings, trace.manifest.config["adv_estimator"]) == ([], "dr_grpo")


def merged_groups():
    """Two prompts' groups under one id, a response of either in turn; GRPO inside the true one."""
    rng, rows = random.Random(1), []
    for step, uid in itertools.product(range(1, 9), range(4)):
        pair = []
        for rate in (0.25, 0.75):
            rewards = [float(rng.random() < rate) for _ in range(8)]
            pair.append(list(zip(rewards, grpo(rewards), strict=True)))
        rows += [
            {"step": step, "group_uid": f"g{uid}", "reward": r, "advantage": a}
            for r, a in itertools.chain.from_iterable(zip(*pair, strict=True))
        ]
    return rows


def test_merged_groups_are_told_by_equal_rewards_with_other_advantages(desk, monkeypatch):
    rows = merged_groups()
    groups = by_group(rows).values()
    pairs = [{(row["reward"], round(row["advantage"], 6)) for row in group} for group in groups]
    unequal = sum(len(pair) > len({r for r, _ in pair}) for pair in pairs)
    evidence = found(desk(rows)[0])["advantage_mismatch"]
    assert evidence["cause"] == "groups"
    assert (evidence["live"], evidence["broken"]) == (len(groups), unequal)
    assert evidence["unequal"] == unequal / len(groups)
    line = line_about("advantage_mismatch", desk.file(rows), desk.folder / "cli", monkeypatch)
    assert "merged" in line


def test_c29_what_ended_by_length_and_the_groups_that_fail_only_by_it(desk, cases):
    path = cases / "c29_truncated.jsonl"
    rows = rows_of(path)
    groups, cut = by_group(rows), [row for row in rows if row["finish_reason"] == "length"]
    live = live_of(groups)
    only = sum(
        all(row in cut for row in group if row["reward"] < max(r["reward"] for r in group))
        for group in (groups[key] for key in live)
    )
    tokens = sum(r["num_tokens"] for r in cut) / sum(r["num_tokens"] for r in rows)
    frac = len(cut) / len(rows)
    _, trace = desk(path)
    record = json.loads(printed("inspect", trace.path, "--json", "--quiet"))
    assert list(record["truncation"].values()) == [frac, tokens, len(live), only]
    assert (round(frac, 2), round(tokens, 2), len(live), only) == (0.35, 0.72, 109, 13)
    for seen in (dfsim.inspect(trace), dfsim.replay(trace, ["dapo"], resamples=2)):
        assert found(seen)["truncated"]["live_by_length"] == only


def test_c37_ids_of_ranks_are_never_merged_unasked(desk, cases):
    raw = [rows_of(cases / "c37_ranks" / f"rank{rank}.jsonl") for rank in (0, 1)]
    groups = [g for rows in raw for g in by_group(rows).values()]
    out = desk.folder / "out"
    (line,) = {refused("import", cases / "c37_ranks", "--out", out) for _ in range(10)}
    assert "--group-ids" in line
    _, trace = desk(cases / "c37_ranks", group_ids="file")
    read = by_group([row for _, f in trace.frames(["reward"]) for row in f.to_dicts()])
    assert (len(read), {len(group) for group in read.values()}) == (24, {8})
    solved = [sorted((g[0]["step"], sum(row["reward"] for row in g)) for g in side)
              for side in (groups, read.values())]  # fmt: skip
    assert solved[0] == solved[1]
    assert desk(cases / "c37_ranks", group_ids="run")[1].count("groups") == 12


def test_c38_booleans_are_0_and_1_from_either_file(desk, cases):
    frames = [desk.rows(cases / f"c38_bool.{suffix}") for suffix in ("csv", "jsonl")]
    assert frames[0].equals(frames[1])
    assert frames[0].select("group_uid", "reward").rows() == [("a", 1.0), ("a", 0.0)]


def resumed(advantage=False, ids=False, prompts=False, again=(3, 4, 5)):
    """Ten steps of six groups of eight; the steps ``again`` come twice, sampled anew."""
    rng, rows = random.Random(0), []
    for copy, step in [(0, s) for s in range(1, 11)] + [(1, s) for s in again]:
        for group in range(6):
            rewards = [float(rng.random() < (group + 1) / 7) for _ in range(8)]
            for r, a in zip(rewards, grpo(rewards), strict=True):
                row = {"step": step, "group_uid": f"{group}-{copy * ids}", "reward": r}
                row |= {"advantage": a} if advantage else {}
                rows.append(row | ({"prompt_id": f"{step}-{group}"} if prompts else {}))
    return rows


def eleven_imports(desk, **shape):
    """The steps that an import names: rows in the file's order, and in ten others."""
    for seed in range(11):
        rows = resumed(**shape)
        if seed:
            random.Random(seed).shuffle(rows)
        yield found(desk(rows)[0]).get("step_repeated", {}).get("steps")


@pytest.mark.parametrize("shape", [{}, {"ids": True}, {"ids": True, "prompts": True}])
def test_steps_that_a_resumed_run_logged_twice_are_named_ten_times_of_ten(desk, shape):
    assert found(desk(resumed(again=(), **shape))[0]) == {}
    assert list(eleven_imports(desk, **shape)) == [[3, 4, 5]] * 11


def test_steps_logged_twice_are_named_where_advantages_are_stored(desk):
    assert list(eleven_imports(desk, advantage=True)) == [[3, 4, 5]] * 11
