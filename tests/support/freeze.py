"""``python tests/support/freeze.py FOLDER [PREFIX ...]``: every command's output, to compare.

Writes the standard output, errors, exit code and files of the commands over the bundled trace and
two generated ones, and a short rehearsal with its capture where verl is installed. Two folders
that ``diff -r`` calls equal mean: nothing that a user sees has changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl

from dfsim.traces.storage.store import open_trace
from dfsim.traces.synthetic import binary_steps, exact_step, random_step

ROOT = Path(__file__).resolve().parents[2]
OWN = '''import numpy as np


class Hard:
    """Responses of groups that fail more often than not."""

    kind = "select"

    def weights(self, batch):
        mean = np.add.reduceat(batch.reward_N, batch.group_offsets[:-1]) / batch.group_size_G
        return (mean <= 0.5)[batch.group_N].astype(float)
'''
MIXERS = ("static", "reward_gap", "dump_ucb", "dump_ucb@paper", "tscl", "tscl@paper")
PRESETS = [
    "none",
    "difffilter",
    "dapo",
    "maxvar",
    "maxvar@paper",
    "gfpo",
    "gfpo@paper",
    "topk",
    "softmax",
    "per",
    "diffband",
    "ar",
    "ar@paper",
]

HELPED = ("replay", "inspect", "strategies", "import", "compact", "screen", "compare", "report")
HELPED += ("rehearse", "doctor", "promote", "verify")
COMMANDS: dict[str, str] = {
    "replay-all": "replay SAMPLE -s all --resamples 40 --out out/replay-all",
    "replay-table": "replay SAMPLE -s maxvar --resamples 40",
    "replay-json": "replay SAMPLE -s maxvar -s ar -s topk --resamples 40 --json",
    "replay-sweep": "replay SAMPLE -s softmax -s maxvar -p softmax.temperature=[0.5,1,2] "
    "-p maxvar.keep_frac=[0.25,0.5] --resamples 40 --json",
    "replay-composed": "replay SAMPLE --scorer advantage_magnitude --actuator top_fraction "
    "--resamples 40 --json",
    "replay-own": "replay SAMPLE -s own.py:Hard --resamples 40 --json",
    "replay-token": "replay SAMPLE -s ar --loss-agg-mode token-mean --resamples 40 --json",
    "replay-success": "replay SAMPLE -s difffilter --success-threshold 0.2 --resamples 40 --json",
    "replay-mixed": "replay SAMPLE -s maxvar -s dump_ucb+maxvar@paper -s tscl --resamples 40 "
    "-p maxvar.keep_frac=0.25 --out out/replay-mixed",
    "replay-mix-json": "replay SAMPLE -s reward_gap -p temperature=[0.5,1] --json",
    "replay-mix-table": "replay SAMPLE -s reward_gap -s dump_ucb+topk",
    "replay-sync": "replay SAMPLE -s dump_ucb --candidates sync --clock step --json",
    "replay-oversample": "replay SAMPLE -s dump_ucb --candidates oversample=3 --json",
    "replay-synthetic": "replay SYNTHETIC -s all -s dump_ucb --resamples 40 --json",
    "replay-nasty": "replay NASTY -s all --resamples 20 --json",
    "inspect-json": "inspect SAMPLE --json",
    "inspect": "inspect SAMPLE --prompts out/prompts.csv",
    "inspect-nasty": "inspect NASTY --json",
    "inspect-synthetic": "inspect SYNTHETIC",
    "strategies": "strategies",
    "strategies-json": "strategies SAMPLE --json",
    "strategies-nasty": "strategies NASTY",
    "check": "strategies --check own.py:Hard",
    "check-json": "strategies --check maxvar --json",
    "screen": "screen SAMPLE -s all --resamples 20 --out out/screen",
    "screen-table": "screen SYNTHETIC -s maxvar -s topk -s softmax -p softmax.temperature=[0.5,1] "
    "--resamples 20",
    "screen-json": "screen SYNTHETIC -s all --resamples 20 --by ess_tokens --json",
    "compare": "compare runs.csv --resamples 400 --out out/compare",
    "compare-json": "compare runs.csv --resamples 400 --json",
    "import": "import rollouts.jsonl --out out/imported --step 1 --map group_uid=group_id --json",
    "import-table": "import rollouts.jsonl --out out/imported2 --step 1 --map group_uid=group_id",
    "compact": "compact SAMPLE --out out/compact --json",
    "promote": "promote SAMPLE -s maxvar@paper --resamples 40 --seeds 2 --out out/promotion",
    "promote-json": "promote SAMPLE -s ar --resamples 40 --out out/promotion-ar --json",
    "report": "report out/screen",
    "verify": "verify SAMPLE --json",
    **{f"help-{c}": f"{c} --help" for c in HELPED},
    "help": "--help",
    **{f"bad-{i:02d}": line for i, line in enumerate((
        "replay nowhere -s maxvar",
        "replay SAMPLE -s maxvra",
        "replay SAMPLE -s maxvar@papr",
        "replay SAMPLE -s maxvar -p keep_frac=2",
        "replay SAMPLE -s maxvar -p keep_frc=0.2",
        "replay SAMPLE -s maxvar -s topk -p temperature=1",
        "replay SAMPLE -s maxvar -p topk.keep_frac=0.5",
        "replay SAMPLE -s maxvar+topk",
        "replay SAMPLE -s dump_ucb+nothing",
        "replay SAMPLE -s dump_ucb+tscl",
        "replay SAMPLE -s dump_ucb -p flor=0.1",
        "replay SAMPLE -s dump_ucb -p floor=0.9",
        "replay SAMPLE -s static",
        "replay SAMPLE -s own.py:Nothing",
        "replay SAMPLE -s gone.py:Hard",
        "replay SAMPLE -s all -s max_variance",
        "replay SAMPLE -s maxvar -p",
        "replay SAMPLE -s maxvar -p keep_frac",
        "replay SAMPLE -s maxvar --candidates many",
        "replay SAMPLE -s maxvar --clock noon",
        "replay SAMPLE -s maxvar --loss-agg-mode x",
        "replay SAMPLE --scorer reward",
        "replay SAMPLE --scorer reward --actuator solve_band",
        "replay SAMPLE -s maxvar -s maxvar",
        "replay SAMPLE -s maxvar --decisions out/d.parquet -s topk",
        "replay SAMPLE -s maxvar --success accuracy",
        "screen SAMPLE -s maxvar --by nothing",
        "screen SAMPLE -s maxvar -p keep_frac=7",
        "promote SAMPLE -s maxvra",
        "promote SAMPLE -s maxvar -p keep_frac=[0.2,0.3]",
        "promote SAMPLE -s maxvar --rescale half",
        "promote SAMPLE -s maxvar --on-empty stop",
        "verify nowhere",
        "verify SAMPLE --promotion nowhere",
        "compare nowhere.csv",
        "compare runs.csv --method nothing",
        "compare runs.csv --metrics x0,zz",
        "compare runs.csv --alpha 2",
        "compare runs.csv --baseline nobody",
        "report out/imported",
        "import nowhere --out out/x",
        "import rollouts.jsonl --out out/x --format nothing",
        "import rollouts.jsonl --out out/x --map reward=nothing",
        "import rollouts.jsonl --out out/x --nan-reward maybe",
        "import rollouts.jsonl --out out/imported --map group_uid=group_id",
        "inspect SAMPLE --prompts out/p.txt",
        "inspect SAMPLE --success nothing",
        "strategies --check own.py",
        "nothing",
        "replay",
    ))},
}  # fmt: skip


def write_trace(folder: Path, steps: list) -> None:
    """A capture of generated steps."""
    from made import trace_of

    trace_of(folder, steps)


def prepare(work: Path) -> None:
    """Everything that the commands read."""
    rng = np.random.default_rng(3)
    shutil.copytree(next((ROOT / "traces" / "samples").glob("*/manifest.json")).parent,
                    work / "SAMPLE")  # fmt: skip
    rates = {"code": 0.3, "math": 0.6, "talk": 0.9}
    write_trace(
        work / "SYNTHETIC",
        list(binary_steps(rates, steps=20, groups_per_domain=4, n=6, seed=5)),
    )
    write_trace(
        work / "NASTY",
        [{**random_step(rng, nan_rewards=True), "step": step} for step in range(1, 9)],
    )
    (work / "own.py").write_text(OWN)
    rows = [
        {"method": method, "seed": seed}
        | {f"x{i}": round(50 + gain + rng.standard_normal(), 3) for i in range(4)}
        for method, gain in {"none": 0, "maxvar": 1.5, "topk": 0, "softmax": -1}.items()
        for seed in range(1, 6)
    ]
    pl.DataFrame(rows).write_csv(work / "runs.csv")
    step = exact_step([0, 1, 2, 3, 4], 4, step=1)
    pl.DataFrame(
        {
            "group_id": step["group_uid"].astype(str),
            "prompt": step["prompt_id"].astype(str),
            "response": [f"answer {i} " * (i % 3 + 1) for i in range(20)],
            "reward": step["reward"],
            "num_tokens": step["num_tokens"],
        }
    ).write_ndjson(work / "rollouts.jsonl")


def run(line: str, folder: Path, name: str) -> None:
    """One command, in a process of its own."""
    call = [sys.executable, "-m", "dfsim.cli", *line.split()]
    done = subprocess.run(call, capture_output=True, text=True)
    (folder / f"{name}.out").write_text(done.stdout)
    (folder / f"{name}.err").write_text(f"{done.stderr}exit {done.returncode}\n")


def decisions(work: Path, folder: Path) -> None:
    """Digest of the weights of every preset on every step of three traces."""
    import dfsim

    lines = []
    for trace in ("SAMPLE", "SYNTHETIC", "NASTY"):
        for name in PRESETS:
            digest = hashlib.sha256()
            try:
                strategy = dfsim.build(name)
                for batch in open_trace(work / trace).batches(strategy.columns):
                    decided = strategy.decide(batch)
                    for values in (decided.weight_N, decided.token_weight_T, decided.advantage_N):
                        digest.update(b"-" if values is None else values.tobytes())
                lines.append(f"{trace} {name} {digest.hexdigest()}")
            except dfsim.DfsimError as error:
                lines.append(f"{trace} {name} {error}")
    (folder / "decisions.txt").write_text("\n".join(lines) + "\n")


REHEARSALS = {
    "maxvar": "-s maxvar@paper --shadow all",
    "mixed": "-s dump_ucb+topk -p floor=0.1 --responses 4",
    "token": "-s ar --prompts 8 --override algorithm.rollout_correction.rollout_is=token",
}


def rehearse(folder: Path) -> None:
    """Real verl, two steps each, and what its captures hold."""
    for name, line in REHEARSALS.items():
        run(
            f"rehearse {line} --steps 2 --capture out/live-{name} --json",
            folder,
            f"rehearse-{name}",
        )
        run(f"verify out/live-{name} --json", folder, f"verify-{name}")
        run(f"verify out/live-{name}", folder, f"verify-{name}-text")
        trace = open_trace(Path(f"out/live-{name}"))
        (folder / f"capture-{name}.txt").write_text(f"{trace.manifest.fingerprint}\n")


MOVING = (
    (re.compile(r'(?<=")((?:[a-z]+/)?(?:timing|perf|throughput)[^"]*": )[0-9.e-]+'), r"\1TIME"),
    (re.compile(r"dfsim-freeze-[a-z0-9_]+"), "WORK"),
    (re.compile(r'("(?:code|digest)": ")[0-9a-f]{16,32}(?=")'), r"\1CODE"),
)
"""What differs between two runs, or with the place of a source file."""


def normalise(folder: Path) -> None:
    """Take out what differs between two runs of the same code."""
    for path in folder.rglob("*"):
        if path.suffix in (".out", ".err", ".html", ".json", ".csv", ".sh", ".txt", ".yaml"):
            text = path.read_text()
            for pattern, word in MOVING:
                text = pattern.sub(word, text)
            path.write_text(text)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True)
    work = Path(tempfile.mkdtemp(prefix="dfsim-freeze-"))
    os.environ.update(COLUMNS="100", NO_COLOR="1", OPENBLAS_NUM_THREADS="1", TERM="dumb")
    os.chdir(work)
    prepare(work)
    (work / "out").mkdir()
    asked = tuple(sys.argv[2:])
    names = [n for n in COMMANDS if n.startswith(asked)] if asked else list(COMMANDS)
    later = [n for n in names if n.startswith(("report", "bad"))]
    with ThreadPoolExecutor(2) as pool:
        for part in ([n for n in names if n not in later], later):
            list(pool.map(lambda name: run(COMMANDS[name], folder, name), part))
    decisions(work, folder)
    if not asked and importlib.util.find_spec("verl"):
        rehearse(folder)
    for path in (work / "out").rglob("*"):
        if path.suffix in (".html", ".json", ".csv", ".sh", ".txt", ".yaml"):
            place = folder / "files" / path.relative_to(work / "out")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        elif path.suffix == ".parquet" and "live-" not in str(path):
            place = folder / "files" / f"{path.relative_to(work / 'out')}.txt"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(hashlib.sha256(path.read_bytes()).hexdigest() + "\n")
    normalise(folder)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
