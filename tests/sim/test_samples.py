"""Captured text on its way to a page: which prompts, which responses, how much of them."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from made import solved_trace, trace_of
from said import printed

import dfsim
from dfsim.reports.folders.replay import replay_record
from dfsim.reports.html import render
from dfsim.reports.replay.page import replay_page
from dfsim.sim.replay.samples import TextSamples, has_text
from dfsim.sim.result import dump_json
from dfsim.strategies.build import build
from dfsim.traces.synthetic import exact_step

QUICK = ("--resamples", "2", "--quiet")


def with_text(step, prompts, **more):
    """Every response says its prompt, its reward and its index."""
    count = len(step["reward"])
    n = count // len(prompts)
    said = [f"{p} r{r:g} #{i % n}" for i, (p, r) in enumerate(
        zip(np.repeat(prompts, n), step["reward"], strict=True))]  # fmt: skip
    texts = {
        "prompt": np.repeat(np.array(prompts, dtype=object), n),
        "response": np.array(said, dtype=object),
    }
    return {**step, **texts, **more}


def watched(trace, strategies=("none",), **limits):
    texts = TextSamples(trace, **limits)
    dfsim.replay(trace, list(strategies), resamples=2, on_decision=texts)
    return texts.to_dict()


def by_text(found):
    return {p["text"]["shown"]: p for p in found["prompts"]}


def test_pass_rates_are_means_over_visits(tmp_path):
    """Prompt a: 1 of 4, then twice in one step with 3 and 4 of 4; prompt b: 2 of 4 once."""
    first = with_text(exact_step([1, 2], 4, step=1, domains=["x", "y"]), ["a", "b"])
    again = exact_step([3, 4], 4, step=2, domains=["x", "x"])
    again["prompt_id"] = np.repeat(np.array(["p00000"], dtype=object), 8)
    found = watched(trace_of(tmp_path / "t", [first, with_text(again, ["a", "a"])]))
    a, b = by_text(found)["a"], by_text(found)["b"]
    assert (a["visits"], a["responses"], a["domain"], a["id"]) == (2, 12, "x", "p00000")
    assert (a["mean_reward"], a["first_visit"], a["last_visit"]) == (8 / 12, 1 / 4, 7 / 8)
    assert (b["visits"], b["mean_reward"], b["first_visit"], b["last_visit"]) == (1, 0.5, 0.5, 0.5)
    assert found["binary_rewards"] is True
    assert found["more_prompts"] is False


@pytest.mark.parametrize(("drop", "prompts"), [((), 2), (("prompt_id",), 1)])
def test_prompts_go_by_id_and_else_by_text(tmp_path, drop, prompts):
    step = {k: v for k, v in exact_step([1, 2], 4).items() if k not in drop}
    found = watched(trace_of(tmp_path / "t", [with_text(step, ["same", "same"])]))
    assert len(found["prompts"]) == prompts


def test_the_best_and_the_worst_response_are_shown_with_what_they_weighed(tmp_path):
    """maxvar keeps half of a group, which the decisions of the same batch say."""
    step = with_text(exact_step([1, 4, 0], 4), ["mixed", "all", "none"])
    trace = trace_of(tmp_path / "t", [step])
    found = watched(trace, ["maxvar"])
    (sample,) = found["samples"]  # only one group has something to compare
    best, worst = sample["responses"]
    assert best["text"]["shown"].startswith("mixed r1")
    assert worst["text"]["shown"].startswith("mixed r0")
    assert (best["reward"], worst["reward"]) == (1.0, 0.0)
    assert best["advantage"] > 0 > worst["advantage"]
    (batch,) = trace.batches(["prompt_id", "num_tokens"])
    weights = build("maxvar").decide(batch).weight_N
    for response in (best, worst):
        index = int(response["text"]["shown"].rpartition("#")[2])
        row = int(np.flatnonzero(batch.uid_G[batch.group_N] == "s00001-g00000")[index])
        assert response["weights"] == {"none": 1.0, "maxvar": weights[row]}


def test_the_last_visit_whose_responses_differ_is_shown(tmp_path):
    steps = [with_text(exact_step([k], 4, step=t), ["p"]) for t, k in ((1, 1), (2, 2), (3, 4))]
    (sample,) = watched(trace_of(tmp_path / "t", steps))["samples"]
    assert sample["step"] == 2


def test_a_sample_of_prompts_follows_each_from_its_first_visit_on(tmp_path):
    """Whatever the limit, a prompt that is shown is shown with its whole history."""
    rng = np.random.default_rng(3)
    steps = []
    for step in range(1, 9):
        ids = rng.permutation(30)[:10]
        made = exact_step(rng.integers(0, 5, 10).tolist(), 4, step=step)
        made["prompt_id"] = np.repeat([f"q{i}" for i in ids], 4).astype(object)
        steps.append(with_text(made, [f"text {i}" for i in ids]))
    trace = trace_of(tmp_path / "t", steps)
    every = {p["id"]: p for p in watched(trace)["prompts"]}
    few = watched(trace, prompts=7, samples=2)
    assert len(few["prompts"]) == 7
    assert len(few["samples"]) == 2
    assert few["more_prompts"] is True
    for prompt in few["prompts"]:
        assert prompt == every[prompt["id"]]
    assert watched(trace, prompts=7, samples=2) == few


def test_long_texts_are_cut_and_say_how_long_they_were(tmp_path):
    step = with_text(exact_step([1], 2), ["p" * 30])
    found = watched(trace_of(tmp_path / "t", [step]), characters=10)
    assert found["prompts"][0]["text"] == {"shown": "p" * 10, "characters": 30}
    assert found["samples"][0]["responses"][0]["text"] == {"shown": "p" * 10, "characters": 36}


def test_rewards_that_are_missing_or_graded(tmp_path):
    step = exact_step([1, 1], 2)
    step["reward"] = np.array([0.25, np.nan, np.nan, np.nan])
    step["advantage"] = np.zeros(4)
    found = watched(trace_of(tmp_path / "t", [with_text(step, ["graded", "lost"])]))
    assert found["binary_rewards"] is False
    assert by_text(found)["graded"]["mean_reward"] == 0.25
    assert by_text(found)["lost"]["mean_reward"] is None
    assert found["samples"] == []
    json.dumps(found, allow_nan=False)


# On the page


def page_of(trace, folder):
    text = TextSamples(trace) if has_text(trace) else None
    result = dfsim.replay(trace, ["maxvar"], resamples=2, on_decision=text)
    record = json.loads(dump_json(replay_record(result, text=text and text.to_dict())))
    return render(replay_page(record), folder)


def test_the_page_shows_text_where_there_is_some(tmp_path):
    step = with_text(exact_step([1, 2], 4), ["a prompt to read", "z" * 2500])
    trace = trace_of(tmp_path / "t", [step])
    assert has_text(trace)
    text = page_of(trace, tmp_path)
    for words in ("Pass rate by prompt", "a prompt to read r1", "Sample responses"):
        assert words in text
    assert "Cut: 500 of 2,500 characters are not shown." in text
    assert "need text" not in text


def test_graded_rewards_are_no_pass_rate(tmp_path):
    step = exact_step([1, 2], 4)
    step["reward"] = step["reward"] * 2.5
    text = page_of(trace_of(tmp_path / "t", [with_text(step, ["a", "b"])]), tmp_path)
    assert "Mean reward by prompt" in text
    assert "Pass rate" not in text


def test_the_page_says_how_to_get_text_where_there_is_none(tmp_path):
    trace = solved_trace(tmp_path / "t", [[1, 2]], 4)
    assert not has_text(trace)
    text = page_of(trace, tmp_path)
    assert "--keep-text" in text
    assert "by prompt</h2>" not in text


def test_one_column_of_text_is_enough(tmp_path):
    for kept in ("prompt", "response"):
        step = with_text(exact_step([1, 2], 4), ["a prompt", "b prompt"])
        del step["response" if kept == "prompt" else "prompt"]
        text = page_of(trace_of(tmp_path / kept, [step]), tmp_path)
        assert ("no text was captured" in text) == (kept == "prompt")


def test_decisions_and_text_are_watched_in_one_replay(tmp_path):
    trace = trace_of(tmp_path / "t", [with_text(exact_step([1, 2], 4), ["a", "b"])])
    out, weights = tmp_path / "out", tmp_path / "d.parquet"
    args = ("-s", "maxvar", "--out", out, "--decisions", weights, *QUICK)
    printed("replay", trace.path, *args)
    assert "Sample responses" in (out / "index.html").read_text(encoding="utf-8")
    assert pl.read_parquet(weights).height == 8
