"""Spoilt sources: 500 seeded mutations end in one line and exit 2, or in what the file now says."""

from __future__ import annotations

import itertools
import json
import math
import re
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from spoilt import KINDS, build, spoil
from typer.testing import CliRunner

from dfsim.cli.app import app
from dfsim.traces.errors import TraceError
from dfsim.traces.storage.store import open_trace

FEW, SEEDS = 60, 500
Rows = list[dict[str, Any]]


# What a spoilt file says, read plainly


def rows_of(path: Path) -> Rows:
    if path.suffix == ".jsonl":
        lines = re.split("\r\n|\r|\n", path.read_bytes().decode("utf-8-sig"))
        return [dict(json.loads(line)) for line in lines if line.strip()]
    if path.suffix == ".csv":
        return pl.read_csv(path, infer_schema=False).to_dicts()
    return pl.read_parquet(path, glob=False).to_dicts()


def whole(value: Any) -> int:
    exact = isinstance(value, int) or re.fullmatch(r"-?\d+", str(value))
    number = int(value) if exact else int(float(value))
    assert float(value) == float(number)
    assert abs(number) <= 2**63
    return number


def finite(value: Any) -> float:
    assert math.isfinite(float(value))
    return float(value)


def name_of(value: Any) -> str:
    assert value is not None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(int(value) if math.isfinite(value) and value == int(value) else value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def told(path: Path, importer: str) -> dict[Any, dict[Any, float]]:
    """(step, group) → response → reward; an exception where the file says nothing such."""
    found: dict[Any, dict[Any, float]] = {}
    for number, row in enumerate(rows_of(path)):
        response, uid = number, row.get("group_uid")
        if importer == "pass-rate":
            solved, samples = whole(row["num_correct"]), whole(row["num_samples"])
            assert 0 <= solved <= samples > 0
            rewards = [float(i < solved) for i in range(samples)]
            found.setdefault((0, name_of(row["prompt_id"])), {}).update(enumerate(rewards))
            continue
        if importer == "verl-v0":
            uid = f"{path.stem}-{number // 4}"
        elif importer == "verl":
            uid, response, _ = row["uid"].rsplit("_", 2)
        elif row.get("output_idx") is not None:
            response = name_of(row["rollout_idx"])
        padding = row.get("is_padding") if importer != "verl" else uid.startswith("pad")
        if not whole(padding or 0):
            reward = row["reward" if importer == "flat" else "score"]
            key = whole(row.get("step", path.stem)), name_of(uid)
            found.setdefault(key, {})[response] = finite(reward)
    return found


def told_by_trl(files: list[Path]) -> list[Counter[Any]]:
    """(step, reward) of each file's rows; the functions that most files have add, where given."""
    schemas = {path: pl.read_parquet_schema(path) for path in files}
    numbers = [
        [n for n, t in s.items() if t.is_numeric() and n not in ("step", "advantage")]
        for s in schemas.values()
    ]
    names = Counter(
        tuple(sorted([n for n in own if "reward" in n.lower()] or own)) for own in numbers
    ).most_common(1)[0][0]
    said = []
    for path in files:
        sums: Counter[Any] = Counter()
        for row in rows_of(path) if set(names) <= set(schemas[path]) else []:
            given = [float(row[n]) for n in names if row[n] is not None]
            sums[whole(row["step"]), f"{sum(x for x in given if not math.isnan(x)):.9g}"] += 1
        said.append(sums)
    return said


def check_content(out: Path, files: list[Path]) -> None:
    trace = open_trace(out)
    importer = re.findall(r"\((.*)\)", trace.manifest.source)[-1]
    got: dict[Any, list[float]] = {}
    for _, frame in trace.frames(()):
        for step, uid, reward in frame.select("step", "group_uid", "reward").rows():
            got.setdefault((step, uid), []).append(reward)
    if importer == "trl":  # files that repeat, or were overwritten, are left out
        said = told_by_trl(files)
        flat = Counter((step, f"{r:.9g}") for (step, _), rewards in got.items() for r in rewards)
        subsets = [c for k in range(4) for c in itertools.combinations(said, k)]
        assert flat in [sum(subset, Counter()) for subset in subsets]
        return
    wanted: dict[Any, list[float]] = {}
    for path in files:
        for key, group in told(path, importer).items():
            wanted.setdefault(key, []).extend(group.values())
    shapes = [
        Counter((step, *sorted(f"{r:.12g}" for r in v)) for (step, _), v in groups.items())
        for groups in (got, wanted)
    ]
    assert shapes[0] == shapes[1]


# The command line over them


def run(name: str, *args: str) -> int:
    """The command's exit code, after a look at what it said."""
    try:
        result = CliRunner().invoke(app, [*args, "-q"])
    except BaseException as error:
        raise AssertionError(f"{args[0]}: {type(error).__name__}: {error}") from error
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError("".join(traceback.format_exception(result.exception)[-6:]))
    assert result.exit_code in (0, 2), result.stderr
    if result.exit_code == 2:
        assert len(result.stderr.splitlines()) == 1, result.stderr
        assert name in result.stderr, result.stderr
        assert "Traceback" not in result.stderr
    return result.exit_code


def replayed(trace: Path) -> list[int]:
    given = [str(trace), "-s", "maxvar", "--resamples", "3"]
    return [run(trace.name, "inspect", str(trace)), run(trace.name, "replay", *given)]


def mutate(kind: str, seed: int, folder: Path) -> int:
    """One mutation of one source, imported and replayed; returns the exit code."""
    rng = Random(f"{kind}-{seed}")
    source, out = folder / "source", folder / "made" / "trace"
    out.parent.mkdir()
    files = build(kind, source, rng)
    path = rng.choice(files)
    before = path.read_bytes()
    path.write_bytes(spoil(before, path.suffix, rng))
    if kind == "trace":
        changed = path.read_bytes() != before
        if changed:
            with pytest.raises(TraceError, match=re.escape(str(path))):
                list((trace := open_trace(source)).batches(trace.columns))
        codes = replayed(source)
        assert codes == [2 * changed] * 2
        return codes[0]
    given = [str(source if len(files) > 1 else path), "--out", str(out)]
    if kind == "verl-v0":
        given += ["--group-size", "4"]
    code = run("source" if len(files) > 1 else path.name, "import", *given)
    assert [p.name for p in out.parent.iterdir()] == ([] if code else ["trace"])
    if code == 0:
        check_content(out, files)
        replayed(out)
    return code


@pytest.mark.parametrize("kind", [*KINDS, "trace"])
@pytest.mark.parametrize("seeds", [FEW, pytest.param(SEEDS, marks=pytest.mark.evidence)])
def test_a_spoilt_source_is_refused_in_a_line_or_imported_as_it_is(kind, seeds, tmp_path):
    failed: list[str] = []
    codes: Counter[int] = Counter()
    for seed in range(math.ceil(seeds / (len(KINDS) + 1))):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            codes[mutate(kind, seed, folder)] += 1
        except Exception as error:
            failed.append(f"{kind}, seed {seed}: {type(error).__name__}: {error}")
    assert not failed, "\n".join(failed)
    assert seeds == FEW or kind == "trace" or set(codes) == {0, 2}
    print(
        f"{kind}: {codes[0]} of {sum(codes.values())} spoilt sources are read, {codes[2]} refused"
    )
