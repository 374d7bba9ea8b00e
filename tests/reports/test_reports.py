"""Files, figures and sentences that a person gets of a result."""

from __future__ import annotations

import io
import json
import math
import os
import struct
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from made import ESTIMATORS, solved_trace, trace_of
from rich.console import Console

import dfsim
from dfsim.cli.shared.progress import progress
from dfsim.reports.folders.replay import (
    check_prompts,
    replay_record,
    write_prompts,
    write_replay,
    writing_decisions,
)
from dfsim.reports.tables import console, print_census, print_replay
from dfsim.sim.inspect.census import census
from dfsim.sim.result import dump_json
from dfsim.strategies.build import build
from dfsim.traces.errors import DfsimError
from dfsim.traces.synthetic import exact_step

FIGURES = ("effective_batch", "kept_and_live", "signal_scale")
TABLES = {"index.html", "replay.json", "estimates.csv", "steps.parquet", "steps.csv"}


@pytest.fixture(scope="module")
def result(bundled):
    return dfsim.replay(bundled, ["maxvar", "gfpo", "ar"], resamples=5)


@pytest.fixture(scope="module")
def written(result, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports") / "out"
    write_replay(result, folder, force=False)
    return folder


def said(thing, *args):
    out = Console(file=io.StringIO(), width=200, markup=False, highlight=False)
    thing(*args, out)
    return out.file.getvalue()


# The folder of --out


def test_the_folder_holds_tables_and_figures(written):
    figures = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    assert {p.name for p in written.iterdir()} == TABLES | figures


def test_json_and_tables_hold_the_same_numbers(result, written):
    record = json.loads((written / "replay.json").read_text(encoding="utf-8"))
    assert record == json.loads(dump_json(replay_record(result)))
    estimates = pl.read_csv(written / "estimates.csv")
    assert estimates.height == 4 * len(ESTIMATORS)
    for row in estimates.iter_rows(named=True):
        expected = record["strategies"][row["strategy"]]["estimates"][row["estimator"]]
        for key in ("mean", "low", "future_high", "nan_steps", "reason"):
            if isinstance(expected[key], float):
                assert row[key] == pytest.approx(expected[key], rel=1e-12)
            else:
                assert row[key] == expected[key]


def test_step_tables_have_a_row_per_step_strategy_and_scope(written, bundled):
    steps = pl.read_parquet(written / "steps.parquet")
    assert steps.height == 60 * 4 * (1 + 3)
    assert steps.select("step", "strategy", "domain").is_duplicated().sum() == 0
    assert set(steps["domain"].drop_nulls()) == set(bundled.manifest.domains)
    keys = {"step", "strategy", "domain", "no_op", "tied_frac"}
    assert set(steps.columns) == {*ESTIMATORS, *keys} - {"signal_scale_cv"}
    csv = pl.read_csv(written / "steps.csv", infer_schema_length=None)
    assert csv.shape == steps.shape
    assert csv["effective_batch"].to_list() == pytest.approx(steps["effective_batch"].to_list())


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_wide_enough_for_a_slide(written, name):
    png = (written / f"{name}.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    assert width >= 1400
    assert 1.5 < width / height < 2.2
    svg = (written / f"{name}.svg").read_text(encoding="utf-8")
    assert svg.rstrip().endswith("</svg>")


@pytest.mark.parametrize("steps", [1, 2])
def test_figures_of_a_short_run_show_points(tmp_path, steps):
    """A line of one point would be invisible."""
    from dfsim.reports.figures import _effective_batch

    trace = solved_trace(tmp_path, [[1, 2, 0]] * steps, 4)
    found = dfsim.replay(trace, ["maxvar"], resamples=2)
    figure = _effective_batch(found, found.steps().filter(pl.col("domain").is_null()))
    assert all(line.get_marker() == "o" for line in figure.axes[0].get_lines())
    write_replay(found, tmp_path / "out", force=False)


def test_every_strategy_has_a_line_of_its_own(bundled):
    from dfsim.reports.figures import _effective_batch

    many = dfsim.replay(bundled, ["none", *_sweep(11)], resamples=2)
    figure = _effective_batch(many, many.steps().filter(pl.col("domain").is_null()))
    lines = [line for line in figure.axes[0].get_lines() if not line.get_label().startswith("_")]
    assert len(lines) == 12
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 12


def _sweep(count):
    from dfsim.strategies.grammar import strategies_from

    values = ", ".join(str((i + 1) / count) for i in range(count))
    return strategies_from(["topk"], [f"fraction=[{values}]"])


def test_a_result_without_any_number_can_be_written(tmp_path):
    trace = solved_trace(tmp_path / "t", [[0, 4]], 4, drop=("num_tokens", "old_log_probs"))
    write_replay(dfsim.replay(trace, ["dapo"], resamples=2), tmp_path / "out", force=False)
    assert (tmp_path / "out" / "signal_scale.png").stat().st_size > 0
    assert "NaN" not in (tmp_path / "out" / "replay.json").read_text(encoding="utf-8")


def test_infinite_parameters_are_null_in_json(bundled):
    from dfsim.strategies.build import build_own

    class Capped:
        cap: float = math.inf

        def weights(self, batch):
            return np.ones(batch.num_responses)

    found = dfsim.replay(bundled, [build_own(Capped, "own", {}, 0)], resamples=2)
    record = json.loads(dump_json(found.to_dict()))
    assert record["strategies"]["own"]["params"] == {"cap": None}


# --decisions


def decisions_of(trace, strategy, target):
    with writing_decisions(target, strategy.name) as on_decision:
        dfsim.replay(trace, [strategy], resamples=2, on_decision=on_decision)
    return pl.read_parquet(target)


@pytest.mark.parametrize("name", ["maxvar", "maxvar@paper", "softmax", "ar", "none"])
def test_decisions_are_the_strategy_s_own(bundled, tmp_path, name):
    strategy = build(name)
    table = decisions_of(bundled, strategy, tmp_path / "d.parquet")
    columns = ["step", "group_uid", "rollout_idx", "weight"]
    columns += ["advantage"] * ("@paper" in name) + ["token_weights"] * (name == "ar")
    assert table.columns == columns
    assert table.schema["weight"] == pl.Float32
    names = ["advantage", "num_tokens", "old_log_probs", "prompt_id"]
    for batch in bundled.batches(names):
        decision = strategy.decide(batch)
        rows = table.filter(step=batch.step)
        assert rows["group_uid"].to_list() == batch.uid_G[batch.group_N].tolist()
        assert rows["rollout_idx"].to_list() == batch.rollout_idx_N.tolist()
        assert np.array_equal(rows["weight"], decision.weight_N.astype(np.float32))
        if "@paper" in name:
            assert np.array_equal(rows["advantage"], decision.advantage_N.astype(np.float32))
        if name == "ar":
            assert rows.schema["token_weights"] == pl.List(pl.Float32)
            expected = decision.token_weight_T.astype(np.float32)
            cuts = batch.token_offsets.tolist()
            lists = [expected[a:b].tolist() for a, b in pairwise(cuts)]
            assert rows["token_weights"].to_list() == lists


def test_a_response_without_a_token_has_an_empty_list(tmp_path):
    step = exact_step([1], 2, num_tokens=2)
    log_probs = np.array([-0.5, -1.0], dtype=np.float32)
    step |= {"num_tokens": [2, 0], "old_log_probs": (log_probs, np.array([2, 0]))}
    table = decisions_of(trace_of(tmp_path / "t", [step]), build("ar"), tmp_path / "d.parquet")
    assert [len(weights) for weights in table["token_weights"]] == [2, 0]
    assert table["weight"][1] == 1.0


def test_an_older_decision_file_is_replaced_only_by_a_whole_one(bundled, tmp_path):
    target = tmp_path / "d.parquet"
    target.write_bytes(b"old")

    def fail(batch, decisions):
        if batch.step == 3:
            raise RuntimeError

    with pytest.raises(RuntimeError), writing_decisions(target, "maxvar") as on_decision:
        dfsim.replay(
            bundled, ["maxvar"], on_decision=lambda *step: (on_decision(*step), fail(*step))
        )
    assert [p.name for p in tmp_path.iterdir()] == ["d.parquet"]
    assert target.read_bytes() == b"old"
    assert decisions_of(bundled, build("maxvar"), target).height == 11520
    assert [p.name for p in tmp_path.iterdir()] == ["d.parquet"]


@pytest.mark.parametrize("name", ["nowhere/d.parquet", ""])
def test_decisions_need_a_place(tmp_path, name):
    with (
        pytest.raises(DfsimError, match=r"is not a folder|is a folder"),
        writing_decisions(tmp_path / name, "maxvar"),
    ):
        pass


def test_a_pipe_or_device_is_never_replaced(bundled, tmp_path):
    """Results appear by rename, which would put a file where a pipe or device was."""
    target = tmp_path / "pipe.csv"
    os.mkfifo(target)
    with pytest.raises(DfsimError, match="no regular file"), writing_decisions(target, "maxvar"):
        pass
    with pytest.raises(DfsimError, match="no regular file"):
        check_prompts(bundled, target)
    assert target.is_fifo()


# inspect --prompts


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_prompts_are_one_row_each(tmp_path, suffix):
    found = census(solved_trace(tmp_path / "t", [[0, 4], [2, 4]], 4))
    target = tmp_path / f"prompts.{suffix}"
    write_prompts(found, target)
    table = pl.read_csv(target) if suffix == "csv" else pl.read_parquet(target)
    rows = {row["prompt_id"]: row for row in table.iter_rows(named=True)}
    assert set(rows) == {"p00000", "p00001"}
    assert rows["p00000"]["status"] == "learning"
    assert rows["p00001"]["status"] == "mastered"
    assert rows["p00000"]["solve_rate"] == 0.25
    assert (rows["p00000"]["first_step"], rows["p00000"]["last_step"]) == (1, 2)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [target.name]


# Sentences


def test_the_table_says_what_cannot_be_estimated(tmp_path):
    trace = solved_trace(tmp_path, [[1, 2]], 4, drop=("num_tokens", "old_log_probs"))
    text = said(print_replay, dfsim.replay(trace, ["dapo"], resamples=2))
    row = next(line for line in text.splitlines() if line.startswith("none")).split()
    assert row == ["none", "2.0", "[2.0,", "2.0]", "–", "1.00", "0.00", "–"]
    assert "lengths unknown" in text
    assert "nan" not in text


def test_a_strategy_without_a_finding_says_so(tmp_path):
    trace = solved_trace(tmp_path, [[2, 2, 0]], 4)
    text = said(print_replay, dfsim.replay(trace, ["dapo", "difffilter", "ar"], resamples=2))
    assert "splits_nothing" in text
    assert "ar changes nothing on every step" in text


def test_names_with_brackets_are_printed_as_they_are(tmp_path, capsys):
    domain = "[red]maths[/red] :smile:"
    step = exact_step([1, 2], 4, domains=[domain] * 2)
    trace = trace_of(tmp_path, [step])
    print_census(trace, census(trace), console())
    assert domain in capsys.readouterr().out


def test_progress_is_silent_where_nobody_watches(capsys):
    with progress("replay", quiet=False) as tick:
        tick(1, 10)
    assert capsys.readouterr() == ("", "")


# Notes


def notes(trace, strategies=("none",), **options):
    return " ".join(dfsim.replay(trace, list(strategies), resamples=2, **options).notes)


def test_notes_say_what_was_assumed(tmp_path):
    drop = ("num_tokens", "old_log_probs", "prompt_id")
    bare = solved_trace(tmp_path, [[1, 2]], 4, drop=drop)
    assumed = notes(bare, ["topk"])
    assert "Lengths are unknown" in assumed
    assert "Without prompt ids" in assumed
    assert "one mini-batch a step" in assumed
    assert "Advantages were recomputed from rewards (grpo, eps 1e-06)" in assumed
    assert "Without prompt ids" not in notes(bare, ["maxvar"])


def test_notes_stay_silent_on_what_the_trace_says(tmp_path):
    step = exact_step([1, 2], 4)
    step["advantage"] = np.tile([1.0, -1.0], 4)
    config = {"ppo_mini_batch_size": 2, "n": 4}
    assumed = notes(trace_of(tmp_path, [step], config=config, lengths="tokens"), ["topk"])
    for words in ("Lengths", "prompt ids", "mini-batch", "recomputed", "loss_scale_factor"):
        assert words not in assumed
    assert "A fixed log shows" in assumed


def test_notes_carry_the_label_the_unit_and_the_updates(tmp_path):
    config = {"ppo_mini_batch_size": 1, "n": 4}
    options = {"label": "a toy", "lengths": "characters", "config": config}
    trace = solved_trace(tmp_path, [[1, 2]], 4, **options)
    assumed = notes(trace)
    assert assumed.startswith("a toy")
    assert "measured in characters" in assumed
    assert "One rollout step is 2 optimizer updates" in assumed
    updates = (
        dfsim.replay(trace, ["none"], resamples=2).table().filter(estimator="updates_per_step")
    )
    assert updates["mean"].to_list() == [2.0]
