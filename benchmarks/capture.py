"""What deciding and capturing cost a live step, as multiples of the bare Parquet write.

5,120 responses of 512 tokens, four token lists. Not in it: reading the step from verl's queue. All
in one process, medians of interleaved repeats.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from timing import median_seconds

from dfsim.live.core.capture import columns_of, to_frame
from dfsim.live.core.delivery import apply
from dfsim.live.core.rows import OutputRows, Responses
from dfsim.sim.estimators import estimate_step
from dfsim.strategies.base import Scores
from dfsim.strategies.build import build
from dfsim.strategies.catalog import PRESETS
from dfsim.traces.storage.manifest import Manifest
from dfsim.traces.storage.store import TraceWriter

GROUPS, SIZE, TOKENS, REPEATS = 640, 8, 512, 5
NAMES = tuple(PRESETS)


def rows_of(seed: int) -> OutputRows:
    """A step as verl holds it: rows balanced over ranks, so groups are not contiguous."""
    rng = np.random.default_rng(seed)
    count, flat = GROUPS * SIZE, GROUPS * SIZE * TOKENS
    order = rng.permutation(count)
    reward = (rng.random(count) < np.repeat(rng.random(GROUPS), SIZE)).astype(np.float32)
    group = np.arange(count) // SIZE
    mean = np.bincount(group, reward)[group] / SIZE
    advantage = (reward - mean).astype(np.float32)
    log_prob = -rng.exponential(0.3, flat).astype(np.float32)
    lists = ("old_log_probs", "rollout_log_probs", "ref_log_probs", "entropy")
    return OutputRows(
        step=1,
        keys=[f"{seed:04d}-{i // SIZE:05d}_{i % SIZE}_0" for i in order],
        is_padding_R=np.zeros(count, dtype=bool),
        offsets=np.arange(count + 1, dtype=np.int64) * TOKENS,
        mask_F=np.ones(flat, dtype=bool),
        advantage_F=np.repeat(advantage[order], TOKENS),
        reward_R=reward[order],
        tokens={name: np.roll(log_prob, i) for i, name in enumerate(lists)},
        prompt_R=np.array([f"prompt-{i // SIZE}" for i in order], dtype=object),
        mini_batch_R=np.arange(count) // (count // 4),
    )


def decided(rows: OutputRows, names: tuple[str, ...]) -> tuple[Responses, dict]:
    """What the driver does for one step before it trains on."""
    responses = Responses(rows)
    batch = responses.batch(mini_batch_rows=GROUPS * SIZE // 4)
    scores = Scores(batch)
    decisions = {name: build(name).decide(batch, scores) for name in ("none", *names)}
    estimate_step(batch, decisions)
    return responses, {name: apply(d, batch) for name, d in decisions.items()}


def main() -> None:
    rows = rows_of(0)
    responses, applied = decided(rows, ("maxvar",))
    columns = columns_of(responses, applied["maxvar"], tokens=True, text=False)
    frame = to_frame(columns)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        writer = TraceWriter(place, Manifest(writer="bench"))
        work = {
            "bare write": lambda: frame.write_parquet(place / "bare", compression="zstd"),
            "decide maxvar, all estimators": lambda: decided(rows, ("maxvar",)),
            "decide 12 presets, all estimators": lambda: decided(rows, NAMES[1:]),
            "write it, in the background": lambda: writer.write_step(to_frame(columns)),
        }
        middle = {name: median_seconds(one, REPEATS) for name, one in work.items()}
    bare = middle["bare write"]
    print(f"{GROUPS * SIZE:,} responses × {TOKENS} tokens, four token lists; bare write = 1")
    for name, value in middle.items():
        print(f"  {name:<36}{value / bare:6.2f}")
    total = sum(middle[n] for n in ("decide maxvar, all estimators", "write it, in the background"))
    print(f"  {'one strategy: decide and write':<36}{total / bare:6.2f}")


if __name__ == "__main__":
    main()
