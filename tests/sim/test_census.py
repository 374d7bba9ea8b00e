"""What inspect counts, against counts made by hand or straight from the Parquet files."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made import solved_trace, trace_of

from dfsim.sim.inspect.census import cannot_run, census
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.synthetic import exact_step


@pytest.fixture(scope="module")
def rows(bundled):
    return pl.concat(map(pl.read_parquet, sorted(Path(bundled.path).glob("step_*.parquet"))))


@pytest.fixture(scope="module")
def found(bundled):
    return census(bundled)


def groups_step(step, groups, **columns):
    """One step from {prompt: rewards}; each prompt is a group."""
    names = [p for p, rewards in groups.items() for _ in rewards]
    rewards = [float(r) for group in groups.values() for r in group]
    uids = [f"{step}-{p}" for p in names]
    extra = {k: [v[p] for p in names] for k, v in columns.items()}
    return {"step": step, "group_uid": uids, "prompt_id": names, "reward": rewards, **extra}


# The bundled trace


def test_counts_are_those_of_the_rows(found, rows):
    sizes = rows.group_by("step", "group_uid").len()["len"]
    assert found.sizes == Counter(sizes.to_list())
    assert (found.groups, found.responses) == (len(sizes), rows.height)
    assert found.steps == sorted(rows["step"].unique().to_list())
    assert found.reward_mean == pytest.approx(rows["reward"].mean())
    assert found.levels == dict(rows.group_by("reward").len().iter_rows())
    lengths = rows["num_tokens"]
    assert found.lengths["mean"] == pytest.approx(lengths.mean())
    assert found.lengths["max"] == lengths.max()
    assert found.lengths["p95"] == np.quantile(lengths.to_numpy(), 0.95)


def test_constant_share_and_domains_are_those_of_the_rows(found, rows):
    spread = pl.col("reward").max() - pl.col("reward").min()
    groups = rows.group_by("step", "group_uid", "domain").agg(dull=spread <= 1e-6)
    assert found.constant_share == pytest.approx(groups["dull"].mean())
    assert found.singleton_share == 0.0
    for domain, entry in found.domains.items():
        mine = groups.filter(domain=domain)
        assert (entry.groups, entry.constant) == (mine.height, mine["dull"].sum())
        expected = rows.filter(domain=domain)["reward"].mean()
        assert entry.mean_reward == pytest.approx(expected)


def test_prompts_are_those_of_the_rows(found, rows):
    table = found.prompt_table()
    by_prompt = rows.group_by("prompt_id").agg(
        pl.len().alias("responses"),
        pl.col("step").n_unique().alias("visits"),
        pl.col("step").max().alias("last_step"),
        (pl.col("reward") > 0.5).mean().alias("solve_rate"),
    )
    joined = table.join(by_prompt, on="prompt_id", suffix="_rows")
    assert joined.height == table.height == rows["prompt_id"].n_unique()
    for column in ("responses", "visits", "last_step"):
        assert (joined[column] == joined[f"{column}_rows"]).all()
    assert np.allclose(joined["solve_rate"], joined["solve_rate_rows"])
    assert found.revisited == (by_prompt["visits"] > 1).sum()
    assert sum(found.drift.values()) == found.revisited
    assert table["constant_group_responses"].sum() == pytest.approx(
        found.constant_share * found.responses
    )


def test_more_steps_halve_a_width_that_shrinks_with_the_root(found):
    """Width ∝ 1/√S: half of it takes 4·S steps, so 3·S more."""
    assert found.more_steps == 3 * 60
    assert found.baseline.future_low < found.baseline.mean < found.baseline.future_high
    assert found.findings == []
    assert found.cannot_run == {}


def test_json_is_plain(found):
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["steps"] == {"count": 60, "first": 1, "last": 60}
    assert record["group_sizes"] == {"8": 1440}
    assert record["more_steps_to_halve_interval"] == 180
    assert set(record["effective_batch_none"]) >= {"mean", "future_low", "reason"}


# Made by hand


def test_sizes_constant_and_single(tmp_path):
    step = groups_step(1, {"a": [1, 1, 1], "b": [0, 1], "c": [1], "d": [0.9] * 3})
    found = census(trace_of(tmp_path, [step]))
    assert found.sizes == {3: 2, 2: 1, 1: 1}
    assert (found.constant_share, found.singleton_share) == (0.5, 0.25)
    assert found.domains == {}
    assert found.lengths is None
    assert found.more_steps is None


def test_rewards_of_many_values_have_no_levels(tmp_path):
    step = exact_step([1], 16)
    step["reward"] = np.linspace(0, 1, 16)
    assert census(trace_of(tmp_path, [step])).levels == {}


@pytest.mark.parametrize(
    ("visits", "status"),
    [
        ([[0, 0], [0, 0]], "never_solved"),
        ([[0, 1], [1, 1]], "mastered"),
        ([[1, 1], [0, 1]], "forgotten"),  # drops by exactly .5
        ([[1] * 7 + [0] * 3, [1] * 2 + [0] * 8], "forgotten"),  # .7 − .2 < .5 in floats
        ([[1] * 7 + [0] * 3, [1] * 3 + [0] * 7], "learning"),
        ([[1, 1], [0, 0], [1, 1]], "mastered"),
        ([[0, 0], [1, 1], [0, 0]], "forgotten"),
        ([[1] * 4, [1, 1, 0, 0], [1, 0, 0, 0]], "forgotten"),  # the best visit, not the last
        ([[0, 1], [1, 0]], "learning"),
        ([[0, 0], [0, 1]], "learning"),
    ],
)
def test_drift_of_a_prompt(tmp_path, visits, status):
    steps = [groups_step(t, {"p": rewards}) for t, rewards in enumerate(visits, start=1)]
    found = census(trace_of(tmp_path, steps))
    assert found.revisited == 1
    assert {name for name, count in found.drift.items() if count} == {status}
    row = found.prompt_table().row(0, named=True)
    assert row["status"] == status
    assert row["visits"] == len(visits)
    assert row["first_solve_rate"] == np.mean(visits[0])
    assert row["last_solve_rate"] == np.mean(visits[-1])


def test_prompts_seen_once_have_no_drift(tmp_path):
    steps = [groups_step(1, {"a": [0, 1]}), groups_step(2, {"b": [0, 0]})]
    found = census(trace_of(tmp_path, steps))
    assert (found.revisited, found.drift) == (0, None)
    assert found.prompt_table()["status"].to_list() == ["learning", "never_solved"]


def test_two_groups_of_a_prompt_in_one_step_are_one_visit(tmp_path):
    step = groups_step(1, {"a": [1, 1], "b": [0, 0]})
    step["prompt_id"] = ["same"] * 4
    found = census(trace_of(tmp_path, [step]))
    row = found.prompt_table().row(0, named=True)
    assert (row["visits"], row["first_solve_rate"], row["last_solve_rate"]) == (1, 0.5, 0.5)
    assert found.drift is None


def test_prompts_need_ids(tmp_path):
    found = census(solved_trace(tmp_path, [[1], [2]], 4, drop=("prompt_id",)))
    assert found.prompts == {}
    assert found.to_dict()["prompts"] is None


# What stands out


def evidence(found):
    return [(finding.name, finding.evidence) for finding in found.findings]


def test_log_probs_that_are_no_numbers_are_counted(tmp_path):
    step = exact_step([1, 2], 4, num_tokens=3)
    values, lengths = step["old_log_probs"]
    values[[0, 5, 7]] = [np.nan, np.inf, -np.inf]
    found = census(trace_of(tmp_path, [{**step, "old_log_probs": (values, lengths)}]))
    assert evidence(found) == [("unusable_values", {"count": 3})]


def test_rewards_that_are_nan_are_counted_and_stay_out_of_means(tmp_path):
    step = groups_step(1, {"a": [1.0, math.nan, 0.0], "b": [1.0, 1.0, math.nan]})
    step["domain"] = ["x"] * 3 + ["y"] * 3
    found = census(trace_of(tmp_path, [step]))
    assert evidence(found) == [("unusable_values", {"count": 2})]
    assert found.reward_mean == 0.75
    assert {d: e.mean_reward for d, e in found.domains.items()} == {"x": 0.5, "y": 1.0}
    assert found.levels == {0.0: 1, 1.0: 3}
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_trace_without_any_reward_is_still_plain_json(tmp_path):
    step = groups_step(1, {"a": [math.nan, math.nan]})
    found = census(trace_of(tmp_path, [{**step, "domain": ["x", "x"]}]))
    assert found.to_dict()["reward"]["mean"] is None
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(("factor", "mixed"), [(10.0, True), (5.0, True), (4.0, False)])
def test_mixed_reward_scales_are_named(tmp_path, factor, mixed):
    domain = {"a": "code", "b": "maths"}
    step = groups_step(1, {"a": [0, factor], "b": [0, 1]}, domain=domain)
    spans = {"domains": {"maths": [0.0, 1.0], "code": [0.0, factor]}}
    wanted = [("mixed_reward_scales", spans)] if mixed else []
    assert evidence(census(trace_of(tmp_path, [step]))) == wanted


def test_duplicate_steps_are_named(tmp_path):
    same = {"a": [1, 0], "b": [0, 0]}
    steps = [groups_step(t, same) for t in (1, 2, 3)]
    for step in steps[:2]:
        step["group_uid"] = ["u", "u", "v", "v"]
    found = census(trace_of(tmp_path, steps))
    assert evidence(found) == [("duplicate_steps", {"steps": [[1, 2]]})]


def test_missing_step_numbers_are_counted(tmp_path):
    steps = [groups_step(t, {"a": [1, 0]}) for t in (3, 4, 7, 10)]
    assert evidence(census(trace_of(tmp_path, steps))) == [("absent_steps", {"absent": 4})]


def test_responses_without_a_token_are_counted(tmp_path):
    step = groups_step(1, {"a": [1, 0, 1]})
    found = census(trace_of(tmp_path, [{**step, "num_tokens": [0, 3, 0]}]))
    assert evidence(found) == [("unusable_values", {"count": 2})]


# What can run


def test_what_a_trace_cannot_run_says_why(tmp_path, bundled):
    bare = solved_trace(tmp_path, [[1]], 4, drop=("num_tokens", "old_log_probs"))
    reasons = cannot_run(bare)
    assert set(reasons) == {"gfpo", "gfpo@paper", "ar", "ar@paper"}
    assert "num_tokens" in reasons["gfpo"]
    assert "old_log_probs" in reasons["ar"]
    assert cannot_run(bundled) == {}
    assert set(reasons) < set(WEIGHING)


def test_progress_is_told_every_step(tmp_path):
    ticks = []
    census(solved_trace(tmp_path, [[1]] * 3, 4), lambda done, total: ticks.append((done, total)))
    assert ticks == [(1, 3), (2, 3), (3, 3)]
