"""Weights that reach the gradient, and plug-ins whose weights do not: on the real trainer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("verl")

from conftest import ROOT
from rehearsals import DFSIM

from dfsim.live.core.verification.verify import verify
from dfsim.live.rehearsal.launch import run_rehearsal
from dfsim.live.verl.doctor import run_canary
from dfsim.live.verl.overrides import dfsim_overrides, quoted
from dfsim.traces.errors import DfsimError
from dfsim.traces.storage.store import open_trace

pytestmark = pytest.mark.live

CANARY = f"+dfsim.strategy={quoted(str(ROOT / 'live/rehearsal/canary.py') + ':Canary')}"


@pytest.fixture
def wrong_meta(monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "wrong_meta")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "support"))
    return "wrong_meta"


def test_the_canary_stands_still_on_zeros_and_moves_on_ones():
    first, second, third, delivered = run_canary()
    zeros = "gradient norm 0.0, largest parameter difference 0.0"
    assert (first.passed, second.passed, third.passed, delivered.passed) == (True, True, True, True)
    assert first.message == second.message == zeros
    assert third.message != zeros


def test_a_wrong_meta_is_noticed(wrong_meta, tmp_path):
    folder = tmp_path / "trace"
    run = replace(
        DFSIM,
        steps=2,
        trainer_mode=wrong_meta,
        overrides=dfsim_overrides(strategy="maxvar", capture=folder),
        folder=tmp_path / "run",
    )
    result = run_rehearsal(run)
    assert [s["dfsim/delivered"] for s in result.steps] == [0.0, 0.0]
    assert all(s["actor/grad_norm"] > 0 for s in result.steps)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "the weights did NOT reach the loss: the loss got no rollout_is_weights" in log
    decisions, delivery = verify(open_trace(folder)).gates
    assert (decisions.passed, delivery.passed) == (True, False)


def test_an_audit_convicts_a_plug_in_that_delivers_nothing(wrong_meta):
    checks = run_canary(wrong_meta, zero=(CANARY, "+dfsim.on_empty=deliver"))
    told = [c.message for c in checks if c.passed is None]
    assert len(told) == 2
    assert all(m.startswith("the loss got no rollout_is_weights") for m in told)
    judged = [c for c in checks if c.passed is not None]
    assert [c.passed for c in judged] == [False, False]


def test_a_step_that_keeps_nothing_skips_its_update(tmp_path):
    rule = tmp_path / "second_step_empty.py"
    rule.write_text(
        "import numpy as np\n"
        "class SecondEmpty:\n"
        "    kind = 'select'\n"
        "    def weights(self, batch):\n"
        "        return np.full(batch.num_responses, float(batch.step != 2))\n"
    )
    run = replace(
        DFSIM,
        overrides=dfsim_overrides(strategy=f"{rule}:SecondEmpty", capture=tmp_path / "trace"),
        save_parameters=tmp_path / "parameters",
    )
    result = run_rehearsal(run)
    assert [s["dfsim/update_skipped"] for s in result.steps] == [0.0, 1.0, 0.0]
    assert [s.get("dfsim/delivered") for s in result.steps] == [1.0, None, 1.0]
    assert "actor/grad_norm" not in result.steps[1]
    first, last = result.parameters(1), result.parameters(3)
    assert any(not np.array_equal(first[k], last[k]) for k in first)
    found = verify(open_trace(tmp_path / "trace"))
    assert found.passed
    assert (
        "proven in 2 of 3 steps; 1 not checkable (the update was skipped" in found.gates[1].message
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("+dfsim.strategy=maxvr", "did you mean 'maxvar'?"),
        ("+dfsim.domain=topic", "the training set has no such column; it has: data_source, domain"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_before_a_model_loads(override, words, tmp_path):
    run = replace(DFSIM, overrides=(override,), folder=tmp_path / "run")
    with pytest.raises(DfsimError, match="rehearsal failed") as refused:
        run_rehearsal(run)
    assert words in str(refused.value)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "Loading weights" not in log
