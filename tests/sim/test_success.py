"""When a response counts as solved, and that a threshold which splits nothing is said."""

from __future__ import annotations

import json

import numpy as np
import pytest
from said import refused, run

import dfsim
from dfsim.sim.success import LevelCheck, Success


def batch(rewards, step=1, **more):
    return dfsim.from_columns(
        {"step": step, "group_uid": [str(i // 4) for i in range(len(rewards))],
         "reward": rewards, **more}
    )  # fmt: skip


def findings(rewards, success=None, **more):
    check = LevelCheck(success or Success())
    check.add(batch(rewards, **more))
    return list(check.findings())


def test_solved_is_a_reward_above_a_half_unless_said_otherwise():
    values = batch([0.5, 0.51, 0.0, 1.0], acc=[1.0, 0.0, 1.0, 0.0])
    assert Success().solved_N(values).tolist() == [False, True, False, True]
    assert Success("acc").solved_N(values).tolist() == [True, False, True, False]
    assert Success(threshold=0.0).solved_N(values).tolist() == [True, True, False, True]
    assert [str(s) for s in (Success(), Success("acc", 0.9))] == ["reward > 0.5", "acc > 0.9"]


def test_what_a_user_chose_becomes_parameters_of_rules():
    assert Success().parameters == {}
    assert Success("acc", 2.0).parameters == {"success": "acc", "success_threshold": 2.0}


def test_binary_rewards_are_in_place():
    assert findings([0, 1, 0, 1, 1, 1, 0, 0]) == []


@pytest.mark.parametrize("rewards", [[-4.0, -1.0, -2.5, -3.0], [0.7, 0.9, 1.0, 0.6]])
def test_every_reward_on_one_side_is_said_with_figures(rewards):
    (found,) = findings(rewards)
    solved = sum(r > 0.5 for r in rewards)
    figures = {k: found.evidence[k] for k in ("low", "high", "solved", "responses")}
    assert found.name == "threshold_misplaced"
    assert figures == {"low": min(rewards), "high": max(rewards), "solved": solved, "responses": 4}


def test_two_levels_on_one_side_get_the_threshold_between_them():
    (found,) = findings([10.0, 11.0, 10.0, 11.0])
    assert found.evidence["suggested"] == 10.5


def test_ten_for_right_and_one_for_form_belongs_between_1_and_10():
    (found,) = findings([0, 1, 10, 11, 1, 0, 11, 11])
    assert found.evidence["suggested"] == 5.5


def test_one_constant_is_no_threshold_of_anything():
    assert findings([1.0, 1.0, 1.0, 1.0]) == []


def test_a_domain_on_one_side_is_named_though_the_whole_is_split():
    (found,) = findings([0, 1, 0, 1, -3, -2, -3, -2], domain=["math"] * 4 + ["chat"] * 4)
    assert found.evidence["domains"] == ["chat"]


def test_continuous_rewards_around_the_threshold_are_left_alone():
    assert findings(np.linspace(0.0, 1.0, 16)) == []


def test_a_binary_column_is_the_remedy_where_there_is_one():
    (found,) = findings([3.0, 2.0, 5.0, 4.0], acc=[0.0, 1.0, 1.0, 0.0], score=[3.0, 2, 5, 4])
    assert "success" in found.message
    assert "acc" in found.message


def test_missing_rewards_are_on_neither_side():
    (found,) = findings([np.nan, 2.0, 3.0, np.nan])
    assert (found.evidence["responses"], found.evidence["solved"]) == (2, 2)


@pytest.fixture
def ranked(tmp_path):
    """A trace whose rewards are 1 … 4 and whose column acc says 1 for the two best."""
    rows = ["step,group_uid,rollout_idx,reward,acc,domain"]
    for step in (1, 2, 3):
        for group in "ab":
            rows += [f"{step},{group},{i},{i + 1},{int(i >= 2)},math" for i in range(4)]
    source = tmp_path / "ranked.csv"
    source.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert run("import", source, "--out", tmp_path / "trace").exit_code == 0
    return tmp_path / "trace"


@pytest.mark.parametrize(
    ("options", "column", "threshold"),
    [
        (("--success-threshold", "2.5"), "reward", 2.5),
        (("--success", "acc"), "acc", 0.5),
        ((), "reward", 0.5),
    ],
)
def test_inspect_and_difffilter_go_by_the_threshold_that_is_given(
    ranked, options, column, threshold
):
    census = json.loads(run("inspect", ranked, "--json", *options).stdout)
    assert census["success"] == {"column": column, "threshold": threshold}
    named = {f["name"] for f in census["findings"]}
    assert ("threshold_misplaced" in named) == (not options)
    replayed = json.loads(
        run("replay", ranked, "--strategy", "difffilter", "--json", *options).stdout
    )
    # difffilter keeps groups whose solve rate is strictly inside its band
    kept = replayed["strategies"]["difffilter"]["estimates"]["kept_frac"]["mean"]
    assert kept == (1.0 if options else 0.0)


def test_a_column_that_is_not_there_is_one_line(ranked):
    assert "accuracy" in refused("inspect", ranked, "--success", "accuracy")
