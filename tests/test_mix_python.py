"""Mixers from Python, as the command line plays them."""

from __future__ import annotations

import polars as pl

import dfsim


def test_names_are_enough_and_tables_are_polars(bundled):
    mixers = dfsim.replay(bundled, ["dump_ucb+maxvar", "static"], resamples=2).mixers
    first, second = mixers.values()
    assert (first.name, second.name) == ("dump_ucb+maxvar", "static")
    table = first.table()
    assert table["run"].to_list() == ["asked", "step", "exposure"]
    summary = first.summaries()["step"]
    row = table.filter(pl.col("run") == "step")
    assert row["total_variation"][0] == summary.total_variation
    assert row["last_target.math"][0] == summary.last_target["math"]
    steps = first.steps().filter(pl.col("run") == "asked", pl.col("domain") == "math")
    assert steps["target"].to_list() == first.asked.target_SD[:, 1].tolist()


def test_one_call_takes_every_kind_in_the_users_order(bundled):
    result = dfsim.replay(bundled, ["tscl", "maxvar", dfsim.build("reward_gap")], resamples=2)
    assert list(result.strategies) == ["none", "maxvar"]
    assert list(result.mixers) == ["tscl", "reward_gap"]
    assert set(result.to_dict()["mixers"]) == {"tscl", "reward_gap"}
