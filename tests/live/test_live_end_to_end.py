"""As a user goes: capture, replay, promote, rehearse the promotion, verify; and stop midway."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("verl")

from rehearsals import DFSIM

from dfsim.live.rehearsal.launch import RUN_VARIABLE, run_rehearsal
from dfsim.live.verl.overrides import dfsim_overrides
from dfsim.traces.errors import DfsimError
from dfsim.traces.storage.store import open_trace

pytestmark = pytest.mark.live


def dfsim(*arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "dfsim.cli", *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_capture_replay_promote_rehearse_verify(tmp_path):
    small = ("--prompts", 6, "--responses", 6, "--quiet")
    base, live, promotion = (tmp_path / name for name in ("base", "live", "promotion"))
    said = dfsim("rehearse", "--steps", 12, "--capture", base, *small)
    assert f"Next: dfsim replay {base}" in said
    assert "not evidence about LLMs" in dfsim("replay", base, "--strategy", "all")
    dfsim("promote", base, "--strategy", "maxvar", "-p", "keep_frac=0.34", "--out", promotion)
    said = dfsim("rehearse", "--steps", 3, "--promotion", promotion, "--capture", live, *small)
    assert "Weights reached the loss in 3 of 3 checked steps." in said
    said = dfsim("verify", live, "--promotion", promotion)
    assert said.rstrip().endswith("Verified.")
    found = json.loads(dfsim("verify", live, "--promotion", promotion, "--json"))
    assert [gate["passed"] for gate in found["gates"]] == [True, True, True]
    kept = next(e for e in found["estimates"] if e["name"] == "kept_frac")
    assert kept["forecast"] == kept["observed"] == pytest.approx(2 / 6)
    other = tmp_path / "other"
    dfsim("promote", base, "--strategy", "maxvar", "--out", other)
    said = dfsim("verify", live, "--promotion", other, code=1)
    assert "the run's params is {'keep_frac': 0.34" in said
    assert "NOT verified" in said


def processes_of(mark: str) -> dict[int, str]:
    """Live processes whose environment holds a mark, with their names."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_trainer_leaves_whole_steps_and_a_resumed_one_goes_on(seed, tmp_path):
    moment = random.Random(seed)
    folder, checkpoints = tmp_path / "trace", tmp_path / "checkpoints"
    saving = (f"trainer.default_local_dir={checkpoints}", "trainer.save_freq=2")
    run = replace(
        DFSIM,
        steps=200,
        overrides=(*dfsim_overrides(capture=folder), *saving),
        folder=tmp_path / "run",
    )
    last, delay = moment.randint(3, 5), moment.uniform(0, 1.0)

    def kill():
        for pid, name in processes_of(f"{RUN_VARIABLE}={tmp_path / 'run'}").items():
            if "TaskRunner" in name:
                os.kill(pid, signal.SIGKILL)

    def on_step(step, metrics):
        if step == last:
            threading.Timer(delay, kill).start()

    with pytest.raises(DfsimError):
        run_rehearsal(run, on_step=on_step)
    trace = open_trace(folder)
    steps = [s.step for s in trace.manifest.steps]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= last - 1  # the last one may still have been on its way
    assert sum(frame.height for _, frame in trace.frames(trace.columns)) == 36 * len(steps)
    if seed == 2:
        return
    resumed = replace(
        run,
        steps=last + 3,
        overrides=(*run.overrides, "trainer.resume_mode=auto"),
        folder=tmp_path / "again",
    )
    result = run_rehearsal(resumed)
    first = int(result.steps[0]["step"])
    assert first > 1
    log = (tmp_path / "again" / "log.txt").read_text()
    replaced = f"were captured before the run was resumed at {first}"
    assert (replaced in log) == (first <= len(steps))
    whole = open_trace(folder)
    assert [s.step for s in whole.manifest.steps] == list(range(1, max(len(steps), last + 3) + 1))
    for _ in whole.frames(whole.columns):
        pass


def test_ctrl_c_leaves_no_process(tmp_path):
    mark = f"DFSIM_TEST_MARK={tmp_path}"
    environment = {**os.environ, "DFSIM_TEST_MARK": str(tmp_path)}
    command = [sys.executable, "-m", "dfsim.cli", "rehearse", "--steps", "50", "--prompts", "6"]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, start_new_session=True, text=True
    ) as process:
        while not any("raylet" in name for name in processes_of(mark).values()):
            assert process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("dfsim: interrupted")
    assert not processes_of(mark)
