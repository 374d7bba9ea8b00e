"""Mixers from Python, as the command line plays them."""

from __future__ import annotations

import polars as pl
import pytest

import dfsim
from dfsim.traces.errors import StrategyError


def test_names_are_enough_and_tables_are_polars(bundled):
    first, second = dfsim.replay_mixers(bundled, ["dump_ucb+maxvar", "static"])
    assert (first.name, second.name) == ("dump_ucb+maxvar", "static")
    table = first.table()
    assert table["run"].to_list() == ["asked", "step", "exposure"]
    summary = first.summaries()["step"]
    row = table.filter(pl.col("run") == "step")
    assert row["total_variation"][0] == summary.total_variation
    assert row["last_target.math"][0] == summary.last_target["math"]
    steps = first.steps().filter(pl.col("run") == "asked", pl.col("domain") == "math")
    assert steps["target"].to_list() == first.asked.target_SD[:, 1].tolist()


def test_a_mixer_is_no_selector(bundled):
    with pytest.raises(StrategyError, match=r"'tscl' is a mixer, .* dfsim\.replay_mixers"):
        dfsim.build("tscl")
    with pytest.raises(StrategyError, match="is a mixer"):
        dfsim.replay(bundled, ["reward_gap"], resamples=2)
