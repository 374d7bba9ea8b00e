"""A sampler of a user's own inside the real verl trainer: drawn, shadowed, resumed, recomputed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

pytest.importorskip("verl")

from pools import pool_file
from rehearsals import DFSIM

from dfsim.live.core.log import read_records
from dfsim.live.core.promotion import forecast_of, promoted, read_promotion
from dfsim.live.core.steer import digest_of
from dfsim.live.core.verification.verify import verify
from dfsim.live.rehearsal.launch import run_rehearsal
from dfsim.live.verl.overrides import dfsim_overrides
from dfsim.live.verl.promote import write_promotion_folder
from dfsim.sim.replay.loop import replay
from dfsim.strategies.build import build
from dfsim.traces.storage.manifest import write_manifest
from dfsim.traces.storage.store import open_trace

pytestmark = pytest.mark.live

SMALL = replace(DFSIM, prompts=6, responses=4)


def rehearsed(folder, steps, extra=(), **settings):
    overrides = dfsim_overrides(capture=folder / "trace", **settings)
    run_rehearsal(replace(SMALL, steps=steps, overrides=(*overrides, *extra)))
    return open_trace(folder / "trace")


def gates(trace, promotion=None):
    return {gate.name: gate for gate in verify(trace, promotion).gates}


def rows_of(trace):
    """Rows of the training set in each step, sorted."""
    frames = (frame for _, frame in trace.frames(["dataset_row"]))
    return [sorted(frame.group_by("group_uid").first()["dataset_row"]) for frame in frames]


def test_a_promoted_pool_draws_rows_and_everything_is_recomputed(tmp_path, bundled):
    name = f"{pool_file(tmp_path)}:HardPool"
    pool = build(f"{name}+maxvar", {"memory": 0.25})
    made = promoted(replay(bundled, forecast_of(pool), resamples=2), pool)
    write_promotion_folder(made, pool, bundled.manifest, tmp_path / "p", 0, False)
    promotion = read_promotion(tmp_path / "p")
    shadow = [name, "dump_ucb+topk"]
    trace = rehearsed(tmp_path, 3, promotion=tmp_path / "p" / "promotion.json", shadow=shadow)
    found = gates(trace, promotion)
    assert [g.passed for g in found.values()] == [True] * 7
    drawn = f"proportions of {tmp_path / 'p' / 'pool.py'}:HardPool+maxvar"
    assert found[drawn].message == "3 of 3 steps drawn as recomputed, identical bit for bit"
    asked = f"proportions of {name}"
    assert found[asked].message == "3 of 3 steps asked as recomputed, identical bit for bit"

    # By hand: a drawn row's rate moves by 1 − memory towards the mean reward of what maxvar kept.
    rate = np.full(sum(trace.manifest.config["dfsim"]["dataset"]["rows"]), 0.5)
    records = read_records(trace.path)
    for entry, frame in trace.frames(["dataset_row", "reward", "weight"]):
        weight = 0.1 + (1 - rate)
        assert records[entry.step]["mix"]["digest"] == digest_of(weight / weight.sum())
        kept = frame.filter(pl.col("weight") > 0).group_by("dataset_row")
        for row, reward in kept.agg(pl.col("reward").mean()).rows():
            rate[row] += 0.75 * (reward - rate[row])
    assert all(len(set(step)) == 6 for step in rows_of(trace))
    assert len(set(rate)) > 2


def test_a_killed_run_draws_the_rows_of_a_straight_one(tmp_path):
    name = f"{pool_file(tmp_path)}:HardPool"
    saving = ("trainer.save_freq=2", f"trainer.default_local_dir={tmp_path / 'checkpoints'}")
    folders = [tmp_path / run for run in ("straight", "killed")]
    for folder in folders:
        folder.mkdir()
    straight = rehearsed(folders[0], 4, strategy=name, shadow=["tscl"])
    rehearsed(folders[1], 2, saving, strategy=name, shadow=["tscl"])
    again = (*saving, "trainer.resume_mode=auto")
    resumed = rehearsed(folders[1], 4, again, strategy=name, shadow=["tscl"])
    assert rows_of(resumed) == rows_of(straight)
    found = gates(resumed)
    assert [gate.passed for gate in found.values()] == [True, True]
    since = [
        r["shadow_mix"]["tscl"]["since"] for _, r in sorted(read_records(resumed.path).items())
    ]
    assert since == [1, 1, 3, 3]  # a shadow begins anew


@pytest.mark.parametrize("what", ["digest", "rows"])
def test_a_changed_draw_is_found(what, tmp_path):
    name = f"{pool_file(tmp_path)}:HardPool"
    trace = rehearsed(tmp_path, 2, strategy=name)
    log = trace.path / "live.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    if what == "digest":
        lines[1]["mix"]["digest"] = "0" * 16
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        words = "step 2: asked for other shares"
    else:
        trace.manifest.config["dfsim"]["dataset"]["seed"] += 1
        write_manifest(trace.path, trace.manifest)
        words = "step 1: the capture holds rows"
    (gate,) = gates(open_trace(trace.path)).values()
    assert gate.passed is False
    assert gate.message.startswith(words)
