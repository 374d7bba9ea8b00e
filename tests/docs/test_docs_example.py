"""The worked example of ``docs/own_strategy.md``: what it decides, offline and live."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from documented import blocks, commands_in, stage, words_of
from said import printed

import dfsim
from dfsim.traces.assemble import from_columns

STRATEGY = "hardest_groups.py:HardestGroups"


@pytest.fixture
def own(tmp_path, monkeypatch):
    stage("own_strategy.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiny(groups: dict[str, list[float]]) -> Any:
    uids = [uid for uid, rewards in groups.items() for _ in rewards]
    return from_columns(
        {
            "step": 1,
            "group_uid": np.array(uids, object),
            "rollout_idx": np.concatenate([np.arange(len(r)) for r in groups.values()]),
            "reward": np.concatenate([np.array(r, float) for r in groups.values()]),
        }
    )


def test_the_example_is_one_block_of_25_lines():
    (example,) = [text for info, text in blocks("own_strategy.md") if "hardest_groups.py" in info]
    assert len(example.splitlines()) <= 25


def test_the_examples_hold_every_invariant(own):
    for name in (STRATEGY, "more.py:SkipCertain", "more.py:Centred"):
        assert "unknown_parameters_are_refused" in dfsim.check_strategy(name)


GROUPS = {
    "a": [1, 1, 0, 0],
    "b": [1, 0, 0, 0],
    "c": [1, 1, 1, 1],
    "d": [1, 1, 1],
    "e": [1, 1, 1, 0],
}


@pytest.mark.parametrize(
    ("keep_frac", "kept"),
    [  # live: a (mean .5), b (.25), e (.75); c and d never train
        (0.5, "ab"),  # round(1.5) = 2
        (0.3, "b"),  # round(.9) = 1
        (0.01, "b"),  # one at least
        (1.0, "abe"),
    ],
)
def test_the_example_keeps_the_hardest_live_groups(own, keep_frac, kept):
    decision = dfsim.build(STRATEGY, {"keep_frac": keep_frac}).decide(tiny(GROUPS))
    wanted = [float(uid in kept) for uid, rewards in GROUPS.items() for _ in rewards]
    assert decision.weight_N.tolist() == wanted


def test_the_example_keeps_equals_together_and_bears_no_live_group(own):
    strategy = dfsim.build(STRATEGY, {"keep_frac": 0.3})
    equals = {"a": [1, 0], "b": [0, 1], "c": [1, 1, 0]}
    assert strategy.decide(tiny(equals)).weight_N.tolist() == [1.0] * 4 + [0.0] * 3
    assert strategy.decide(tiny({"a": [1, 1], "b": [0]})).weight_N.tolist() == [0.0] * 3


def test_the_further_examples_do_what_they_say(own):
    found = dfsim.build("more.py:Centred").decide(tiny({"a": [1, 0, 0, 1], "b": [1, 1]}))
    assert found.weight_N.tolist() == [1.0] * 6
    assert found.advantage_N.tolist() == [0.5, -0.5, -0.5, 0.5, 0.0, 0.0]
    batch = from_columns(
        {
            "step": 1,
            "group_uid": np.array(["a", "a"], object),
            "rollout_idx": np.arange(2),
            "reward": np.array([1.0, 0.0]),
            "old_log_probs": (np.array([-1.0, -0.01, -0.05], np.float32), np.array([2, 1])),
        }
    )
    found = dfsim.build("more.py:SkipCertain", {"threshold": -0.04}).decide(batch)
    assert found.token_weight_T.tolist() == [1.0, 0.0, 1.0]
    assert found.weight_N.tolist() == [0.5, 1.0]


def test_the_example_runs_in_replay_and_screen(own, bundled):
    quick = ("--resamples", "2", "--quiet", "--json")
    sweep = ("-s", STRATEGY, "-p", "keep_frac=[0.25,0.75]")
    replayed = json.loads(printed("replay", "traces", *sweep, *quick))["strategies"]
    screened = json.loads(printed("screen", "traces", *sweep, *quick))["traces"][0]["strategies"]
    names = [f"{STRATEGY}[keep_frac={value}]" for value in (0.25, 0.75)]
    assert list(replayed) == ["none", *names]
    assert set(screened) == {"none", *names}
    for value, name in zip((0.25, 0.75), names, strict=True):
        shares = [share_kept(batch, value) for batch in bundled.batches(())]
        for found in (replayed[name], screened[name]):
            kept = found["estimates"]["kept_group_frac"]["mean"]
            assert kept == pytest.approx(np.mean(shares), rel=1e-12)


def share_kept(batch: Any, keep_frac: float) -> float:
    """Share of the groups that the example must keep, group by group."""
    means = [
        float(np.mean(rewards))
        for rewards in np.split(batch.reward_N, batch.group_offsets[1:-1])
        if len(set(rewards.tolist())) > 1
    ]
    if not means:
        return 0.0
    last = sorted(means)[max(1, round(keep_frac * len(means))) - 1]
    return sum(mean <= last + 1e-9 for mean in means) / batch.num_groups


# The same, live


def dfsim_says(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dfsim.cli", *arguments], capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.live
def test_the_example_is_delivered_shadowed_and_verified_as_the_page_says(own):
    pytest.importorskip("verl")
    said = {}
    for _, block in blocks("own_strategy.md"):
        for command in commands_in(block):
            name, *words = words_of(command)
            if name in ("promote", "rehearse", "verify"):
                said[name] = dfsim_says(name, *words)
    assert "Weights reached the loss in 2 of 2 checked steps." in said["rehearse"]
    assert said["verify"].rstrip().endswith("Verified.")
    lines = (own / "live" / "live.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert [r["delivered"] for r in records] == [1, 1]
    found = json.loads(dfsim_says("verify", "live", "--promotion", "promotion", "--json"))
    assert [gate["passed"] for gate in found["gates"]] == [True] * 4
    decisions = [gate for gate in found["gates"] if gate["name"].startswith("decisions of")]
    homes = [own / "promotion", own]
    assert [g["name"] for g in decisions] == [f"decisions of {h / STRATEGY}" for h in homes]
    for gate in decisions:
        assert gate["message"] == "2 of 2 steps recomputed, identical bit for bit"
    live = dfsim.open_trace(own / "live")
    weights = [f["weight"].to_numpy() for _, f in live.frames(("weight",))]
    for batch, weight in zip(live.batches(()), weights, strict=True):
        kept = np.add.reduceat(weight, batch.group_offsets[:-1]) > 0
        assert kept.mean() == share_kept(batch, 0.75)
        assert 0 < kept.mean() < 1
