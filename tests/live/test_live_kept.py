"""What a capture keeps of a step, and which steps a session hands to it."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest

from dfsim.live.core.delivery import apply
from dfsim.live.core.log import read_records
from dfsim.live.verl.settings import read_settings
from dfsim.strategies.build import build
from dfsim.traces.storage.store import open_trace

pytestmark = pytest.mark.live
pytest.importorskip("pyarrow")

from live_trace import RUN, responses_of  # noqa: E402

from dfsim.live.core.backend import RunConfig  # noqa: E402
from dfsim.live.core.capture import columns_of, estimate_size, to_frame  # noqa: E402
from dfsim.live.core.session import Session  # noqa: E402
from dfsim.live.core.step import LiveStep  # noqa: E402

# What is kept of a step


def test_weights_and_replaced_advantages_are_kept():
    responses = responses_of(1)
    batch = responses.batch()
    applied = apply(build("maxvar@paper").decide(batch), batch)
    frame = to_frame(columns_of(responses, applied, tokens=False, text=False))
    assert frame["weight"].to_numpy().tobytes() == applied.weight_N.tobytes()
    assert frame.schema["advantage_applied"] == pl.Float64
    assert frame["advantage_applied"].to_list() == applied.advantage_N.astype(float).tolist()
    assert frame["advantage"].to_list() == batch.advantage_N.tolist()


@pytest.mark.parametrize("tokens", [False, True])
def test_token_weights_stay_when_token_lists_go(tokens):
    responses = responses_of(2)
    batch = responses.batch()
    applied = apply(build("ar").decide(batch), batch)
    frame = to_frame(columns_of(responses, applied, tokens=tokens, text=False))
    assert ("old_log_probs" in frame.columns) == tokens
    assert frame["token_weight"].list.len().to_list() == responses.num_tokens_N.tolist()
    flat = frame["token_weight"].explode(empty_as_null=False, keep_nulls=False).to_numpy()
    assert flat.tobytes() == applied.token_weight_T.tobytes()


def test_text_only_on_request():
    responses = responses_of(3)
    keys = np.array([f"says {k}" for k in responses.rows.keys], object)
    rows = dataclasses.replace(responses.rows, texts={"prompt": keys, "response": keys})
    responses = type(responses)(rows)
    assert "response" not in columns_of(responses, None, tokens=False, text=False)
    frame = to_frame(columns_of(responses, None, tokens=False, text=True))
    assert frame["response"].str.starts_with("says ").all()


@pytest.mark.parametrize(
    ("responses", "longest", "lists", "tokens", "words"),
    [
        (1000, 500, 0, 500_000, "at most 0.2 MB a step"),  # 200 bytes a response
        (5120, 8192, 4, 41_943_040, "at most 672 MB a step"),  # and 4 bytes a token and list
        (10_240, 8192, 4, 83_886_080, "at most 1.34 GB a step"),
        (10, None, 4, None, "size unknown"),
    ],
)
def test_sizes_by_hand(responses, longest, lists, tokens, words):
    found, text = estimate_size(responses, longest, lists)
    assert found == tokens
    assert words in text


# Which steps, with which columns: the session decides


def session_of(said, **given):
    run = RunConfig(RUN, n=6, train_batch_size=4, max_response_length=5)
    return Session(read_settings(given), run, None, said.append)


def run(session, steps):
    """What the trainer's hooks do once a step is trained, without a trainer."""
    session.prepare([], dict)
    session.begin(1)
    for step in range(1, steps + 1):
        session._step = LiveStep(responses_of(step), {}, None, None, {})
        session.finish({})
    session.close()


@pytest.mark.parametrize(("every", "kept"), [(1, [1, 2, 3, 4, 5]), (2, [1, 3, 5]), (7, [1])])
def test_every_kth_step_is_captured_from_the_first(tmp_path, every, kept):
    run(session_of([], capture={"dir": str(tmp_path / "a"), "every": every}), 5)
    assert [s.step for s in open_trace(tmp_path / "a").manifest.steps] == kept
    assert sorted(read_records(tmp_path / "a")) == kept


@pytest.mark.parametrize(
    ("tokens", "strategy", "room", "kept"),
    [
        ("none", "maxvar", 10**9, False),
        ("none", "ar", 10**9, False),
        ("all", "maxvar", 1, True),
        ("auto", "maxvar", 120, True),  # 4 prompts of 6 responses of 5 tokens
        ("auto", "maxvar", 119, False),
        ("auto", "ar", 119, True),  # ar reads log-probs
    ],
)
def test_token_lists_are_kept_as_asked(tmp_path, monkeypatch, tokens, strategy, room, kept):
    from dfsim.live.core import session as module

    monkeypatch.setattr(module, "AUTO_TOKENS", room)
    said = []
    given = {"capture": {"dir": str(tmp_path / "a"), "tokens": tokens}, "shadow": [strategy]}
    run(session_of(said, **given), 1)
    assert ("old_log_probs" in open_trace(tmp_path / "a").columns) == kept
    assert ("capture.tokens=all keeps them" in said[0]) == (tokens == "auto" and not kept)


def test_no_text_unless_asked(tmp_path):
    run(session_of([], capture={"dir": str(tmp_path / "a")}), 1)
    assert not {"prompt", "response"} & set(open_trace(tmp_path / "a").columns)
