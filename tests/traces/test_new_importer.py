"""A format is one file and one line: an invented one shows wherever formats are named."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex

import pytest
from conftest import ROOT
from dumps import jsonl
from said import refused, run

from dfsim.traces.importers import IMPORTERS
from dfsim.traces.storage.store import open_trace

FILE = '''
"""Rollouts of a trainer that does not exist."""

from dfsim.traces.importers.formats.base import FormatOption, Hint, Importer, has, maps
from dfsim.traces.importers.sources import SUFFIXES, chunks_with

NEEDED = ("epoch", "puzzle", "points")
FIRST_EPOCH = FormatOption("first_epoch", "step that epoch 0 becomes.", "count")


def read(source, options, summary):
    first = FIRST_EPOCH.value(options) or 0
    for chunk in chunks_with(source, SUFFIXES, NEEDED, "a log of Puzzler", summary):
        frame = chunk.frame.rename(dict(zip(NEEDED, ("step", "group_uid", "reward"))))
        yield chunk.with_frame(frame.with_columns(step=frame["step"] + first))


IMPORTER = Importer(
    about="a log of Puzzler",
    trainer="Puzzler",
    recognise=has(*NEEDED),
    read=read,
    options=(FIRST_EPOCH,),
    hints=(
        Hint(
            has("puzzle_title", "points"),
            "Puzzler's score board, without epochs; as one step:",
            ("--step", "0", *maps(group_uid="puzzle_title", reward="points")),
        ),
    ),
)
'''
REWARDS = {"maze": [1.0, 0.0, 0.0], "knot": [0.0, 1.0, 1.0]}
ROWS = [
    {"epoch": epoch, "puzzle": puzzle, "points": points}
    for epoch in (0, 1)
    for puzzle, rewards in REWARDS.items()
    for points in rewards
]


@pytest.fixture(autouse=True)
def _invented(tmp_path, monkeypatch):
    path = tmp_path / "puzzler.py"
    path.write_text(FILE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("puzzler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(IMPORTERS, "puzzler", module.IMPORTER)  # the one line
    monkeypatch.setenv("COLUMNS", "200")


def imported(tmp_path, *options):
    out = tmp_path / f"trace{len(options)}"
    done = run("import", jsonl(tmp_path / "log.jsonl", ROWS), "--out", out, *options)
    assert done.exit_code == 0, done.output
    return done, open_trace(out)


def test_help_names_the_format_and_its_option():
    text = " ".join(run("import", "--help").output.split())
    assert ", ".join(IMPORTERS) in text
    assert re.search(r"--first-epoch .*puzzler: step that epoch 0 becomes\.", text)


def test_a_format_that_does_not_exist_is_refused_with_the_list(tmp_path):
    line = refused("import", tmp_path, "--out", tmp_path / "no", "--format", "puzler")
    assert "did you mean 'puzzler'" in line
    assert line.endswith(", ".join(["auto", *IMPORTERS]))


def test_rows_are_told_by_their_content_and_their_trainer_is_recorded(tmp_path):
    done, trace = imported(tmp_path)
    assert "--format puzzler" in done.output
    manifest = trace.manifest
    assert (manifest.trainer, manifest.source) == ("Puzzler", "import of log.jsonl (puzzler)")
    assert manifest.foreign
    assert [batch.step for batch in trace.batches([])] == [0, 1]
    record = json.loads(run("import", tmp_path / "log.jsonl", "--out", trace.path, "--force",
                            "--json").stdout)  # fmt: skip
    assert record["responses"] == len(ROWS)


def test_inspect_says_where_the_rows_came_from_and_promote_that_it_is_no_verl(tmp_path):
    trace = imported(tmp_path)[1]
    assert "(puzzler)" in run("inspect", trace.path).output
    line = refused("promote", trace.path, "-s", "maxvar", "--out", tmp_path / "p")
    assert "verl only" in line


def test_the_option_reaches_the_importer_and_others_refuse_it(tmp_path):
    trace = imported(tmp_path, "--first-epoch", "7")[1]
    assert [batch.step for batch in trace.batches([])] == [7, 8]
    source = jsonl(tmp_path / "flat.jsonl", [{"step": 1, "group_uid": "a", "reward": 1.0}])
    given = ("import", source, "--out", tmp_path / "no", "--first-epoch")
    assert refused(*given, "7").startswith("dfsim: --first-epoch has no use for")
    assert "--first-epoch" in refused(*given, "0")
    assert "--first-epoch" in refused(*given, "seven")
    line = refused("import", tmp_path / "log.jsonl", "--out", tmp_path / "no", "--group-size", "3")
    assert line == "dfsim: --group-size has no use for a log of Puzzler; leave it out"


def test_a_near_miss_is_named_with_a_command_that_reads_it(tmp_path):
    rows = [{"puzzle_title": r["puzzle"], "points": r["points"]} for r in ROWS[:6]]
    source = jsonl(tmp_path / "board.jsonl", rows)
    line = refused("import", source, "--out", tmp_path / "no")
    assert "Puzzler's score board" in line
    recipe = shlex.split(re.search(r"dfsim import .*--out TRACE", line)[0])[1:-1]
    assert run(*recipe, tmp_path / "board").exit_code == 0
    assert open_trace(tmp_path / "board").count("groups") == len(REWARDS)


def test_the_docs_name_every_format(monkeypatch):
    monkeypatch.delitem(IMPORTERS, "puzzler")
    text = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
    table = text.partition("| source | `--format` |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\|[^|]+\| `([a-z0-9-]+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(IMPORTERS)
