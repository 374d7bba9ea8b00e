"""Spoilt sources: 500 seeded mutations end in one line and exit 2, or in what the file now says."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from made import solved_trace
from typer.testing import CliRunner

from dfsim.cli import app
from dfsim.traces.errors import TraceError
from dfsim.traces.store import open_trace

SEEDS = 500
Rows = list[dict[str, Any]]

JSON_VALUES = [
    *('"text"', '""', '"1"', '"0.5"', '"nan"', '"١"', '"\\ud800"', '"\\u0000"', '"a\\nb"', '"007"'),
    *("[]", "[1,2]", "[[1],[0.5]]", '["a",1]', "[null]", "[1e999]", "{}", '{"a":1}', '{"":[{}]}'),
    *("null", "true", "false", "0", "-0.0", "-1", "1.5", "0.1", "1e-400", "1e22", "1e308", "-1e308"),
    *("1e999", "-1e999", "NaN", "Infinity", "-Infinity", "9007199254740993", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775809", "18446744073709551616", "1000000000000"),
    *("1" + "0" * 400, "1" + "0" * 5000, '"' + "x" * 200_000 + '"', '"' + "9" * 400 + '"'),
    *("[" * 99_999 + "]" * 99_999, "[" * 90 + "]" * 90, '{"a":' * 90 + "1" + "}" * 90, "tru", ""),
    *('"pad1_0_0"', '"u_٣_0"', '"u_1_99999999999999999999"', '"u_0"', '"2024-01-01"', "1,2", "0x1"),
]
JSON_KEYS = [
    *("", "\ud800", "a\nb", "a\0b", "__row", "__i", "x" * 9999, "reward", "score", "prompt", "uid"),
    *("response", "input", "output", "is_padding", "output_idx", "response_mask", "mini_batch"),
    *("step", "group_uid", "rollout_idx", "advantage", "advantages", "num_tokens", "old_log_probs"),
    *("domain", "prompt_id", "output_tokens", "policy_version_min", "ref_kl", "weight", "acc"),
    *("ref_log_probs", "one_minus_prob_sq", "token_weight", "finish_reason", "entropy"),
]
CELLS = [
    *("", "nan", "inf", "1e999", "x", '"', '"q', '""', "1e308", "9" * 40, "-1", "a,b", "\0", "true"),
    *("2020-01-01", "é", "1_0", "0x10", " 1", "007", "7", "1.0", "0.5", "1000000000000", "\r", "-0"),
    *("9223372036854775808", "9007199254740993", "1e3", "NA", "null", "[1]", '{"a":1}', "x" * 99_999),
]
DTYPES: list[Callable[[int], Any]] = [
    *(lambda i: [float(i)], lambda i: [], lambda i: {"a": i}, lambda i: b"\xff1", lambda i: b"1"),
    *(lambda i: date(2020, 1, 1 + i % 9), lambda i: datetime(2020, 1, 1), lambda i: time(1)),
    *(lambda i: timedelta(i), lambda i: i % 2 == 0, lambda i: None, lambda i: f"{i}", lambda i: "x"),
    *(lambda i: 2**63 - 1 - i, lambda i: -i, lambda i: math.nan, lambda i: -math.inf),
    *(lambda i: [[i]], lambda i: ["a"], lambda i: 1e308 * (-1) ** i, lambda i: [None], lambda i: "٣"),
]
CASTS = [
    *(pl.Categorical, pl.Decimal(20, 3), pl.Int128, pl.UInt64, pl.Float32, pl.Int8, pl.String),
    *(pl.Boolean, pl.Binary, pl.Date, pl.Datetime("ns"), pl.Duration, pl.Time, pl.Enum(["0", "1"])),
    *(pl.List(pl.Int64), pl.Array(pl.Float64, 1), pl.Null, pl.UInt8),
]


# Valid sources


def responses(rng: Random, steps: int = 2, groups: int = 3, n: int = 4) -> Rows:
    return [
        {
            "step": step,
            "group_uid": f"g{step}{group}",
            "rollout_idx": i,
            "reward": rng.choice([0.0, 0.25, 1.0]),
            "num_tokens": rng.randint(1, 9),
            "domain": "math" if group else "code",
            "acc": rng.random(),
            "prompt": f"what is {group}?",
        }
        for step in range(1, steps + 1)
        for group in range(groups)
        for i in range(n)
    ]


def verl(rng: Random, step: int, v1: bool) -> Rows:
    rows: Rows = []
    for row in responses(rng, steps=1):
        text = {"input": row["prompt"], "output": "so", "gts": "1", "score": row["reward"]}
        key = {"uid": f"u{row['group_uid']}_{row['rollout_idx']}_0"} if v1 else {"acc": row["acc"]}
        rows.append({**text, "step": step, **key})
    if v1:
        rows.append({**rows[-1], "uid": rows[-1]["uid"][:-1] + "1"})
        rows += [{**rows[0], "uid": f"pad{i}_{i}_0", "score": 0.0} for i in range(2)]
    return rows


def jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def table(rows: Rows) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def parquet(frame: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


def build(kind: str, folder: Path, rng: Random) -> list[Path]:
    """Files of a valid source; the source is their folder where there are several."""
    files: dict[str, bytes] = {}
    if kind == "trace":
        solved_trace(folder, [[0, 1, 2], [4, 2, 1]], 4)
        return sorted(folder.iterdir())
    folder.mkdir()
    if kind == "trl":
        for step in range(1, 4):
            frame = pl.DataFrame(responses(rng, steps=1)).drop("group_uid", "rollout_idx", "domain")
            names = {"reward": "right_reward", "acc": "form_reward", "num_tokens": "advantage"}
            frame = frame.rename(names).with_columns(step=pl.lit(step), completion=pl.lit("so"))
            files[f"completions_{step:05d}.parquet"] = parquet(frame)
    elif kind.startswith("verl"):
        files = {f"{step}.jsonl": jsonl(verl(rng, step, kind == "verl-v1")) for step in (1, 2)}
    elif kind == "pass-rate.csv":
        rows = [{"prompt_id": f"p{i}", "domain": "m", "num_correct": i % 5} for i in range(6)]
        files[kind] = table([{**row, "num_samples": 4} for row in rows])
    elif kind == "flat.parquet":
        logs = [[-rng.random()] * row["num_tokens"] for row in (rows := responses(rng))]
        files[kind] = parquet(pl.DataFrame(rows).with_columns(old_log_probs=pl.Series(logs)))
    else:
        files[kind] = (table if kind == "flat.csv" else jsonl)(responses(rng))
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files]


# Mutations


def spoil_bytes(data: bytes, rng: Random) -> bytes:
    spoilt, at = bytearray(data), rng.randrange(len(data))
    span = slice(at, at + rng.choice([1, 9, 200]))
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            for _ in range(rng.choice([1, 1, 3, 20])):
                spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
        case 2:
            hostile = [b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"\xef\xbb\xbf", b"\r", b"\xe2\x80\xa8"]
            spoilt[at:at] = rng.choice([*hostile, b"\n\n", b"[" * 50_000])
        case 3:
            del spoilt[span]
        case 4:
            spoilt[at:at] = spoilt[span]
        case 5:
            spoilt[span] = rng.randbytes(len(spoilt[span]))
    return bytes(spoilt)


def spoil_lines(lines: list[str], rng: Random, first: int = 0) -> None:
    at = rng.randrange(first, len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(rng.randrange(first, len(lines)), lines[at])
        case 2:
            lines[first:] = rng.sample(lines[first:], len(lines) - first)
        case 3:
            lines.insert(at, rng.choice(["", "  ", "null", "[]", "7", '"a"', "{}", lines[at][:9]]))


def spoil_json(data: bytes, rng: Random) -> bytes:
    rows = [{k: json.dumps(v) for k, v in json.loads(x).items()} for x in data.splitlines()]
    chosen = rows if rng.random() < 0.4 else rng.sample(rows, rng.choice([1, 1, 3]))
    name, value, end = rng.choice(list(rows[0])), rng.choice(JSON_VALUES), ""
    match rng.randrange(6):
        case 0 | 1:
            for row in chosen:
                row[name] = value
        case 2:
            for row in chosen:
                row[rng.choice(JSON_KEYS)] = rng.choice([value, row[name]])
        case 3:
            key = rng.choice(JSON_KEYS)
            for row in chosen:
                row[key] = row.pop(name) if rng.random() < 0.9 else value
        case 4:
            for row in chosen:
                del row[name]
        case 5:
            end = f", {json.dumps(name)}: {value}"
    lines = [
        "{" + ", ".join(f"{json.dumps(k)}: {v}" for k, v in row.items()) + end + "}" for row in rows
    ]
    if rng.random() < 0.2:
        spoil_lines(lines, rng)
    return "\n".join(lines).encode()


def spoil_csv(data: bytes, rng: Random) -> bytes:
    lines = data.decode().splitlines()
    cells = [line.split(",") for line in lines]
    column, wide = rng.randrange(len(cells[0])), rng.random() < 0.3
    match rng.randrange(5):
        case 0 | 1:
            for row in cells[1:] if wide else rng.sample(cells, rng.choice([1, 3])):
                row[column] = rng.choice(CELLS)
        case 2:
            for row in cells if wide else rng.sample(cells, 2):
                row.insert(rng.randrange(len(row)) if not wide else column, rng.choice(row))
        case 3:
            for row in cells if wide else rng.sample(cells, 2):
                del row[column]
        case 4:
            cells[0][column] = rng.choice(["", "__row", "reward", "acc", "step", "is_padding", "ü"])
    lines = [rng.choice([",", ","]).join(row) for row in cells]
    if rng.random() < 0.3:
        spoil_lines(lines, rng, first=1)
    return "\n".join(lines).encode()


def spoil_frame(data: bytes, rng: Random) -> bytes:
    frame = pl.read_parquet(io.BytesIO(data))
    name, count = rng.choice(frame.columns), frame.height
    match rng.randrange(6):
        case 0 | 1:
            made = rng.choice(DTYPES)
            frame = frame.with_columns(pl.Series(name, [made(i) for i in range(count)]))
        case 2 | 3:
            try:
                dtype = rng.choice(CASTS)
                number = dtype in (pl.Date, pl.Datetime, pl.Duration, pl.Time, pl.Boolean)
                series = frame[name] if not number else frame["step"]
                frame = frame.with_columns(series.cast(dtype, strict=False).alias(name))
            except pl.exceptions.PolarsError:
                frame = frame.drop(name)
        case 4:
            keys = [k for k in JSON_KEYS if "\ud800" not in k and k not in frame.columns]
            frame = frame.rename({name: rng.choice(keys)})
        case 5:
            rows = [rng.randrange(count) for _ in range(count)]
            rows = rng.choice([sorted(set(rows)), rng.sample(range(count), count), [*rows, 0], []])
            frame = frame[rows]
    return parquet(frame.select(rng.sample(frame.columns, len(frame.columns))))
