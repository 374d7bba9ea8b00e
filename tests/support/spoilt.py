"""Small valid sources of every kind that dfsim reads, and seeded ways to spoil them."""

from __future__ import annotations

import io
import itertools
import json
import math
from datetime import date, datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
from made import solved_trace

KINDS = ["flat.jsonl", "flat.parquet", "flat.csv", "verl-v1", "verl-v0", "trl", "pass-rate.csv"]


def _words(text: str) -> list[str]:
    return text.split()


JSON = _words(r"""
"text" "" "1" "0.5" "nan" "١" "\ud800" "\u0000" "a\nb" "007" "pad1_0_0" "u_٣_0" "u_0" "2024-01-01"
"u_1_99999999999999999999" [] [1,2] [[1],[0.5]] ["a",1] [null] [1e999] {} {"a":1} {"":[{}]} null
true false 0 -0.0 -1 1.5 0.1 1e-400 1e22 1e308 -1e308 1e999 -1e999 NaN Infinity -Infinity 0x1 tru
1000000000000 9007199254740993 9223372036854775807 9223372036854775808 -9223372036854775809 1,2
""")
JSON += ["1" + "0" * 400, "1" + "0" * 5000, f'"{"x" * 200_000}"', f'"{"9" * 400}"', ""]
JSON += ["[" * 99_999 + "]" * 99_999, "[" * 90 + "]" * 90, '{"a":' * 90 + "1" + "}" * 90]
KEYS = _words("""
__row __i reward score prompt uid response input output is_padding output_idx response_mask acc
mini_batch step group_uid rollout_idx advantage advantages num_tokens old_log_probs domain prompt_id
output_tokens policy_version_min ref_kl weight ref_log_probs one_minus_prob_sq token_weight entropy
""")
CELLS = _words("""
nan inf 1e999 x " "q "" 1e308 -1 a,b true 2020-01-01 é 1_0 0x10 007 7 1.0 0.5 1000000000000 -0 1e3
9223372036854775808 9007199254740993 NA null [1] {"a":1} 99999999999999999999999999999999999999999
""")
CELLS += ["", " 1", "\0", "\r", "x" * 99_999]
VALUES: list[Any] = [[1.0], [], [[1]], ["a"], [None], {"a": 1}, b"\xff1", b"1", date(2020, 1, 1)]
VALUES += [datetime(2020, 1, 1), time(1), timedelta(1), True, None, "1", "x", "٣", 2**63 - 1, -1]
VALUES += [math.nan, -math.inf, 1e308, -1e308, 0.5, 2**53 + 1]
TYPES: list[Any] = [pl.Categorical, pl.Decimal(20, 3), pl.Int128, pl.UInt64, pl.Float32, pl.Int8]
TYPES += [pl.Boolean, pl.Binary, pl.Date, pl.Datetime, pl.Duration, pl.Time, pl.Enum(["0", "1"])]
TYPES += [pl.String, pl.List(pl.Int64), pl.Array(pl.Float64, 1), pl.Null, pl.UInt8]


# Valid sources


def responses(rng: Random, steps: int = 2, groups: int = 3, n: int = 4) -> pl.DataFrame:
    rows = [
        {
            "step": step,
            "group_uid": f"g{step}{group}",
            "rollout_idx": i,
            "reward": rng.choice([0.0, 0.25, 1.0]),
            "num_tokens": rng.randint(1, 9),
            "domain": "b" if group else "a",
            "acc": rng.random(),
            "prompt": f"who is {group}?",
        }
        for step, group, i in itertools.product(range(1, steps + 1), range(groups), range(n))
    ]
    return pl.DataFrame(rows)


def verl(rng: Random, step: int, v1: bool) -> pl.DataFrame:
    names = {"prompt": "input", "domain": "output", "reward": "score", "group_uid": "uid"}
    frame = responses(rng, steps=1).rename(names).drop("num_tokens")
    frame = frame.with_columns(step=pl.lit(step))
    if not v1:
        return frame.drop("uid", "rollout_idx")
    frame = frame.with_columns(uid=pl.format("{}_{}_0", "uid", "rollout_idx"))
    second = frame[-1:].with_columns(pl.col("uid").str.replace("0$", "1"))
    padding = frame[:2].with_columns(uid=pl.format("pad{}_0_0", "rollout_idx"), score=0.0)
    return pl.concat([frame, second, padding]).drop("rollout_idx", "acc")


def build(kind: str, folder: Path, rng: Random) -> list[Path]:
    """Files of a valid source; the source is their folder where there are several."""
    if kind == "trace":
        solved_trace(folder, [[0, 1, 2], [4, 2, 1]], 4)
        return sorted(folder.iterdir())
    folder.mkdir()
    frames = {kind: responses(rng)}
    if kind == "trl":
        names = {"reward": "right_reward", "acc": "form_reward", "domain": "completion"}
        for step in range(1, 4):
            frame = responses(rng, steps=1).drop("group_uid", "rollout_idx", "num_tokens")
            frame = frame.rename(names).with_columns(step=pl.lit(step), advantage=pl.lit(0.5))
            frames[f"completions_{step}.parquet"] = frame
        del frames[kind]
    elif kind.startswith("verl"):
        frames = {f"{step}.jsonl": verl(rng, step, kind == "verl-v1") for step in (1, 2)}
    elif kind == "pass-rate.csv":
        ids = pl.DataFrame({"prompt_id": [f"p{i}" for i in range(6)], "num_correct": range(6)})
        frames[kind] = ids.with_columns(num_samples=pl.lit(5), domain=pl.lit("m"))
    elif kind == "flat.parquet":
        logs = pl.lit(-0.5).repeat_by("num_tokens")
        frames[kind] = frames[kind].with_columns(old_log_probs=logs)
    for name, frame in frames.items():
        write = {"jsonl": frame.write_ndjson, "csv": frame.write_csv}
        write.get(name.rpartition(".")[2], frame.write_parquet)(folder / name)
    return [folder / name for name in frames]


# Mutations


def spoil_bytes(data: bytes, rng: Random) -> bytes:
    spoilt, at = bytearray(data), rng.randrange(len(data))
    span = slice(at, at + rng.choice([1, 9, 200]))
    hostile = [b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"\xef\xbb\xbf", b"\r", b"\xe2\x80\xa8", b"\n"]
    match rng.randrange(6):
        case 0:
            del spoilt[at:]
        case 1:
            for _ in range(rng.choice([1, 1, 3, 20])):
                spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
        case 2:
            spoilt[at:at] = rng.choice([*hostile, b"[" * 50_000])
        case 3:
            del spoilt[span]
        case 4:
            spoilt[at:at] = spoilt[span]
        case 5:
            spoilt[span] = rng.randbytes(len(spoilt[span]))
    return bytes(spoilt)


def joined(lines: list[str], rng: Random, first: int = 0) -> bytes:
    """The lines, of which some may be dropped, doubled, moved or added."""
    at = rng.randrange(first, len(lines))
    match rng.randrange(16):
        case 0:
            del lines[at]
        case 1:
            lines.insert(rng.randrange(first, len(lines)), lines[at])
        case 2:
            lines[first:] = rng.sample(lines[first:], len(lines) - first)
        case 3:
            lines.insert(at, rng.choice(["", "  ", "null", "[]", "7", '"a"', "{}", lines[at][:9]]))
    return "\n".join(lines).encode()


def spoil_json(data: bytes, rng: Random) -> bytes:
    rows = [{k: json.dumps(v) for k, v in json.loads(x).items()} for x in data.splitlines()]
    name, value, end = rng.choice(list(rows[0])), rng.choice(JSON), ""
    key = rng.choice([*KEYS, *KEYS, "", "\ud800", "a\nb", "a\0b", "x" * 9999])
    case = rng.randrange(6)
    if case == 5:
        end = f", {json.dumps(name)}: {value}"
    for row in rows if rng.random() < 0.4 else rng.sample(rows, rng.choice([1, 1, 3])):
        match case:
            case 0 | 1:
                row[name] = value
            case 2:
                row[key] = rng.choice([value, row[name]])
            case 3:
                row[key] = row.pop(name)
            case 4:
                del row[name]
    texts = [", ".join(f"{json.dumps(k)}: {v}" for k, v in row.items()) for row in rows]
    return joined([f"{{{text}{end}}}" for text in texts], rng)


def spoil_csv(data: bytes, rng: Random) -> bytes:
    cells = [line.split(",") for line in data.decode().splitlines()]
    column, case, whole_column = rng.randrange(len(cells[0])), rng.randrange(5), rng.random() < 0.5
    if case == 4:
        cells[0][column] = rng.choice(["", "ü", *KEYS])
    for row in cells[case < 2 :] if whole_column else rng.sample(cells, rng.choice([1, 3])):
        match case:
            case 0 | 1:
                row[column] = rng.choice(CELLS)
            case 2:
                row.insert(column, rng.choice(row))
            case 3:
                del row[column]
    return joined([",".join(row) for row in cells], rng, first=1)


def spoil_parquet(data: bytes, rng: Random) -> bytes:
    frame = pl.read_parquet(io.BytesIO(data))
    name, count = rng.choice(frame.columns), frame.height
    value, dtype = rng.choice(VALUES), rng.choice(TYPES)
    rows = [rng.randrange(count) for _ in range(count)]
    match rng.randrange(6):
        case 0:
            frame = frame.with_columns(pl.Series(name, [value] * count))
        case 1:
            held = [value if i in rows[:3] else v for i, v in enumerate(frame[name].to_list())]
            try:
                frame = frame.with_columns(pl.Series(name, held))
            except (pl.exceptions.PolarsError, TypeError, OverflowError):
                frame = frame.drop(name)
        case 2 | 3:
            try:
                series = frame[rng.choice([name, "step"])].cast(dtype, strict=False)
                frame = frame.with_columns(series.alias(name))
            except pl.exceptions.PolarsError:
                frame = frame.drop(name)
        case 4:
            frame = frame.rename({name: rng.choice(sorted({*KEYS, "", "a\nb"} - {*frame.columns}))})
        case 5:
            frame = frame[rng.choice([sorted(set(rows)), rows[::-1], [*rows, 0], [], rows[:4]])]
    file = io.BytesIO()
    frame.select(rng.sample(frame.columns, len(frame.columns))).write_parquet(file)
    return file.getvalue()


def spoil(data: bytes, suffix: str, rng: Random) -> bytes:
    spoilers = {".jsonl": spoil_json, ".csv": spoil_csv, ".parquet": spoil_parquet}
    by_content = rng.random() < 0.65 and suffix in spoilers
    return (spoilers[suffix] if by_content else spoil_bytes)(data, rng)
