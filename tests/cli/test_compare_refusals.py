"""What ``dfsim compare`` refuses: one line that names file, column, value and remedy."""

from __future__ import annotations

import polars as pl
import pytest
from runs_made import long_of, runs, written
from said import refused

GOOD = runs({"none": 0, "a": 1}, model="m")


def with_value(column, value, dtype=None):
    values = GOOD[column].to_list()
    values[4] = value
    return GOOD.with_columns(pl.Series(column, values, dtype=dtype, strict=False))


@pytest.mark.parametrize(
    ("frame", "options", "parts"),
    [
        (GOOD.rename({"method": "methd"}), (), ("'method'", "'methd'", "--method COLUMN")),
        (GOOD.rename({"seed": "sed"}), (), ("'seed'", "'sed'", "--seed COLUMN")),
        (GOOD, ("--method", "modle"), ("--method", "'modle'", "did you mean 'model'")),
        (GOOD, ("--where", "modl=m"), ("--where modl=m", "did you mean 'model'")),
        (GOOD, ("--where", "model=n"), ("--where model=n", "holds 'm'")),
        (GOOD, ("--where", "model"), ("--where model is not name=value",)),
        (GOOD, ("--by", "modell"), ("--by", "did you mean 'model'")),
        (GOOD, ("--by", "model,"), ("--by 'model,'", "empty name")),
        (GOOD, ("--by", "seed"), ("--by", "'seed' is already")),
        (GOOD, ("--metrics", "x0,x9"), ("--metrics", "'x9'")),
        (GOOD, ("--metrics", "model"), ("runs.csv:2", "'model' holds 'm'", "no number")),
        (GOOD, ("--domains", "p=x0,xx1"), ("--domains p", "'xx1'", "did you mean 'x1'")),
        (GOOD, ("--domains", "p=x0 q=x0"), ("'x0' is in p and in q",)),
        (GOOD, ("--subset", "p=y"), ("--subset p", "'y'", "x0, x1, x2")),
        (GOOD, ("--baseline", "non"), ("--baseline non", "did you mean 'none'")),
        (GOOD, ("--reference", "untrained"), ("--reference untrained", "a, none")),
        (GOOD, ("--margin", "0"), ("--margin 0", "above 0")),
        (GOOD, ("--margin", "nan"), ("--margin nan",)),
        (GOOD, ("--alpha", "5"), ("--alpha 5", "0.05")),
        (GOOD, ("--power", "80"), ("--power 80", "0.8")),
        (GOOD, ("--resamples", "3"), ("--resamples 3", "100")),
        (GOOD.filter(pl.col("method") == "a"), (), ("one method", "'a'", "--method")),
        (GOOD.head(0), (), ("no row",)),
        (GOOD.select("method"), (), ("one column",)),
        (GOOD.select("method", "seed", "model"), (), ("no numeric column", "--metrics")),
        (with_value("x0", float("inf")), (), ("runs.csv:6", "'x0'", "infinite")),
        (with_value("x0", "oops", pl.String), (), ("runs.csv:6", "'x0' holds 'oops'")),
        (with_value("seed", None), (), ("runs.csv:6", "'seed' is empty", "--reference a")),
        (with_value("method", None), (), ("runs.csv:6", "'method' is empty")),
        (pl.concat([GOOD, GOOD]), (), ("runs.csv:8", "method=none, seed=1", "equal; remove one")),
        (
            pl.concat([GOOD, runs({"none": 5, "a": 5}, model="m")]),
            (),
            ("occurs twice", "differ in scores only"),
        ),
        (
            pl.concat([GOOD, runs({"none": 5, "a": 5}, model="n")]),
            ("--by", "method"),
            ("'method' is already",),
        ),
    ],
)
def test_refusals(tmp_path, frame, options, parts):
    line = refused("compare", written(tmp_path, frame), *options)
    for part in parts:
        assert part in line


def test_a_repeat_names_what_differs(tmp_path):
    both = pl.concat(
        [runs({"none": 0, "a": 1}, model="m", cap=c, steps=s) for c, s in (("x", 1), ("y", 2))]
    )
    line = refused("compare", written(tmp_path, both), "--by", "model")
    for part in ("cell model=m", "method=none, seed=1", "cap: x and y", "steps: 1 and 2"):
        assert part in line
    assert "--by model,cap" in line
    assert "--where cap=y" in line


def test_columns_that_leave_every_method_alone_are_refused(tmp_path):
    frame = GOOD.with_columns(host=pl.Series(["p", "q", "r", "u", "v", "w"]))
    line = refused("compare", written(tmp_path, frame), "--by", "host")
    assert "every cell holds one method, since host separates them" in line


def test_a_benchmark_twice_in_a_run_is_refused(tmp_path):
    long = long_of(GOOD, ["x0", "x1"])
    line = refused("compare", written(tmp_path, pl.concat([long, long.head(1)])))
    assert "benchmark 'x0' occurs twice for method=none, seed=1" in line


def test_two_columns_of_scores_are_refused(tmp_path):
    long = long_of(GOOD, ["x0", "x1"]).with_columns(value=1.0)
    assert "'score' and 'value' could both be" in refused("compare", written(tmp_path, long))


def test_files_that_are_no_table(tmp_path):
    folder, empty, text = tmp_path / "d", tmp_path / "empty.csv", tmp_path / "notes.txt"
    folder.mkdir()
    empty.write_text("")
    text.write_text("hello")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no")
    semicolons = tmp_path / "de.csv"
    semicolons.write_text("method;seed;x\na;1;2\n")
    twice = tmp_path / "twice.csv"
    twice.write_text("method,seed,x,x\na,1,2,3\n")
    for path, part in (
        (folder, "is a folder"),
        (empty, "empty.csv"),
        (text, ".csv"),
        (broken, "Parquet"),
        (semicolons, "one column"),
        (twice, "names column 'x' twice"),
        (tmp_path / "missing.csv", "does not exist"),
    ):
        assert part in refused("compare", path)
