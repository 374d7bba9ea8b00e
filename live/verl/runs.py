"""``python3 -m dfsim.live.verl.runs RUNS.csv METHOD SEED LOG.jsonl``: add a run to a table."""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path
from typing import Any

import polars as pl

from ...traces.errors import DfsimError
from ...traces.storage.files import replacing_file

_LAST_STEPS = 10
_REWARD = "critic/rewards/mean"


def run_row(method: str, seed: int, log: Path) -> dict[str, Any]:
    """One row: last validation values, and the mean training reward of the last ten steps.

    Args:
        method: the strategy's name, or ``baseline``.
        seed: of the run.
        log: verl's file logger's JSONL.

    Raises:
        DfsimError: the log is missing or holds no step.
    """
    try:
        lines = [line for line in log.read_text().splitlines() if line.strip()]
        records = [(int(r["step"]), dict(r["data"])) for r in map(json.loads, lines)]
    except OSError as error:
        raise DfsimError(
            f"{log} can't be read ({error.strerror}); did the run write it (trainer.logger=[file])?"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise DfsimError(f"{log} is not verl's file log: a line holds no step and data") from None
    if not records:
        raise DfsimError(f"{log} holds no step; the run did not get that far")
    row: dict[str, Any] = {"method": method, "seed": seed, "steps": records[-1][0]}
    rewards = [data[_REWARD] for _, data in records if _REWARD in data]
    if rewards:
        last = rewards[-_LAST_STEPS:]
        row["train_reward"] = sum(last) / len(last)
    for _, data in records:
        row.update({k: v for k, v in data.items() if k.startswith("val-core/")})
    return row


def add_run(table: Path, row: dict[str, Any]) -> None:
    """Add a row to a CSV; an earlier row of the same method and seed is replaced."""
    if not table.parent.is_dir():
        raise DfsimError(f"{table.parent} is not a folder; name the runs.csv that promote wrote")
    with table.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = pl.read_csv(table, infer_schema_length=None) if table.is_file() else pl.DataFrame()
        if old.height:
            same = (pl.col("method") == row["method"]) & (pl.col("seed") == row["seed"])
            old = old.filter(~same)
        frames = [f for f in (old, pl.DataFrame([row])) if f.height]
        with replacing_file(table) as scratch:
            pl.concat(frames, how="diagonal_relaxed").write_csv(scratch)


def main(arguments: list[str]) -> int:
    """Entry point of the module."""
    if len(arguments) != 4 or not arguments[2].isdigit():
        print(
            "usage: python3 -m dfsim.live.verl.runs RUNS.csv METHOD SEED LOG.jsonl", file=sys.stderr
        )
        return 2
    table, method, seed, log = arguments
    try:
        add_run(Path(table), run_row(method, int(seed), Path(log)))
    except DfsimError as error:
        print(f"dfsim: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
