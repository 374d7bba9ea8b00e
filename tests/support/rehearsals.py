"""Rehearsals that tests share: each runs once a test session, whichever worker asks first."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dfsim.live.core.verification.verify import Verification, verify
from dfsim.live.rehearsal.launch import Rehearsal, RehearsalResult, run_rehearsal
from dfsim.live.verl.overrides import dfsim_overrides
from dfsim.traces.storage.store import Trace, open_trace

DFSIM = Rehearsal(steps=3, trainer_mode="dfsim_sync")
ROLLOUT_IS = ("algorithm.rollout_correction.rollout_is=token",)

RUNS: dict[str, tuple[Rehearsal, dict]] = {
    "stock": (Rehearsal(steps=3), {}),
    "capture": (DFSIM, {"capture": True}),
    "shadow": (DFSIM, {"capture": True, "shadow": ["all"]}),
    "multi-output": (
        replace(DFSIM, agent="multi-output", steps=2),
        {"capture": True, "strategy": "maxvar"},
    ),
    "two ranks": (
        replace(DFSIM, ranks=2, mini_batches=2, steps=2),
        {"capture": True, "strategy": "maxvar@paper"},
    ),
    "corrected": (
        replace(DFSIM, overrides=ROLLOUT_IS, steps=2),
        {"capture": True, "strategy": "ar"},
    ),
    # A group filter, and mini-batches that verl cuts into different numbers of micro-batches.
    "dynamic": (
        replace(
            DFSIM,
            dynamic_batches=True,
            mini_batches=3,
            steps=2,
            agent="multi-output",
            overrides=("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=160",),
        ),
        {"capture": True, "strategy": "difffilter"},
    ),
}


@dataclass(frozen=True)
class Run:
    """A finished rehearsal and where it captured."""

    result: RehearsalResult
    folder: Path

    @property
    def trace(self) -> Trace:
        return open_trace(self.folder / "trace")

    def verified(self) -> Verification:
        return verify(self.trace)


Rehearsed = Callable[[str], Run]


def once(base: Path, name: str) -> Run:
    """The named run, made under a lock that workers share."""
    folder = base / name.replace(" ", "-")
    folder.mkdir(exist_ok=True)
    done = folder / "result.pickle"
    with (base / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            rehearsal, settings = RUNS[name]
            settings = dict(settings)
            if settings.pop("capture", False):
                settings["capture"] = folder / "trace"
            run = replace(
                rehearsal,
                overrides=(*dfsim_overrides(**settings), *rehearsal.overrides),
                save_parameters=folder / "parameters",
            )
            done.write_bytes(pickle.dumps(run_rehearsal(run)))
    return Run(pickle.loads(done.read_bytes()), folder)


@pytest.fixture(scope="session")
def rehearsed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Rehearsed:
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent
    return lambda name: once(base, name)
