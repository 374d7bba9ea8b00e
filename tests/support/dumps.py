"""Look-alikes of other people's dumps, and a desk that imports them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from dfsim.cli.app import app
from dfsim.traces.errors import DfsimError
from dfsim.traces.importers import format_options
from dfsim.traces.importers.base import ImportOptions, ImportSummary
from dfsim.traces.importers.importing import import_trace
from dfsim.traces.storage.store import Trace, open_trace

FLAT: dict[str, Any] = {"step": 1, "group_uid": "g", "rollout_idx": 0, "reward": 1.0}


def jsonl(path: Path, rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def v0(prompt: Any, score: Any = 0.0, **more: Any) -> dict[str, Any]:
    row = {"input": prompt, "output": "answer", "gts": "42", "score": score, "step": 1}
    return {**row, **more}


def v1(key: str, score: Any = 0.0, **more: Any) -> dict[str, Any]:
    return {**v0(f"question {key.split('_')[0]}", score, uid=key), **more}


def trl(step: int, groups: Any, prompts: Any = None, **scores: Any) -> list[dict[str, Any]]:
    """TRL's rows of a step: a list of rewards a group; further reward functions by keyword."""
    names = prompts or [f"p{step}-{g}" for g in range(len(groups))]
    rows = []
    for number, rewards in enumerate(groups):
        for index, reward in enumerate(rewards):
            row = {"step": step, "prompt": names[number], "completion": f"{step} {index}"}
            others = {name: values[number][index] for name, values in scores.items()}
            rows.append({**row, "exact_reward": reward, **others})
    return rows


def with_advantage(rows: list[dict[str, Any]], groups: Any, eps: float | None = 1e-4) -> Any:
    """Rows with the advantage of TRL: by the Bessel standard deviation, or centred only."""
    flat = []
    for rewards in groups:
        values = np.array(rewards, dtype=float)
        scale = 1.0 if eps is None else values.std(ddof=1) + eps
        flat += ((values - values.mean()) / scale).tolist()
    return [{**row, "advantage": a} for row, a in zip(rows, flat, strict=True)]


def trl_folder(folder: Path, steps: dict[int, Any]) -> Path:
    folder.mkdir()
    for number, rows in steps.items():
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(
            folder / f"completions_{number:05d}.parquet"
        )
    return folder


class Desk:
    """Imports one source after the other, each into a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def file(self, rows: Any, name: str = "1.jsonl") -> Path:
        self.count += 1
        return jsonl(self.folder / f"source-{self.count}" / name, rows)

    def __call__(
        self, source: Any, format: str = "auto", **options: Any
    ) -> tuple[ImportSummary, Trace]:
        source = source if isinstance(source, Path) else self.file(source)
        self.count += 1
        out = self.folder / f"out-{self.count}"
        names = [option.name for option in format_options() if option.name in options]
        chosen = {name: options.pop(name) for name in names}
        options = ImportOptions(**options, format_options=chosen)
        summary = import_trace(source, out, format=format, options=options)
        return summary, open_trace(out)

    def rows(self, source: Any, format: str = "auto", **options: Any) -> pl.DataFrame:
        """All responses, in the order of step, group and index."""
        _, trace = self(source, format, **options)
        frames = [frame for _, frame in trace.frames(trace.columns)]
        return pl.concat(frames, how="diagonal_relaxed")

    def refusal(self, source: Any, format: str = "auto", **options: Any) -> str:
        with pytest.raises(DfsimError) as caught:
            self(source, format, **options)
        assert "\n" not in str(caught.value)
        assert not (self.folder / f"out-{self.count}").exists()
        return str(caught.value)


def said(summary: ImportSummary, *words: str) -> bool:
    return any(all(word in note for word in words) for note in summary.notes)


def refused(*args: Any) -> str:
    """The one line that the command line prints for a mistake."""
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert (result.exit_code, result.stdout) == (2, "")
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    return line
