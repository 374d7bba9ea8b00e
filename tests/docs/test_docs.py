"""The documentation: names, options, links and files as the code has them, outputs as printed."""

from __future__ import annotations

import ast
import dataclasses
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import ROOT
from documented import (
    DOCS,
    PAGES,
    README,
    SPAN,
    TEXTS,
    Shown,
    blocks,
    commands_in,
    outside_fences,
    shown_in,
    stage,
    words_of,
)
from runs_made import runs, written
from said import printed, run

from dfsim.cli.app import app
from dfsim.reports.screen.tables import LABELS
from dfsim.sim.compare.result import Comparison, MethodResult
from dfsim.sim.estimators import CATALOG
from dfsim.sim.mix.result import PER_STEP
from dfsim.sim.mix.summary import MixReport, MixSummary


@cache
def command_line() -> dict[str, dict[str, Any]]:
    """Command → option name → parameter."""
    root: Any = typer.main.get_command(app)
    return {
        name: {
            flag: parameter
            for parameter in command.get_params(typer.Context(command))
            for flag in (*parameter.opts, *parameter.secondary_opts)
        }
        for name, command in root.commands.items()
    }


def table_names(text: str) -> set[str]:
    """Names that open a row of a table."""
    return set(re.findall(r"^\| `([^`]+)` \|", text, flags=re.M))


def literals(module: str, call: str) -> set[str]:
    """First arguments of calls of a class in a module."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    return {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == call
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


# Names

ABOUT_DECISIONS = ("sim/replay/diagnosis.py", "sim/mix/result.py")
"""Modules whose findings are about what a strategy or mixer does."""


def test_every_number_and_diagnosis_is_explained_and_nothing_else():
    diagnoses, mix_diagnoses = (literals(module, "Finding") for module in ABOUT_DECISIONS)
    assert {"no_op", "kl_dominates"} <= diagnoses
    assert {"mix_vacuous", "barely_steers"} <= mix_diagnoses
    mixing = {f.name for f in dataclasses.fields(MixSummary)} | set(PER_STEP)
    assert "clock_gap" in {f.name for f in dataclasses.fields(MixReport)}
    known = {*CATALOG, *diagnoses, *mix_diagnoses, *mixing, "clock_gap"}
    assert table_names(PAGES["numbers.md"]) == known


def test_every_estimator_is_defined_as_the_code_defines_it():
    section = PAGES["numbers.md"].partition("\n## Estimators\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line) for line in section.splitlines() if line.startswith("| `")]
    shown = {row[1].strip(" `"): row[3].strip().replace("\\|", "|") for row in rows}
    assert shown == {name: estimator.formula for name, estimator in CATALOG.items()}


def test_every_finding_about_the_data_is_explained_and_nothing_else():
    packages = ("live", "reports", "sim", "strategies", "traces")
    modules = {p.relative_to(ROOT).as_posix() for d in packages for p in (ROOT / d).rglob("*.py")}
    assert set(ABOUT_DECISIONS) < modules
    known = set().union(*(literals(m, "Finding") for m in modules - set(ABOUT_DECISIONS)))
    assert {"advantage_mismatch", "rows_chosen", "threshold_misplaced", "truncated"} <= known
    section = PAGES["capture.md"].partition("\n## What stands out\n")[2].partition("\n## ")[0]
    assert table_names(section) == known


def test_intervals_are_explained():
    for name in ("low", "high", "future_low", "future_high", "nan_steps", "by_domain", "by_phase"):
        assert f"`{name}`" in PAGES["numbers.md"], name


def test_every_verdict_is_explained_under_both_its_names():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w -]+?) \|", PAGES["choose.md"], flags=re.M))
    assert rows == LABELS


def test_columns_of_a_comparison_are_explained():
    statistics = {f.name for cls in (Comparison, MethodResult) for f in dataclasses.fields(cls)}
    spans = set(SPAN.findall(PAGES["compare.md"]))
    plain = {"name", "method", "metric", "overall", "mean", "means", "runs"}
    assert statistics - plain <= spans
    assert {"above", "below", "equivalent", "open", "baseline", "not compared"} <= spans


def test_gates_of_verify_are_explained():
    gates = literals("live/core/verification/verify.py", "Check")
    assert {"strategy", "delivery"} <= gates
    for name in (*gates, "decisions of NAME", "proportions of NAME"):
        assert f"\n| {name} | " in PAGES["verify.md"], name


def test_every_live_setting_is_explained_and_exists():
    from dfsim.live.verl.settings import _CAPTURE_KEYS, _KEYS

    text = "\n".join(PAGES.values())
    mentioned = set(re.findall(r"\+dfsim\.((?:capture\.)?\w+)", text)) - {"capture", "params.keep"}
    settings = {*_KEYS, *(f"capture.{k}" for k in _CAPTURE_KEYS)} - {"capture"}
    assert mentioned == settings


# Commands, options, links


def all_commands() -> list[tuple[str, str]]:
    """Page and command, in blocks and in running text."""
    found = []
    for page, text in PAGES.items():
        found += [(page, c) for _, block in blocks(page) for c in commands_in(block)]
        spans = SPAN.findall(outside_fences(text))
        found += [(page, s) for s in spans if s.startswith("dfsim ")]
    return found


@pytest.mark.parametrize(("page", "command"), all_commands())
def test_commands_and_their_options_exist(page, command):
    name, *words = words_of(command)
    options = command_line()[name]
    flags = [w.partition("=")[0] for w in words if re.match(r"-{1,2}[a-z]", w)]
    assert set(flags) <= set(options)


def test_every_command_is_described():
    described = {words_of(command)[0] for _, command in all_commands()}
    assert described == set(command_line())


def test_every_option_is_described():
    text = "\n".join(PAGES.values())
    lacking = {
        f"{name} {flag}"
        for name, options in command_line().items()
        for flag, parameter in options.items()
        if flag.startswith("-")
        and parameter.name not in ("help", "quiet", "json")
        and not any(re.search(rf"(?<![\w-]){o}(?![\w-])", text) for o in parameter.opts)
    }
    assert not lacking


@pytest.mark.parametrize("page", PAGES)
def test_options_named_in_running_text_exist(page):
    known = {flag for options in command_line().values() for flag in options}
    for span in SPAN.findall(outside_fences(PAGES[page])):
        if not span.startswith(("dfsim", "python", "make", "pip")):
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)) <= known, span


def test_anchors_are_made_as_the_web_makes_them():
    text = "# What it's, and (why)\n```\n# no heading\n```\n## Two words\n"
    assert anchors_of(text) == {"what-its-and-why", "two-words"}


def anchors_of(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", outside_fences(text), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS.glob("*.md")], ids=lambda p: p.name)
def test_relative_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", outside_fences(page.read_text(encoding="utf-8")))
    for link in links:
        if re.match(r"[a-z]+://", link):
            continue
        file, _, anchor = link.partition("#")
        target = page if not file else page.parent / file
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(target.read_text(encoding="utf-8")), link


def test_index_leads_to_every_page():
    linked = set(re.findall(r"\]\((\w+\.md)", PAGES["index.md"]))
    assert linked == set(PAGES) - {"index.md"}


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_short_and_name_no_machine(page):
    text = PAGES[page]
    assert len(text.splitlines()) <= 170
    assert not re.search(r"/(work|home|root|tmp|Users)/", text)


# Outputs


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def assert_shown(shown: Shown, said: str) -> None:
    """Everything shown was printed, in this order; a line's last … stands for what is left out."""
    text, at = squeezed(said), 0
    for part in re.split(r"…$", "\n".join(shown.output), flags=re.M):
        found = text.find(squeezed(part), at)
        assert found >= 0, f"{shown.page}: not printed (there): {squeezed(part)}"
        at = found + len(squeezed(part))


WITH_OUTPUT = [page for page in TEXTS if shown_in(page)]
NOT_RUN = ("rehearse", "verify")
"""Commands whose output on a page is a live run's."""


@pytest.mark.parametrize("page", WITH_OUTPUT)
def test_outputs_are_what_is_printed(page, tmp_path, monkeypatch):
    stage(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    for shown in shown_in(page):
        words = words_of(shown.command)
        if not shown.command.startswith("dfsim ") or words[0] in NOT_RUN:
            continue
        if words[0] == "doctor":
            pytest.importorskip("verl")
        if page == README and (words[0] == "doctor" or not place_of(words).exists()):
            continue
        if words[0] == "compare" and not Path(words[1]).exists():
            pytest.skip("the public table of runs is not on this machine")
        result = run(*words, *(["--quiet"] if "--quiet" in command_line()[words[0]] else []))
        refusal = "".join(shown.output[:1]).startswith("dfsim: ")
        assert result.exit_code == (2 if refusal else 0), result.output
        assert_shown(shown, result.stderr if refusal else result.stdout)


def place_of(words: list[str]) -> Path:
    """The file or folder that a command reads."""
    return Path(words[1] if words[0] != "strategies" else words[2].partition(":")[0])


def test_what_is_not_printed_is_noticed():
    right = Shown("page", "dfsim x", ("a 1", "…", "c …"))
    assert_shown(right, "x\na  1\nb\nc\n2\n")
    for wrong in (("a 1", "c"), ("c", "…", "a 1"), ("a 2 …",)):
        with pytest.raises(AssertionError, match="not printed"):
            assert_shown(dataclasses.replace(right, output=wrong), "x\na  1\nb\nc 2\n")


def general(name: str) -> str:
    """A file's name with its number replaced by 1."""
    return re.sub(r"_\d+(?=[_.])", "_1", name)


def assert_listed(folder: Path, page: str) -> None:
    """A page names every file of a folder; a PNG stands for its SVG."""
    names = {general(p.name) for p in folder.iterdir()}
    assert len(names) > 3
    for name in names:
        svg = name.endswith(".svg")
        wanted = name.replace(".svg", ".png") if svg else name
        assert f"`{wanted}`" in PAGES[page], wanted
        assert not svg or wanted in names


def test_files_of_a_replay_are_listed(tmp_path):
    out = tmp_path / "out"
    printed(
        *("replay", ROOT / "traces", "-s", "maxvar", "-s", "dump_ucb+maxvar"),
        *("-p", "maxvar.keep_frac=[0.25,0.5]", "--resamples", "2", "--out", out, "-q"),
    )
    assert_listed(out, "replay.md")


def test_files_of_a_screen_are_listed(tmp_path):
    out = tmp_path / "out"
    sweep = ("-s", "maxvar", "-p", "keep_frac=[0.25,0.5]")
    printed("screen", ROOT / "traces", *sweep, "--resamples", "2", "--out", out, "-q")
    assert_listed(out, "choose.md")


def test_files_of_a_comparison_are_listed(tmp_path):
    table = written(tmp_path, runs({"baseline": 0.0, "a": 1.0, "b": 0.0}))
    out = tmp_path / "out"
    printed("compare", table, "--resamples", "100", "--out", out, "-q")
    assert_listed(out, "compare.md")
