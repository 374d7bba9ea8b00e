"""``dfsim report``, what a result folder says of its origin, and that it is the same each time."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

import pytest
import tomllib
from conftest import ROOT
from made import solved_trace, trace_of
from said import printed, refused

import dfsim
from dfsim.reports.folders.replay import replay_record, write_replay
from dfsim.reports.pages import PAGES
from dfsim.sim.mix.summary import MixReport
from dfsim.sim.provenance import command_line, provenance
from dfsim.sim.result import ReplayResult, dump_json
from dfsim.traces.synthetic import binary_steps

QUICK = ("--resamples", "5", "--quiet")
ARGS = ("replay", "-s", "maxvar", "-s", "tscl", "--out", "out", *QUICK)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    steps = binary_steps({"math": 0.3, "code": 0.6}, steps=4, groups_per_domain=2, n=4, seed=2)
    return trace_of(tmp_path_factory.mktemp("report") / "trace", steps)


def replayed(trace, home):
    """The folder of one command, given from ``home``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        printed(*ARGS[:1], trace.path, *ARGS[1:])
    return home / "out"


@pytest.fixture(scope="module")
def made(trace, tmp_path_factory):
    return replayed(trace, tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "out"))


# The command


def test_report_writes_the_same_page_again(folder):
    page = folder / "index.html"
    before = page.read_bytes()
    page.unlink()
    assert printed("report", folder) == f"Written: {page}\n"
    assert page.read_bytes() == before
    assert json.loads(printed("report", folder, "--json")) == {"page": str(page)}


def test_a_folder_may_move_and_lose_its_figures(folder, tmp_path):
    shutil.move(folder, tmp_path / "moved")
    for file in (tmp_path / "moved").glob("*.*g"):
        file.unlink()
    printed("report", tmp_path / "moved")
    text = (tmp_path / "moved" / "index.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert "The run under each strategy" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", ["is no JSON", "dfsim replay --out"]),
        ("\udcff", ["is no JSON", "dfsim replay --out"]),
        ("[]", ["no result of dfsim's"]),
        ('{"strategies": {}}', ["no result of dfsim's"]),
        ('{"dfsim": "9.0", "version": 99}', ["version 99", "reads version 1", "Upgrade"]),
        ('{"dfsim": "0.1.0"}', ["version None", "reads version 1"]),
        ('{"dfsim": "0.1.0", "version": 1}', ["no result of dfsim's", "dfsim replay --out"]),
    ],
)
def test_a_damaged_or_unknown_result_is_refused(folder, content, words):
    page = (folder / "index.html").read_bytes()
    (folder / "replay.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    line = refused("report", folder)
    for word in (str(folder / "replay.json"), *words):
        assert word in line
    assert (folder / "index.html").read_bytes() == page


@pytest.mark.parametrize("key", ["trace", "strategies", "provenance", "settings", "notes"])
def test_a_result_that_lacks_a_part_is_refused(folder, key):
    record = json.loads((folder / "replay.json").read_text(encoding="utf-8"))
    (folder / "replay.json").write_text(dump_json({k: v for k, v in record.items() if k != key}))
    assert key in refused("report", folder)


def test_a_folder_without_a_result_is_refused(tmp_path):
    assert "does not exist" in refused("report", tmp_path / "nowhere")
    (tmp_path / "file").touch()
    assert "is not a folder" in refused("report", tmp_path / "file")
    line = refused("report", tmp_path)
    for name in PAGES:
        assert name in line


# The same command, the same bytes


def test_the_same_command_writes_the_same_bytes(trace, made, tmp_path):
    first, second = (
        {p.name: p.read_bytes() for p in folder.iterdir()}
        for folder in (made, replayed(trace, tmp_path))
    )
    assert {"index.html", "replay.json", "mix_1_shares.svg", "signal_scale.png"} <= first.keys()
    assert first.keys() == second.keys()
    assert [n for n in first if first[n] != second[n]] == []


def test_a_result_carries_its_command_and_versions(made, trace):
    record = json.loads((made / "replay.json").read_text(encoding="utf-8"))
    found = record["provenance"]
    assert shlex.split(found.pop("command")) == ["dfsim", ARGS[0], str(trace.path), *ARGS[1:]]
    assert record["version"] == 1
    assert found == {
        "dfsim": dfsim.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": version("numpy"),
        "polars": version("polars"),
    }


def test_json_carries_it_too(trace):
    args = ["replay", str(trace.path), "-s", "maxvar", "--json", *QUICK]
    record = json.loads(printed(*args))
    assert record["provenance"]["command"] == shlex.join(["dfsim", *args])


def test_a_command_whose_words_are_no_text_is_still_carried():
    """A file's name may be any bytes; JSON and HTML are UTF-8."""
    with command_line(["replay", "name \udcff"]):
        assert provenance()["command"] == "dfsim replay 'name \\udcff'"
    assert "command" not in provenance()


def test_from_python_there_is_no_command(trace, tmp_path):
    printed("inspect", trace.path)  # a command that is over leaves nothing behind
    write_replay(dfsim.replay(trace, ["maxvar"], resamples=2), tmp_path / "out", force=False)
    record = json.loads((tmp_path / "out" / "replay.json").read_text(encoding="utf-8"))
    assert "command" not in record["provenance"]
    assert "Command" not in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


# Records


def test_records_are_read_as_they_were_written(trace, tmp_path):
    """A page is built from the JSON alone."""
    config = {"ppo_mini_batch_size": 1, "n": 4}
    bare = solved_trace(
        tmp_path / "bare", [[0, 4], [1, 4]], 4, drop=("num_tokens", "old_log_probs"), config=config
    )
    for one in (trace, bare):
        record = json.loads(dump_json(dfsim.replay(one, ["maxvar"], resamples=2).to_dict()))
        assert ReplayResult.from_dict(record).to_dict() == record
    names = ["tscl", "dump_ucb+maxvar"]
    result = dfsim.replay(trace, names, resamples=2, clocks=("exposure",))
    for mixer in result.mixers.values():
        record = json.loads(dump_json(mixer.to_dict()))
        assert MixReport.from_dict(mixer.name, record).to_dict() == record


@pytest.mark.parametrize("solved", [[[0, 4]], [[0, 0], [1, 2]]])
def test_a_result_without_numbers_has_a_page_that_says_why(tmp_path, solved):
    drop = ("num_tokens", "old_log_probs")
    trace = solved_trace(tmp_path / "t", solved, 4, drop=drop)
    write_replay(dfsim.replay(trace, ["dapo"], resamples=2), tmp_path / "out", force=False)
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    found = dfsim.replay(trace, ["dapo"], resamples=2).strategies["dapo"].estimates
    assert f"waste: {found['wasted_token_frac'].reason}" in text
    assert re.search(r"\bnan\b|\bNone\b", text) is None


def test_a_table_sorts_by_the_numbers_themselves(trace):
    record = replay_record(dfsim.replay(trace, ["maxvar"], resamples=2))
    page = PAGES["replay.json"](json.loads(dump_json(record)))
    (table,) = page.sections[0].tables
    assert [row[0].text for row in table.rows] == ["none", "maxvar"]
    assert all(len(row) == len(table.columns) for row in table.rows)
    means = record["strategies"]["maxvar"]["estimates"]
    assert table.rows[1][1].value == means["effective_batch"]["mean"]


# Packaging


def test_the_template_is_packaged():
    with (ROOT / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["dfsim.reports"]
    files = [p for p in (ROOT / "reports" / "templates").rglob("*") if p.is_file()]
    assert {p.suffix for p in files} == {".j2", ".css", ".js"}
    for path in files:
        name = str(path.relative_to(ROOT / "reports"))
        assert any(fnmatch(name, pattern) for pattern in patterns)
