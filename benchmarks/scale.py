"""Replay at scale: time against the bare Polars read of the same files, and peak memory.

1.5 million responses in 300 steps, all presets that the trace can run. Times are medians in one
process; memory is the peak of a fresh process per measurement, less that of one which only opens
the trace. Ratios and differences carry over to other machines; seconds do not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from timing import median_seconds

from dfsim.sim.inspect.census import cannot_run
from dfsim.sim.replay.loop import replay
from dfsim.strategies.base import Scores
from dfsim.strategies.build import build
from dfsim.strategies.catalog import PRESETS
from dfsim.traces.storage.compact import compact
from dfsim.traces.storage.manifest import Manifest
from dfsim.traces.storage.store import TraceWriter, open_trace

GROUPS, SIZE = 625, 8
GOAL_RATIO, GOAL_MIB = 5, 300


def write_trace(folder: Path, steps: int, tokens: int) -> None:
    """Binary rewards, three domains, 20,000 prompts; ``tokens`` log-probs a response, or none."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    writer = TraceWriter(
        folder,
        Manifest("benchmark", config={"n": SIZE, "ppo_mini_batch_size": GROUPS}),
        at_once=False,
    )
    count = GROUPS * SIZE
    for step in range(1, steps + 1):
        solve_rate = np.repeat(rng.beta(0.7, 0.7, GROUPS), SIZE)
        columns = {
            "step": np.full(count, step),
            "group_uid": [
                u for u in (rng.bytes(16).hex() for _ in range(GROUPS)) for _ in range(SIZE)
            ],
            "rollout_idx": np.tile(np.arange(SIZE), GROUPS),
            "prompt_id": [f"p{p:05d}" for p in rng.integers(0, 20_000, GROUPS).repeat(SIZE)],
            "domain": np.array(["code", "logic", "math"])[rng.integers(0, 3, GROUPS).repeat(SIZE)],
            "reward": (rng.random(count) < solve_rate).astype(float),
            "num_tokens": np.full(count, tokens) if tokens else rng.integers(50, 400, count),
        }
        frame = pl.DataFrame(columns)
        if tokens:
            log_probs = -rng.exponential(0.5, (count, tokens)).astype(np.float32)
            frame = frame.with_columns(pl.Series("old_log_probs", log_probs).arr.to_list())
        writer.write_step(frame)
    writer.publish()


def presets(path: Path) -> list[str]:
    lacking = cannot_run(open_trace(path))
    return [name for name in PRESETS if name not in lacking]


def report_time(path: Path, title: str) -> None:
    names = presets(path)
    bare = median_seconds(lambda: [pl.read_parquet(p) for p in sorted(path.glob("*.parquet"))], 5)
    whole = median_seconds(lambda: replay(open_trace(path), names), 3)
    few = median_seconds(lambda: replay(open_trace(path), names, resamples=2), 3)
    strategies = [build(name) for name in names]
    columns = ["num_tokens", "domain", "prompt_id"]
    read = median_seconds(lambda: [b.step for b in open_trace(path).batches(columns)], 3)

    def decide() -> None:
        for batch in open_trace(path).batches(columns):
            scores = Scores(batch)
            for strategy in strategies:
                strategy.decide(batch, scores)

    decided = median_seconds(decide, 3)
    print(
        f"{title}: {len(names)} presets take {whole / bare:.1f} × the bare read "
        f"(goal {GOAL_RATIO} ×); without intervals {few / bare:.1f} ×; reading and checking into "
        f"batches alone {read / bare:.1f} ×, deciding too {decided / bare:.1f} ×"
    )


def peak_mib(path: Path, run: bool) -> float:
    """Peak memory of a fresh process that opens a trace, and replays it or not."""
    command = [sys.executable, __file__, "--measure", str(path), *(["--run"] if run else [])]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure(path: Path, run: bool) -> None:
    names = presets(path)
    if run:
        replay(open_trace(path), names)
    status = Path("/proc/self/status").read_text()  # ru_maxrss would count the parent's memory
    print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)


def report_memory(path: Path, title: str) -> None:
    base, peak = peak_mib(path, run=False), peak_mib(path, run=True)
    print(f"{title}: replay adds {peak - base:.0f} MiB (goal: a step's columns + {GOAL_MIB} MiB)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    if given.measure is not None:
        measure(given.measure, given.run)
        return
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_trace(root / "plain", given.steps, 0)
        compact(open_trace(root / "plain"), root / "compacted")
        write_trace(root / "short", given.steps // 4, 0)
        write_trace(root / "tokens", given.steps // 5, 200)
        rows = given.steps * GROUPS * SIZE
        print(f"{rows:,} responses in {given.steps} steps; the bare Polars read = 1")
        report_time(root / "plain", "a file a step")
        report_time(root / "compacted", "compacted")
        report_memory(root / "short", f"{given.steps // 4} steps")
        report_memory(root / "plain", f"{given.steps} steps")
        report_memory(root / "compacted", f"{given.steps} steps, compacted")
        report_memory(root / "tokens", f"{given.steps // 5} steps, 200 tokens a response")


if __name__ == "__main__":
    main()
