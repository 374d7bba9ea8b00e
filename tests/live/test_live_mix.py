"""Mixers inside the real verl trainer: quotas, resume, and proportions recomputed bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

pytest.importorskip("verl")

from rehearsals import DFSIM

from dfsim.live.core.log import read_records
from dfsim.live.core.verification.verify import verify
from dfsim.live.rehearsal.launch import run_rehearsal
from dfsim.live.verl.overrides import dfsim_overrides
from dfsim.traces.errors import DfsimError
from dfsim.traces.storage.store import open_trace

pytestmark = pytest.mark.live

TEN = replace(DFSIM, prompts=10, responses=4)
SHARES = "proportions={math: 0.6, logic: 0.3, science: 0.1}"


def rehearsed_mix(folder, strategy, params=(), steps=4, extra=(), **changes):
    settings = dfsim_overrides(strategy=strategy, params=params, capture=folder / "trace")
    run = replace(TEN, steps=steps, overrides=(*settings, *extra), **changes)
    return run_rehearsal(run), open_trace(folder / "trace")


def drawn_prompts(trace):
    """Prompts of each step, sorted: what was drawn, whatever the rows' order."""
    return [
        sorted(frame.group_by("group_uid").agg(pl.col("prompt_id").first())["prompt_id"])
        for _, frame in trace.frames(["prompt_id"])
    ]


@pytest.mark.parametrize("then", ["", "+maxvar"])
@pytest.mark.parametrize("mixer", ["static", "reward_gap", "dump_ucb@paper", "tscl@paper"])
def test_a_mixer_draws_what_its_capture_says_it_asked_for(mixer, then, tmp_path):
    params = [SHARES] if mixer == "static" else []
    result, trace = rehearsed_mix(tmp_path, mixer + then, params)
    found = verify(trace)
    assert found.passed, found.gates
    gate = next(g for g in found.gates if g.name == f"proportions of {mixer + then}")
    assert gate.message == "4 of 4 steps drawn as recomputed, identical bit for bit"
    assert len(found.gates) == (3 if then else 1)
    records = read_records(trace.path)
    targets = [records[step]["mix"]["target"] for step in (1, 2, 3, 4)]
    if mixer == "static":
        for _, frame in trace.frames(["domain"]):
            groups = frame.group_by("group_uid").agg(pl.col("domain").first())
            counts = dict(groups["domain"].value_counts().iter_rows())
            assert counts == {"math": 6, "logic": 3, "science": 1}
    else:
        assert targets[0] == pytest.approx([1 / 3] * 3)  # the dataset's own mix, before warm-up
        assert targets[3] != targets[0]  # tscl needs two points first
    for step in result.steps:
        logged = [step[f"dfsim/mix/target/{d}"] for d in ("logic", "math", "science")]
        # verl's logger averages over one iteration, weighed by its rows: the last bit may differ.
        assert logged == pytest.approx(targets[int(step["step"]) - 1], rel=1e-12)
        assert sum(step[f"dfsim/mix/drawn/{d}"] for d in ("logic", "math", "science")) == 10


def test_a_resumed_run_draws_the_prompts_of_a_straight_one(tmp_path):
    saving = ("trainer.save_freq=5", f"trainer.default_local_dir={tmp_path / 'checkpoints'}")
    folders = [tmp_path / name for name in ("straight", "resumed")]
    for folder in folders:
        folder.mkdir()
    _, straight = rehearsed_mix(folders[0], "dump_ucb@paper", steps=10)
    rehearsed_mix(folders[1], "dump_ucb@paper", steps=5, extra=saving)
    again = (*saving, "trainer.resume_mode=auto")
    _, resumed = rehearsed_mix(folders[1], "dump_ucb@paper", steps=10, extra=again)
    assert [s.step for s in resumed.manifest.steps] == list(range(1, 11))
    mine, theirs = drawn_prompts(resumed), drawn_prompts(straight)
    assert mine[:5] == theirs[:5]
    assert [len(step) for step in mine] == [10] * 10
    first, second = (read_records(folder / "trace") for folder in folders)
    for step in range(1, 11):
        assert first[step]["mix"]["drawn"] == second[step]["mix"]["drawn"]
    assert mine == theirs
    assert verify(resumed).passed


def test_a_changed_target_is_found(tmp_path):
    _, trace = rehearsed_mix(tmp_path, "reward_gap", steps=2)
    log = trace.path / "live.jsonl"
    records = read_records(trace.path)
    target = records[2]["mix"]["target"]
    text = log.read_text()
    assert repr(target[0]) in text
    log.write_text(text.replace(repr(target[0]), repr(float(np.nextafter(target[0], 1)))))
    (gate,) = verify(trace).gates
    assert gate.passed is False
    assert gate.message.startswith("step 2: asked for logic")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("data.dataloader_num_workers=2", "so a mixer would act late; set it to 0"),
        ("+dfsim.params.floor=0.5", "floor=0.5 for 3 domains is more than 1"),
        ("+dfsim.domain=prompt", "its values are lists, not names"),
    ],
)
def test_a_mixer_that_cannot_work_is_refused(extra, words, tmp_path):
    with pytest.raises(DfsimError) as refused:
        rehearsed_mix(tmp_path, "reward_gap", extra=(extra,))
    assert words in str(refused.value)
