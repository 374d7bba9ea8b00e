"""The command line: what it prints, what it refuses, and what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import ROOT
from made import solved_trace
from said import QUICK, printed, refused, run

import dfsim
from dfsim.strategies.catalog import PRESETS, WEIGHING


@pytest.fixture
def small(tmp_path):
    return solved_trace(tmp_path / "small", [[1, 2, 0], [3, 1, 4]], 4).path


@pytest.fixture
def bare(tmp_path):
    drop = ("num_tokens", "old_log_probs")
    return solved_trace(tmp_path / "bare", [[1, 2, 0]], 4, drop=drop).path


@pytest.fixture
def failing(tmp_path):
    """A strategy that fails on the second step."""
    file = tmp_path / "failing.py"
    file.write_text(
        textwrap.dedent("""
            import numpy as np
            class Mine:
                def weights(self, batch):
                    if batch.step == 2:
                        raise RuntimeError("no second step")
                    return np.ones(batch.num_responses)
        """)
    )
    return f"{file}:Mine"


# replay


def test_replay_prints_the_baseline_first_and_findings_in_sentences():
    text = printed("replay", ROOT / "traces", "--strategy", "maxvar", *QUICK)
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("strategy"))
    columns = " ".join(lines[head - 1 : head + 1])
    for word in ("effective", "bracket", "trained", "tokens", "signal", "bias", "waste"):
        assert word in columns
    assert lines[head + 1].split()[0] == "none"
    assert lines[head + 2].split()[0] == "maxvar"
    assert "biased_groups" in text
    assert "maxvar unbalances groups" in text
    assert "not evidence about LLMs" in text


def test_replay_json_is_one_object(small):
    text = printed("replay", small, "-s", "maxvar", "--json", *QUICK)
    record = json.loads(text)
    assert list(record["strategies"]) == ["none", "maxvar"]
    assert "NaN" not in text
    assert record["settings"]["resamples"] == 2


def test_sweep_rows_keep_their_values_in_brackets(small):
    text = printed("replay", small, "-s", "maxvar", "-p", "keep_frac=[0.25, 0.5]", *QUICK)
    assert "maxvar[keep_frac=0.25]" in text
    assert "maxvar[keep_frac=0.5]" in text


def test_parameters_and_compositions_reach_the_strategy(small):
    record = json.loads(
        printed(
            *("replay", small, "--scorer", "advantage_magnitude", "--actuator", "softmax"),
            *("-p", "temperature=1e-1", "--json", *QUICK),
        )
    )
    params = record["strategies"]["advantage_magnitude+softmax"]["params"]
    assert params["temperature"] == 0.1


def test_all_leaves_out_what_the_trace_cannot_run_and_says_so(bare):
    text = printed("replay", bare, "-s", "all", *QUICK)
    assert "ar was left out: it needs column 'old_log_probs'" in " ".join(text.split())
    record = json.loads(printed("replay", bare, "-s", "all", "--json", *QUICK))
    kept = [n for n in WEIGHING if n.split("@")[0] not in ("ar", "gfpo")]
    assert list(record["strategies"]) == kept
    assert any(note.startswith("ar was left out") for note in record["notes"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-s", "maxvr"], "did you mean 'maxvar'"),
        (["-s", "maxvar", "-p", "keepfrac=1"], "did you mean 'keep_frac'"),
        (["-s", "maxvar", "-p", "keep_frac=2"], "(0, 1]"),
        (["-s", "maxvar", "-p", "keep_frac"], "-p keep_frac is not name=value"),
        (["-s", "gfpo", "-p", "k=.inf"], "not a finite number"),
        (["-s", "maxvar", "-s", "dapo", "-p", "keep_frac=1"], "write STRATEGY.keep_frac=1"),
        (["-s", "dapo", "-s", "dapo"], "given twice"),
        (["-s", "nowhere.py:Mine"], "nowhere.py does not exist"),
        (["-s", "dapo", "--scorer", "reward"], "not both"),
        ([], "name a strategy"),
        (["-s", "dapo", "--loss-agg-mode", "token_mean"], "did you mean 'token-mean'"),
        (["-s", "dapo", "--resamples", "1"], "resamples=1"),
        (["-s", "dapo", "--seed", "-1"], "seed=-1"),
        (["-s", "dapo", "--phi", "2"], "phi=2"),
        (["-s", "dapo", "-s", "maxvar", "--decisions", "d.parquet"], "name one strategy"),
        (["-s", "dapo", "--decisions", "no/such/d.parquet"], "no/such is not a folder"),
    ],
)
def test_replay_refuses_in_one_line(small, args, words):
    assert words in refused("replay", small, *args)


def test_replay_names_the_column_a_strategy_lacks(bare):
    line = refused("replay", bare, "-s", "ar")
    assert "ar needs column 'old_log_probs'" in line
    assert "--map old_log_probs=" in line


@pytest.mark.parametrize("command", [("replay", "-s", "dapo"), ("inspect",), ("strategies",)])
def test_a_path_is_a_trace_or_holds_one(tmp_path, command):
    name, *rest = command
    assert "does not exist" in refused(name, tmp_path / "nowhere", *rest)
    file = tmp_path / "rows.jsonl"
    file.write_text("{}\n")
    assert f"dfsim import {file}" in refused(name, file, *rest)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no trace" in refused(name, empty, *rest)
    first, second = (solved_trace(tmp_path / "two" / n, [[1]], 4).path for n in ("a", "b"))
    line = refused(name, tmp_path / "two", *rest)
    assert f"{first}, {second}" in line
    shutil.rmtree(second)
    assert run(name, tmp_path / "two", *rest).exit_code == 0


def test_a_changed_byte_is_refused_naming_the_file(small):
    file = small / "step_000002.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert f"{file} was changed" in refused("replay", small, "-s", "dapo")


# What is written


def test_a_failed_replay_leaves_nothing(small, failing, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    options = ("--out", place / "out", "--decisions", place / "d.parquet")
    line = refused("replay", small, "-s", failing, *options, *QUICK)
    assert "Mine.weights raised RuntimeError: no second step (failing.py:6)" in line
    assert list(place.iterdir()) == []


def test_out_is_refused_replaced_and_kept(small, failing, tmp_path):
    out = tmp_path / "out"
    text = printed("replay", small, "-s", "maxvar", "--out", out, *QUICK)
    assert f"Written: {out}" in text
    before = (out / "replay.json").read_text()
    early = refused("replay", small, "-s", failing, "--out", out)  # before any step is replayed
    assert "add --force" in early
    assert "raised" in refused("replay", small, "-s", failing, "--out", out, "--force", *QUICK)
    assert (out / "replay.json").read_text() == before
    printed("replay", small, "-s", "dapo", "--out", out, "--force", *QUICK)
    assert list(json.loads((out / "replay.json").read_text())["strategies"]) == ["none", "dapo"]
    assert {p.name for p in tmp_path.iterdir()} == {"small", "out", "failing.py"}


def test_what_dfsim_did_not_write_is_never_replaced(small, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    for target in (other, other / "thesis.tex", small):
        line = refused("replay", small, "-s", "dapo", "--out", target, "--force", *QUICK)
        assert f"{target} " in line
        said = "--force will not replace it" if target.is_dir() else "is no folder"
        assert said in line
    assert (other / "thesis.tex").read_text() == "years of work"


def test_the_current_folder_is_never_replaced(small, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for command in (("replay", small, "-s", "dapo"), ("inspect", small), ("import", small)):
        assert "is the current folder" in refused(*command, "--out", ".")
    assert list(here.iterdir()) == []


# inspect, strategies, import


def test_inspect_prints_and_dumps():
    text = printed("inspect", ROOT / "traces")
    for words in ("60 (1 … 60)", "1,440", "11,520", "stands out", "can run", "180 more steps"):
        assert words in text
    record = json.loads(printed("inspect", ROOT / "traces", "--json"))
    assert record["groups"] == 1440
    assert record["trace"]["steps"] == 60
    assert record["more_steps_to_halve_interval"] == 180


def test_inspect_without_ids_lengths_or_log_probs(tmp_path):
    drop = ("num_tokens", "old_log_probs", "prompt_id")
    trace = solved_trace(tmp_path / "t", [[1, 2, 0]], 4, drop=drop).path
    text = printed("inspect", trace)
    for words in ("token figures will be null", "no prompt ids", "can't run", "12 are needed"):
        assert words in text
    line = refused("inspect", trace, "--prompts", tmp_path / "p.csv")
    assert "--map prompt_id=COLUMN" in line


def test_prompts_end_in_csv_or_parquet_before_anything_is_read(small, tmp_path):
    (small / "step_000001.parquet").write_bytes(b"broken")
    assert "must end in .csv or .parquet" in refused("inspect", small, "--prompts", "p.xlsx")


def test_strategies_lists_and_says_what_runs(bare):
    text = printed("strategies")
    assert [line.split()[0] for line in text.splitlines() if line.startswith(tuple(PRESETS))] == [
        *PRESETS
    ]
    record = json.loads(printed("strategies", "--json"))
    assert list(record) == list(PRESETS)
    assert record["maxvar"]["parameters"]["keep_frac"]["range"] == "(0, 1]"
    assert "runs" not in record["maxvar"]
    here = json.loads(printed("strategies", bare, "--json"))
    assert here["maxvar"]["runs"] is True
    assert here["ar"]["runs"] is False
    assert "old_log_probs" in here["ar"]["reason"]


def test_check_names_invariants_or_the_broken_one(failing):
    assert "10 invariants hold" in printed("strategies", "--check", "maxvar")
    record = json.loads(printed("strategies", "--check", "maxvar", "--json"))
    assert record["strategy"] == "maxvar"
    assert len(record["invariants"]) == 10
    line = refused("strategies", "--check", failing.replace("Mine", "Yours"))
    assert "has no class 'Yours'" in line


def test_import_makes_a_trace_that_replays(tmp_path):
    source = tmp_path / "rows.jsonl"
    rows = [{"step": 1, "uid": "g", "score": r, "n": 3} for r in (1.0, 0.0)]
    source.write_text("\n".join(map(json.dumps, rows)))
    maps = ("--map", "group_uid=uid", "--map", "reward=score", "--map", "num_tokens=n")
    made = ("import", source, "--out", tmp_path / "t", *maps, "--set", "optimizer=SGD")
    text = printed(*made, "--set", "started=2024-01-01")
    assert "2 responses in 1 step, " in text.replace("\n", "")
    assert "exists" in refused(*made)
    summary = json.loads(printed(*made, "--force", "--json"))
    assert (summary["responses"], summary["trace"]) == (2, str(tmp_path / "t"))
    trace = dfsim.open_trace(tmp_path / "t")
    assert trace.manifest.config == {"optimizer": "SGD"}
    printed("replay", tmp_path / "t", "-s", "maxvar", *QUICK)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--format", "falt"], "did you mean 'flat'"),
        (["--length", "words"], "it takes: chars"),
        (["--map", "reward"], "--map reward is not name=value"),
        (["--map", "rewrd=score"], "did you mean 'reward'"),
        (["--map", "reward=scoer"], "did you mean 'score'"),
        (["--set", "x=nan"], "not a finite number"),
        ([], "--format flat --map reward=score"),
    ],
)
def test_import_refuses_in_one_line_and_leaves_nothing(tmp_path, args, words):
    (tmp_path / "rows.jsonl").write_text('{"step": 1, "group_uid": "g", "score": 1.0}\n')
    assert words in refused("import", tmp_path / "rows.jsonl", "--out", tmp_path / "t", *args)
    assert [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]


def test_version():
    assert printed("--version") == f"dfsim {dfsim.__version__}\n"


# As a process


def process(*args, **options):
    command = [sys.executable, "-m", "dfsim.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_a_process_prints_json_only_and_keeps_stderr_silent(small, tmp_path):
    out = tmp_path / "out"
    done = process("replay", small, "-s", "all", "--json", "--out", out, *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(json.loads(done.stdout)["strategies"]) == list(WEIGHING)


def test_a_process_fails_with_two_and_one_line(small):
    done = process("replay", small, "-s", "maxvr")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("args", [["-s", "all"], ["-s", "all", "--json"]])
def test_a_closed_pipe_is_no_error(args, small):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "dfsim.cli", "replay", str(small), *args, *QUICK],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == 1


def test_an_interrupt_leaves_nothing_and_says_130(tmp_path):
    trace = solved_trace(tmp_path / "long", [[1, 2]] * 200, 4).path
    marker, place = tmp_path / "begun", tmp_path / "place"
    place.mkdir()
    (tmp_path / "slow.py").write_text(
        textwrap.dedent(f"""
            import pathlib, time
            import numpy as np
            class Slow:
                def weights(self, batch):
                    if batch.step == 2:
                        pathlib.Path({str(marker)!r}).touch()
                    time.sleep(0.2)
                    return np.ones(batch.num_responses)
        """)
    )
    files = ("--out", place / "out", "--decisions", place / "d.parquet")
    command = ("replay", trace, "-s", f"{tmp_path / 'slow.py'}:Slow", *files, *QUICK)
    running = subprocess.Popen(
        [sys.executable, "-m", "dfsim.cli", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not marker.exists():
        assert running.poll() is None
        time.sleep(0.01)
    assert list(place.iterdir())  # what it is about to write
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate()
    assert running.returncode == 130
    assert stdout == ""
    assert stderr.strip() == "dfsim: interrupted; nothing partial was left behind"
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "call", [["screen"], ["scren"], ["replay", "TRACE", "--resamples", "x"], ["compare", "--nope"]]
)
def test_a_wrong_call_is_one_line_that_names_the_help(small, call):
    line = refused(*(small if word == "TRACE" else word for word in call))
    assert "see dfsim" in line
    assert line.endswith("--help")


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(small, tmp_path):
    file = tmp_path / "file.txt"
    file.write_text("mine")
    for command in (("replay", small, "-s", "dapo", *QUICK), ("inspect", small)):
        assert "can't be created in" in refused(*command, "--out", file / "out")
    assert {p.name for p in tmp_path.iterdir()} == {"small", "file.txt"}


def test_compact_says_what_it_wrote_as_json(small, tmp_path):
    record = json.loads(printed("compact", small, "--out", tmp_path / "few", "--json"))
    assert record == {"trace": str(tmp_path / "few"), "steps": 2, "files": 1}
