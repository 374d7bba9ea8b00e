"""Forecast of mixers from one uniform capture, against live runs of the rehearsal trainer.

From one capture of 120 steps without a mixer, the proportions that each mixer will ask for over 40
steps are predicted under both clocks; then each mixer runs live with three seeds. Published is the
total variation, good or bad. Outside CI; about half an hour on two cores.

    python benchmarks/mix_forecast.py --work SCRATCH --out reports/published
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import polars as pl

from dfsim.live.core.log import read_records
from dfsim.live.rehearsal.launch import Rehearsal, run_rehearsal
from dfsim.live.verl.overrides import dfsim_overrides
from dfsim.sim.mix.simulate import CLOCKS
from dfsim.sim.replay.loop import replay
from dfsim.traces.storage.store import open_trace

MIXERS = ("reward_gap", "dump_ucb", "dump_ucb@paper", "tscl", "tscl@paper")
CAPTURED, LIVE, SEEDS = 120, 40, (1, 2, 3)
PROMPTS, RESPONSES = 12, 6


def rehearsed(folder: Path, steps: int, seed: int, mixer: str | None) -> Path:
    """Run once; a finished capture is used again."""
    if not (folder / "done").exists():
        print(f"{folder.name}: {steps} steps", flush=True)
        run = Rehearsal(
            steps=steps,
            prompts=PROMPTS,
            responses=RESPONSES,
            seed=seed,
            trainer_mode="dfsim_sync",
            overrides=dfsim_overrides(strategy=mixer, capture=folder / "trace"),
        )
        run_rehearsal(run)
        (folder / "done").touch()
    return folder / "trace"


def targets_of(trace: Path) -> np.ndarray:
    """What a live run asked for (LIVE, D)."""
    records = read_records(trace)
    return np.array([records[step]["mix"]["target"] for step in range(1, LIVE + 1)])


def variation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Total variation by step."""
    return 0.5 * np.abs(a - b).sum(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)

    def folder(name: str) -> Path:
        path = given.work / name.replace("@", "_")
        path.mkdir(exist_ok=True)
        return path

    base = open_trace(rehearsed(folder("uniform"), CAPTURED, 0, None))
    forecasts = replay(base, MIXERS, resamples=2).mixers
    rows, series = [], []
    for mixer in MIXERS:
        runs = [
            targets_of(rehearsed(folder(f"{mixer}_{seed}"), LIVE, seed, mixer)) for seed in SEEDS
        ]
        predicted = {c: forecasts[mixer].runs[c].target_SD[:LIVE] for c in CLOCKS}
        predicted["no steering"] = np.full_like(runs[0], 1 / runs[0].shape[1])
        row: dict[str, object] = {"mixer": mixer}
        for name, target in predicted.items():
            off = np.array([variation(target, run) for run in runs])
            row[name] = float(np.nanmean(off))
            for step, value in enumerate(np.nanmean(off, axis=0), start=1):
                series.append({"mixer": mixer, "forecast": name, "step": step, "off": value})
        pairs = [variation(a, b).mean() for a, b in itertools.combinations(runs, 2)]
        row["seed to seed"] = float(np.mean(pairs))
        rows.append(row)
    given.out.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(series).write_csv(given.out / "mix_forecast.csv")
    columns = (*CLOCKS, "no steering", "seed to seed")
    lines = ["| mixer | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    lines += [
        f"| {row['mixer']} | " + " | ".join(f"{row[c]:.3f}" for c in columns) + " |" for row in rows
    ]
    table = "\n".join(lines)
    print(table)


if __name__ == "__main__":
    main()
