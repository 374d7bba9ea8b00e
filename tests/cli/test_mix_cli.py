"""Mixers on the command line: the grammar, what is refused, printed and written."""

from __future__ import annotations

import csv
import json
import warnings

import numpy as np
import polars as pl
import pytest
from conftest import ROOT
from made import trace_of
from PIL import Image
from said import QUICK, printed, refused

from dfsim.strategies.grammar import strategies_from
from dfsim.traces.errors import DfsimError
from dfsim.traces.synthetic import binary_steps, exact_step

LONG = ("competition_math", "general_knowledge", "program_repair")


def made(folder, domains, steps=12):
    rates = {d: 0.2 + 0.6 * i / len(domains) for i, d in enumerate(domains)}
    return trace_of(folder, binary_steps(rates, steps=steps, groups_per_domain=3, n=4, seed=3)).path


@pytest.fixture
def three(tmp_path):
    return made(tmp_path / "three", LONG)


@pytest.fixture
def without_domains(tmp_path):
    return trace_of(tmp_path / "bare", [exact_step([1, 2], 4, step=1)]).path


def strict_json(text):
    def refuse(name):
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


# Grammar


def test_a_pipeline_is_swept_over_its_parts():
    params = ["maxvar.keep_frac=0.25", "temperature=[0.5, 1]"]
    mixes = strategies_from(["dump_ucb+maxvar"], params)
    assert [m.name for m in mixes] == [f"dump_ucb[temperature={t}]+maxvar" for t in (0.5, 1)]
    assert [m.rule.temperature for m in mixes] == [0.5, 1]
    assert [m.then.params["keep_frac"] for m in mixes] == [0.25, 0.25]


@pytest.mark.parametrize("prefix", ["dump_ucb@paper.", "dump_ucb.", ""])
def test_prefixes_reach_a_variant(prefix):
    (mix,) = strategies_from(["dump_ucb@paper+maxvar"], [f"{prefix}temperature=0.2"])
    assert mix.rule.temperature == 0.2
    assert mix.rule.floor == 0  # the variant's own default stays


def test_both_parts_swept_give_every_pair():
    params = ["dump_ucb.temperature=[0.5, 1]", "maxvar.keep_frac=[0.25, 0.5]"]
    mixes = strategies_from(["dump_ucb+maxvar"], params)
    pairs = {(m.rule.temperature, m.then.params["keep_frac"]) for m in mixes}
    assert pairs == {(0.5, 0.25), (0.5, 0.5), (1, 0.25), (1, 0.5)}
    assert len({m.name for m in mixes}) == 4


def test_a_selector_named_alone_keeps_its_parameter():
    """As it stands, and as a mixer's second part: both are maxvar."""
    mix, alone = strategies_from(["dump_ucb+maxvar", "maxvar"], ["maxvar.keep_frac=0.25"])
    assert mix.then.params["keep_frac"] == 0.25
    assert alone.params["keep_frac"] == 0.25


@pytest.mark.parametrize(
    ("names", "params", "words"),
    [
        (["dump_ucb+maxvr"], [], ["maxvr", "maxvar"]),
        (["dump_uc"], [], ["dump_uc", "dump_ucb"]),
        (["dump_ucb"], ["temprature=1"], ["temprature", "temperature"]),
        (["dump_ucb+maxvar"], ["keep_fraction=1"], ["keep_fraction", "keep_frac"]),
        (["dump_ucb", "tscl"], ["temperature=1"], ["temperature", "STRATEGY."]),
        (["dump_ucb"], ["tscl.temperature=1"], ["tscl"]),
        (["dump_ucb+maxvar"], ["topk.fraction=0.5"], ["topk"]),
        (["dump_ucb"], ["temperature=1", "temperature=2"], ["temperature", "twice"]),
        (["dump_ucb", "dump_ucb"], [], ["dump_ucb", "twice"]),
        (["dump_ucb"], ["temperature=0"], ["temperature"]),
        (["dump_ucb"], ["floor=2"], ["floor"]),
        (["dump_ucb+"], [], ["dump_ucb+"]),
        (["dump_ucb+reward_gap"], [], ["reward_gap", "one sampler"]),
        (["maxvar+dump_ucb"], [], ["dump_ucb+maxvar"]),
    ],
)
def test_a_mistake_in_the_grammar_is_named(names, params, words):
    with pytest.raises(DfsimError) as caught:
        strategies_from(names, params)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--candidates", "promts"], ["promts", "prompts", "oversample=K"]),
        (["--candidates", "oversample=0.5"], ["0.5", "1"]),
        (["--candidates", "oversample="], ["oversample=K"]),
        (["--candidates", "oversample=1.2.3"], ["oversample=K"]),
        (["--candidates", "oversample=nan"], ["oversample=K"]),
        (["--clock", "steps"], ["steps", "step", "exposure", "both"]),
        (["-p", "floor=0.5"], ["floor", "0.333"]),
    ],
)
def test_bad_values_are_refused_in_one_line(args, words, three):
    line = refused("replay", three, "-s", "dump_ucb", *QUICK, *args)
    for word in words:
        assert word in line


@pytest.mark.parametrize("args", [["--candidates", "bogus"], ["--clock", "bogus"]])
def test_bad_values_are_refused_without_a_mixer_too(args, three):
    assert "bogus" in refused("replay", three, "-s", "maxvar", *QUICK, *args)


def test_a_trace_without_domains_is_refused(without_domains):
    line = refused("replay", without_domains, "-s", "reward_gap", *QUICK)
    assert "domain" in line
    assert "--map" in line


# What is printed


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("count", [1, 3, 10])
def test_tables_do_not_cut_names_or_numbers(count, width, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    domains = [*LONG, *(f"domain_number_{i}" for i in range(7))][:count]
    path = made(tmp_path / "t", domains)
    text = printed(
        "replay", path, "-s", "dump_ucb@paper+maxvar", "-s", "reward_gap", *QUICK, "-p",
        "reward_gap.floor=0.02",
    )  # fmt: skip
    assert "…" not in text
    assert "played" in text  # no column vanishes
    for domain in domains:
        assert domain in text
    assert "dump_ucb@paper+maxvar" in text
    assert max(map(len, text.splitlines())) <= max(width, 100)


def test_a_mixer_and_selectors_in_one_command(three):
    args = ("replay", three, "-s", "reward_gap", "-s", "maxvar", "-s", "dump_ucb+topk", *QUICK)
    text = printed(*args)
    for name in ("reward_gap", "maxvar", "dump_ucb+topk"):
        assert name in text
    record = strict_json(printed(*args, "--json"))
    assert set(record["strategies"]) == {"none", "maxvar"}
    assert set(record["mixers"]) == {"reward_gap", "dump_ucb+topk"}


def test_json_is_one_standard_object(three):
    record = strict_json(printed("replay", three, "-s", "dump_ucb@paper+softmax", "--json", *QUICK))
    mixer = record["mixers"]["dump_ucb@paper+softmax"]
    assert set(mixer["runs"]) == {"asked", "step", "exposure"}
    assert mixer["runs"]["step"]["floor_hits"] is None  # no floor
    for run in mixer["runs"].values():
        assert sum(run["last_target"].values()) == pytest.approx(1)


def test_json_shows_the_parameters_of_both_parts(three):
    """Both have a temperature."""
    params = ("-p", "dump_ucb.temperature=0.3", "-p", "softmax.temperature=0.7")
    args = ("replay", three, "-s", "dump_ucb+softmax", "--json", *QUICK)
    record = strict_json(printed(*args, *params))
    text = json.dumps(record["mixers"])
    assert "0.3" in text
    assert "0.7" in text


def test_one_clock_is_what_is_shown(three):
    record = strict_json(
        printed("replay", three, "-s", "reward_gap", "--clock", "exposure", "--json", *QUICK)
    )
    mixer = record["mixers"]["reward_gap"]
    assert set(mixer["runs"]) == {"asked", "exposure"}
    assert mixer["clock_gap"] is None


# What is written


@pytest.mark.parametrize("clock", ["both", "exposure"])
def test_out_writes_tables_and_figures_that_open(clock, three, tmp_path):
    out = tmp_path / "out"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        printed(
            "replay", three, "-s", "tscl", "-s", "dump_ucb@paper+maxvar", "-s", "maxvar",
            "--clock", clock, "--out", out, *QUICK,
        )  # fmt: skip
    frame = pl.read_parquet(out / "mixing.parquet")
    runs = 3 if clock == "both" else 2
    assert frame.height == 2 * runs * 12 * 3  # mixers, runs, steps, domains
    assert not any(frame[c].is_nan().any() for c in frame.columns if frame[c].dtype.is_float())
    whole = frame.drop_nulls("target").group_by("mixer", "run", "step").agg(pl.sum("target"))
    np.testing.assert_allclose(whole["target"], 1)
    with (out / "mixing.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == frame.height
    assert list(rows[0]) == frame.columns
    pictures = sorted(out.glob("mix_*.png"))
    assert len(pictures) == 6
    for picture in pictures:
        with Image.open(picture) as image:
            pixels = np.asarray(image.convert("L"))
        assert pixels.std() > 5  # something is drawn
        assert picture.with_suffix(".svg").stat().st_size > 1000


def test_mixers_alone_warn_of_nothing(three, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        printed("replay", three, "-s", "reward_gap", "--out", tmp_path / "out", *QUICK)


def test_the_bundled_trace_plays(tmp_path):
    text = printed("replay", ROOT / "traces", "-s", "static", "--candidates", "sync", *QUICK)
    assert "mix_vacuous" in text
    assert "domain_starved" not in text
