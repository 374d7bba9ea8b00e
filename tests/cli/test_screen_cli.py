"""``dfsim screen`` on the command line: what it prints, writes and refuses."""

from __future__ import annotations

import io
import json
import shlex

import polars as pl
import pytest
from conftest import ROOT
from made import solved_trace
from rich.console import Console
from said import printed, refused
from screens import EVEN, QUICK, named, screened, strict_json, two_sizes, words
from screens import even as even
from screens import own as own

import dfsim
from dfsim.reports.screen.tables import print_screen
from dfsim.traces.errors import DfsimError
from dfsim.traces.spelling import speaking
from dfsim.traces.storage.store import open_trace


@pytest.fixture
def small(tmp_path):
    return solved_trace(tmp_path / "small", [[1, 2, 0], [3, 1, 4]], 4).path


# What is printed and written


def test_json_is_one_standard_object_and_the_same_twice(even):
    args = ("screen", even, "--json", *QUICK)
    first, again = (strict_json(printed(*args)) for _ in range(2))
    assert first["by"] == "effective_batch_low"
    for record in (first, again):
        record.pop("provenance")
    assert first == again


def test_the_python_call_gives_the_same_numbers(even):
    record = screened(even, *named("maxvar", "topk"))
    with speaking("shell"):
        result = dfsim.screen(even, ["maxvar", "topk"], resamples=2)
    mine = json.loads(json.dumps(result.to_dict()))
    assert mine["traces"][0]["strategies"] == record["traces"][0]["strategies"]
    table = result.table()
    assert table["strategy"].to_list() == list(mine["traces"][0]["strategies"])
    assert table["rank"].to_list() == [1, 2, 3]
    with pytest.raises(DfsimError, match="orders nothing"):
        dfsim.screen(dfsim.open_trace(even), ["maxvar"], by="reward")


@pytest.mark.parametrize("width", [80, 100, 140])
def test_tables_cut_no_name_or_number(width, own, even, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    swept = ("-p", "maxvar.keep_frac=[0.25, 0.5]")
    text = printed("screen", even, *named("maxvar", f"{own}:Keep"), *swept, *QUICK)
    assert "…" not in text
    assert "keep_frac=0.25" in text
    for heading in ("strategy", "bracket", "tokens", "scale", "bias", "difference", "verdict"):
        assert heading in text
    lines = [line for line in text.splitlines() if not line.startswith("Next: ")]
    assert max(map(len, lines)) <= max(width, 100)


def test_a_long_baseline_leaves_room_for_the_table(own, even):
    base = f"{own}:Keep[groups=5]"
    args = (even, *named(f"{own}:Keep"), "-p", "groups=[5, 7]", "--baseline", base, *QUICK)
    lines = printed("screen", *args).splitlines()
    assert max(len(line) for line in lines if not line.startswith("Next: ")) <= 100
    assert any("promote" in line and "+2.00" in line for line in lines)


def test_advice_names_what_is_worth_a_run_and_the_next_command(even, own):
    text = printed("screen", even, *named("maxvar", f"{own}:Keep"), *QUICK)
    assert "Worth a live run" in text
    (line,) = [line for line in text.splitlines() if line.startswith("Next: ")]
    assert "dfsim promote" in line


def test_the_next_command_promotes_what_was_screened(tmp_path, own):
    """Parameters that were set stay set; names and paths survive a shell."""
    place = tmp_path / "my run; $HOME"
    path = solved_trace(place, EVEN, 4).path
    for params in ("groups=5", "groups=[5, 4]"):
        text = printed("screen", path, *named(f"{own}:Keep"), "-p", params, *QUICK)
        (line,) = [line for line in text.splitlines() if line.startswith("Next: ")]
        expected = ["dfsim", "promote", str(path), "--strategy", f"{own}:Keep", "-p", "groups=5"]
        assert shlex.split(line.removeprefix("Next: "))[:-2] == expected


def test_out_holds_the_record_the_table_and_figures(even, tmp_path):
    out = tmp_path / "out"
    text = printed("screen", even, *named("maxvar", "topk"), "--out", out, *QUICK)
    assert f"Written: {out}" in text
    record = strict_json((out / "screen.json").read_text())
    assert next(iter(record["traces"][0]["strategies"])) == "none"
    table = pl.read_csv(out / "screen.csv")
    assert set(table["strategy"]) == {"none", "maxvar", "topk"}
    steps = pl.read_parquet(out / "steps.parquet")
    assert steps["step"].n_unique() == 60
    for stem in ("front_1", "differences_1"):
        assert (out / f"{stem}.png").stat().st_size > 1000
        assert (out / f"{stem}.svg").stat().st_size > 1000
    assert "exists; choose another --out, or add --force" in refused(
        "screen", even, "-s", "maxvar", "--out", out, *QUICK
    )
    printed("screen", even, "-s", "maxvar", "--out", out, "--force", *QUICK)
    assert set(pl.read_csv(out / "screen.csv")["strategy"]) == {"none", "maxvar"}


def test_out_holds_every_trace(tmp_path):
    paths = two_sizes(tmp_path)
    out = tmp_path / "out"
    printed("screen", *paths, *named("topk", "maxvar"), "--out", out, *QUICK)
    assert (out / "front_2.png").exists()
    for frame in (pl.read_csv(out / "screen.csv"), pl.read_parquet(out / "steps.parquet")):
        assert set(frame["trace"]) == {str(p) for p in paths}


def test_out_of_others_is_left_alone(even, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    line = refused("screen", even, "-s", "topk", "--out", other, "--force", *QUICK)
    assert "--force will not replace it" in line
    assert (other / "thesis.tex").read_text() == "years of work"


# What is refused


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--by", "effective_bach"], ["effective_bach", "did you mean 'effective_batch'"]),
        (["--by", "signal_scale"], ["signal_scale", "it takes: ", "effective_batch"]),
        (["-s", "topk", "--baseline", "maxvar"], ["--baseline maxvar", "they are: none, topk"]),
        (["-s", "dump_ucb"], ["dump_ucb", "--map domain="]),
        (["-s", "dump_ucb+maxvar"], ["dump_ucb+maxvar", "--map domain="]),
        (["-s", "maxvr"], ["did you mean 'maxvar'"]),
        (["-s", "topk", "-s", "topk"], ["given twice"]),
        (["-s", "topk", "-p", "fraction=[0.5, 0.5]"], ["given twice"]),
        (["-s", "topk", "-p", "fraction=[]"], ["sweeps nothing"]),
        (["-s", "nowhere.py:Mine"], ["nowhere.py does not exist"]),
        (["--seed", "-1"], ["seed=-1"]),
        (["--resamples", "1"], ["resamples=1"]),
        (["--phi", "2"], ["phi=2"]),
        (["--loss-agg-mode", "token_mean"], ["did you mean 'token-mean'"]),
    ],
)
def test_mistakes_are_refused_in_one_line(args, said, small):
    line = refused("screen", small, *args)
    for part in said:
        assert part in line


def test_a_path_is_a_trace_or_holds_one(tmp_path, small):
    assert "does not exist" in refused("screen", tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no trace" in refused("screen", empty)
    assert "does not exist" in refused("screen", small, tmp_path / "nowhere")


def test_the_current_folder_is_never_replaced(small, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert "is the current folder" in refused("screen", small, "--out", ".")
    assert list(here.iterdir()) == []


def test_a_failing_strategy_leaves_nothing(small, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "bad.py").write_text(
        "class Bad:\n    def weights(self, batch):\n        raise RuntimeError('no')\n"
    )
    line = refused("screen", small, "-s", f"{tmp_path}/bad.py:Bad", "--out", place / "o", *QUICK)
    assert "Bad.weights raised RuntimeError: no" in line
    assert list(place.iterdir()) == []


def test_the_bundled_trace_reads_as_advice():
    shown = words(printed("screen", ROOT / "traces", *QUICK))
    assert "not evidence about LLMs" in shown
    assert "which trains better, only live runs say" in shown
    assert "dapo drops only responses whose advantage is 0" in shown
    assert "nan" not in shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_and_verdicts_are_whole_at_any_width(width):
    result = dfsim.screen(
        open_trace(ROOT / "traces"), ["maxvar", "gfpo@paper", "diffband"], resamples=2
    )
    out = Console(width=width, file=io.StringIO(), color_system=None)
    print_screen(result, out)
    lines = out.file.getvalue().splitlines()
    assert max(map(len, lines[:-1])) <= width  # the last is a command to copy
    for name, verdict in (("maxvar", "care"), ("gfpo@paper", "thin"), ("diffband", "no-op")):
        row = next(line for line in lines if line.startswith(f"{name} "))
        assert row.split()[-1] == verdict
        assert "…" not in row
