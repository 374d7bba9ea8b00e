"""Captures of live runs that tests make, written by the live writer itself; needs pyarrow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from live_made import random_rows

from dfsim.live.core.capture import Capture, CapturedStep, columns_of
from dfsim.live.core.delivery import apply
from dfsim.live.core.record import strategy_record
from dfsim.live.core.rows import Responses
from dfsim.live.core.settings import CaptureSettings
from dfsim.strategies.base import Strategy

RUN = {"adv_estimator": "grpo", "n": 6, "ppo_mini_batch_size": 4, "loss_agg_mode": "token-mean"}


def responses_of(step: int, **options: Any) -> Responses:
    """The step's responses: the same ones whenever they are asked for."""
    rng = np.random.default_rng([17, step])
    return Responses(random_rows(rng, step=step, **options))


def record_of(step: int, **changes: Any) -> dict[str, Any]:
    """A line of ``live.jsonl`` of a step that was delivered."""
    record = {"step": step, "digests": {}, "delivered": 1, "reason": "", "pg_loss": "agrees"}
    return {**record, **changes}


def step_of(step: int, **changes: Any) -> CapturedStep:
    columns = columns_of(responses_of(step), None, tokens=True, text=False)
    return CapturedStep(columns, record_of(step, **changes))


def live_trace(
    folder: Path,
    strategy: Strategy | None,
    shadows: tuple[Strategy, ...] = (),
    *,
    steps: int = 3,
    tokens: bool = True,
    rescale: Any = "none",
    on_empty: Any = "skip_update",
    records: dict[int, dict[str, Any]] | None = None,
) -> Path:
    """Decide and capture ``steps`` as a live run does; ``records`` changes lines of the log."""
    dfsim = {
        "strategy": None if strategy is None else strategy_record(strategy),
        "shadow": [strategy_record(s) for s in shadows],
        "rescale": rescale,
        "on_empty": on_empty,
        "promotion": None,
    }
    said: list[str] = []
    capture = Capture(CaptureSettings(folder, queue_steps=2), {**RUN, "dfsim": dfsim}, said.append)
    capture.start(1, "")
    for step in range(1, steps + 1):
        responses = responses_of(step)
        batch = responses.batch(mini_batch_rows=24)
        digests = {s.name: apply(s.decide(batch), batch).digest() for s in shadows}
        applied = None
        if strategy is not None:
            applied = apply(strategy.decide(batch), batch, rescale, on_empty)
            digests[strategy.name] = applied.digest()
        columns = columns_of(responses, applied, tokens, text=False)
        changes = {"digests": digests, **(records or {}).get(step, {})}
        capture.put(CapturedStep(columns, record_of(step, **changes)))
    capture.close()
    assert capture.failed == 0, said
    return folder


def main(folder: str, first: int) -> None:
    """Write steps from ``first`` on, as fast as the disk takes them, until killed."""
    settings = CaptureSettings(Path(folder), queue_steps=1)
    capture = Capture(settings, RUN, lambda text: print(text, flush=True))
    capture.start(first, "")
    for step in range(first, 10**6):
        capture.put(step_of(step))
        print(f"step {step}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
