"""A session inside a trainer that is no more than the protocol asks for."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.live  # a capture needs pyarrow
pytest.importorskip("pyarrow")

from live_made import random_rows  # noqa: E402
from live_trace import RUN  # noqa: E402

from dfsim.live.core.backend import Backend, RunConfig  # noqa: E402
from dfsim.live.core.delivery import apply  # noqa: E402
from dfsim.live.core.proof import Seen, expected, whole  # noqa: E402
from dfsim.live.core.rows import Responses  # noqa: E402
from dfsim.live.core.session import Session  # noqa: E402
from dfsim.live.core.verification.verify import verify  # noqa: E402
from dfsim.live.verl.settings import read_settings  # noqa: E402
from dfsim.strategies.build import build  # noqa: E402
from dfsim.traces.storage.store import open_trace  # noqa: E402


class Trainer(Backend):
    """Steps of made rows; its loss sees the weights that are in the batch that it trains on."""

    def __init__(self, *, loses_weights: bool = False) -> None:
        self.step, self.loses_weights = 0, loses_weights
        self.asked: list[tuple] = []
        self.fields: dict = {}

    def read(self, batch, *, domain, numbered, text):
        self.step += 1
        self.asked.append((batch, domain, text))
        rows = random_rows(np.random.default_rng([3, self.step]), step=self.step)
        self.rows = rows
        return rows

    def write(self, batch, fields):
        self.fields = dict(fields)
        return batch if self.loses_weights else f"{batch}, weighed"

    def take_report(self, metrics):
        metrics.pop("report")
        rows = self.rows
        one = np.zeros(len(rows.mask_F), np.int64)
        seen = whole(expected(self.fields["weights"], rows.advantage_F, rows.mask_F, one))
        return Seen(**{**seen.to_dict(), "seen": float(not self.loses_weights)}), None


def session_of(trainer, said, run=None, **given):
    run = run or RunConfig(RUN, n=6, train_batch_size=5, max_response_length=5)
    session = Session(read_settings(given), run, trainer, said.append)
    session.prepare(["domain"], lambda name: ["math", "sort"])
    session.begin(1)
    return session


def trained(session, steps=3):
    logged = []
    for step in range(1, steps + 1):
        metrics = {"report": 1.0}
        batch = session.observe(f"batch {step}", metrics)
        session.finish(metrics)
        logged.append((batch, metrics))
    session.close()
    return logged


def test_weights_are_written_proven_captured_and_recomputed(tmp_path):
    trainer, said = Trainer(), []
    session = session_of(trainer, said, strategy="maxvar", capture={"dir": str(tmp_path / "a")})
    assert session.proves
    logged = trained(session)
    assert [batch for batch, _ in logged] == [f"batch {i}, weighed" for i in (1, 2, 3)]
    assert [metrics["dfsim/delivered"] for _, metrics in logged] == [1.0, 1.0, 1.0]
    assert all("report" not in metrics for _, metrics in logged)
    assert trainer.asked[0] == ("batch 1", "domain", False)
    responses = Responses(trainer.rows)
    batch = responses.batch(mini_batch_rows=24)
    weights = apply(build("maxvar").decide(batch), batch).weights_T(batch)
    assert trainer.fields["weights"][responses.flat_T].tobytes() == weights.tobytes()
    others = np.setdiff1d(np.arange(len(trainer.rows.mask_F)), responses.flat_T)
    assert (trainer.fields["weights"][others] == 1).all()
    assert set(trainer.fields) == {"weights"}
    assert verify(open_trace(tmp_path / "a")).passed
    assert len(said) == 1  # where it captures


def test_weights_that_never_reach_the_loss_are_said_once(tmp_path):
    trainer, said = Trainer(loses_weights=True), []
    logged = trained(session_of(trainer, said, strategy="maxvar"))
    assert [metrics["dfsim/delivered"] for _, metrics in logged] == [0.0, 0.0, 0.0]
    assert sum("the weights did NOT reach the loss" in line for line in said) == 1


def test_a_loss_that_does_not_report_is_left_alone():
    run = RunConfig(RUN, n=6, train_batch_size=5, no_report="loss_mode=mine does not report")
    said = []
    session = session_of(Trainer(), said, run, strategy="maxvar")
    assert not session.proves
    ((_, metrics),) = trained(session, 1)
    assert "dfsim/delivered" not in metrics
    assert metrics["report"] == 1.0
    assert said == ["dfsim: delivery not checkable: loss_mode=mine does not report"]


def test_a_run_without_a_strategy_gets_its_batch_back():
    trainer = Trainer()
    logged = trained(session_of(trainer, [], shadow=["maxvar"]), 2)
    assert [batch for batch, _ in logged] == ["batch 1", "batch 2"]
    assert trainer.fields == {}
    assert "dfsim/maxvar/kept_frac" in logged[0][1]


def test_replaced_advantages_are_written_with_their_returns():
    class WithReturns(Trainer):
        def read(self, batch, *, domain, numbered, text):
            rows = super().read(batch, domain=domain, numbered=numbered, text=text)
            object.__setattr__(rows, "returns_F", np.full(len(rows.mask_F), 9.0, np.float32))
            return rows

    trainer = WithReturns()
    session = session_of(trainer, [], strategy="maxvar@paper")
    session.observe("batch", {})
    flat = Responses(trainer.rows).flat_T
    fields = trainer.fields
    assert set(fields) == {"weights", "advantages", "returns"}
    assert (fields["returns"][flat] == fields["advantages"][flat]).all()
    assert (np.delete(fields["returns"], flat) == 9.0).all()


@pytest.mark.parametrize("applies", [False, True])
def test_only_a_run_that_applies_nothing_survives_a_failing_read(applies):
    class Broken(Trainer):
        def read(self, batch, *, domain, numbered, text):
            raise OSError("the queue is gone")

    said = []
    given = {"strategy": "maxvar"} if applies else {"shadow": ["maxvar"]}
    session = session_of(Broken(), said, **given)
    if applies:
        with pytest.raises(OSError, match="queue is gone"):
            session.observe("batch", {})
    else:
        assert session.observe("batch", {}) == "batch"
        assert "watching stopped (OSError: the queue is gone)" in said[0]
