"""The public Python API: names, examples, what a notebook shows, and errors in Python's words."""

from __future__ import annotations

import doctest
import inspect

import numpy as np
import pytest
from conftest import ROOT
from made import solved_trace
from runs_made import runs
from said import refused

import dfsim
from dfsim.live.verl.settings import read_settings

FUNCTIONS = [n for n in dfsim.__all__ if inspect.isfunction(getattr(dfsim, n))]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_dir_shows_the_api_and_every_name_resolves():
    assert dir(dfsim) == sorted(dfsim.__all__)
    assert all(getattr(dfsim, name) is not None for name in dfsim.__all__)
    with pytest.raises(AttributeError, match="no attribute 'replai'"):
        dfsim.replai  # noqa: B018


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_what_they_return_and_their_examples_run(name):
    text = inspect.getdoc(getattr(dfsim, name))
    assert "Returns:" in text
    (example,) = doctest.DocTestFinder(recurse=False).find(
        getattr(dfsim, name), name, globs={"dfsim": dfsim}
    )
    assert example.examples
    result = doctest.DocTestRunner().run(example)
    assert (result.failed, result.attempted) == (0, len(example.examples))


def test_a_notebook_shows_a_few_lines(bundled):
    batch = next(iter(bundled.batches(bundled.columns)))
    shown = [
        batch,
        bundled,
        dfsim.build("topk").decide(batch),
        dfsim.replay(bundled, ["maxvar", "ar"], resamples=2),
        dfsim.screen(bundled, ["maxvar", "ar"], resamples=2),
        dfsim.replay(bundled, ["dump_ucb", "tscl"], resamples=2),
        dfsim.inspect(bundled),
        dfsim.compare(runs({f"m{i}": 0.0 for i in range(20)} | {"none": 0.0}), resamples=100),
    ]
    for one in shown:
        assert len(repr(one).splitlines()) <= 12, repr(one)
        assert len(repr(one)) <= 1_500, repr(one)
    assert "192 responses in 24 groups of 8" in repr(batch)
    assert "60 steps (1 … 60), 1,440 groups" in repr(bundled)


def test_paths_do_for_traces_and_text_for_candidates(tmp_path, bundled):
    path = str(bundled.path)
    by_path, by_trace = (dfsim.replay(t, ["maxvar"], resamples=2) for t in (path, bundled))
    assert by_path.to_dict() == by_trace.to_dict()
    assert dfsim.screen(path, ["maxvar"], resamples=2).traces[0].rows
    options = {"candidates": "oversample=2", "clocks": "exposure", "resamples": 2}
    drawn = dfsim.replay(path, ["tscl"], **options).mixers["tscl"]
    assert str(drawn.runs["exposure"].candidates) == "oversample=2"
    assert dfsim.inspect(bundled.path).groups == 1440


def test_a_clock_is_one_of_two_and_never_its_letters(bundled):
    for given, played in (("step", ["step"]), ("both", ["step", "exposure"])):
        result = dfsim.replay(bundled, ["tscl"], resamples=2, clocks=given)
        assert list(result.mixers["tscl"].runs) == played
    for wrong in ("exposre", ["exposre"], ["step", "exposre"], [], "s", [1]):
        with pytest.raises(dfsim.DfsimError, match="clocks="):
            dfsim.replay(bundled, ["tscl"], clocks=wrong)


@pytest.mark.parametrize(
    ("call", "python", "shell"),
    [
        (lambda t: dfsim.screen(t, ["maxvar"], by="x"), "by='x'", ("screen", "--by", "x")),
        (
            lambda t: dfsim.screen(t, ["maxvar"], baseline="y"),
            "baseline='y'",
            ("screen", "--baseline", "y"),
        ),
        (
            lambda t: dfsim.replay(t, ["tscl"], candidates="z"),
            "candidates='z'",
            ("replay", "-s", "tscl", "--candidates", "z"),
        ),
        (
            lambda t: dfsim.replay(t, ["tscl"], clocks="z"),
            "clocks='z'",
            ("replay", "-s", "tscl", "--clock", "z"),
        ),
    ],
)
def test_errors_name_the_parameter_as_it_was_written(bundled, call, python, shell):
    with pytest.raises(dfsim.DfsimError) as caught:
        call(bundled)
    assert str(caught.value).startswith(python)
    command, *options = shell
    assert f"{options[-2]} {options[-1]}" in refused(command, bundled.path, *options)


def test_live_settings_are_named_as_overrides():
    with pytest.raises(dfsim.DfsimError, match=r"\+dfsim\.params\.topk\.fraction"):
        read_settings({"strategy": "maxvar", "params": {"topk": {"fraction": 0.2}}})


def test_a_trace_of_nothing_live_is_shown_too(tmp_path):
    trace = solved_trace(tmp_path, [[0, 0]], 2)
    result = dfsim.replay(trace, ["maxvar"], resamples=2)
    assert "effective batch 0" in repr(result)
    assert np.isnan(dfsim.inspect(trace).baseline.future_low)
