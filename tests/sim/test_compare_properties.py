"""What must not change a comparison, whatever the scores."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs_made import long_of, runs

import dfsim

METRICS = ["x0", "x1", "x2"]
cases = st.tuples(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(2, 4))
few = settings(max_examples=15, deadline=None)


def made(case):
    seed, seeds, methods = case
    names = {"none": 0.0, **{f"m{i}": 0.3 * i for i in range(1, methods)}}
    return runs(names, seeds, rng=np.random.default_rng(seed))


def judged(frame, **options):
    table = dfsim.compare(frame, resamples=100, margin=1.0, **options).table()
    return table.sort("method", "metric", nulls_last=True)


def same(a, b, scale=1.0, columns=("difference", "low", "high", "boot_low", "boot_high")):
    for column in a.columns:
        x, y = a[column], b[column]
        if not x.dtype.is_numeric():
            assert x.to_list() == y.to_list()
            continue
        factor = scale if column in (*columns, "std") else 1.0
        np.testing.assert_allclose(
            y.cast(pl.Float64).to_numpy(), factor * x.cast(pl.Float64).to_numpy(), atol=1e-8
        )


@few
@given(cases, st.integers(0, 100))
def test_what_a_seed_adds_to_all_methods_cancels(case, offset):
    frame = made(case)
    moved = frame.with_columns(
        [pl.col(m) + ((pl.col("seed") * 7919 + offset) % 13) for m in METRICS]
    )
    same(judged(frame), judged(moved))


@few
@given(cases, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_columns_is_nothing(case, random):
    frame = made(case)
    columns = list(frame.columns)
    random.shuffle(columns)
    rows = list(range(frame.height))
    random.shuffle(rows)
    same(judged(frame, metrics=METRICS), judged(frame[rows].select(columns), metrics=METRICS))


@few
@given(cases)
def test_wide_and_long_agree(case):
    frame = made(case)
    same(judged(frame), judged(long_of(frame, METRICS)))


@few
@given(cases, st.sampled_from([0.25, 2.0, 8.0]))
def test_intervals_scale_with_scores(case, factor):
    frame = made(case)
    scaled = frame.with_columns([pl.col(m) * factor for m in METRICS])
    a = dfsim.compare(frame, resamples=100, margin=1.0).table()
    b = dfsim.compare(scaled, resamples=100, margin=factor).table()
    same(a, b, factor)


@few
@given(cases)
def test_the_order_of_files_is_nothing(case):
    frame = made(case)
    half = frame.height // 2
    parts = frame[:half], frame[half:]
    same(judged(pl.concat(parts)), judged(pl.concat(parts[::-1])))


def test_files_with_other_columns_are_joined(tmp_path):
    frame = runs({"none": 0, "a": 1})
    first, second = tmp_path / "one.csv", tmp_path / "two.csv"
    frame.filter(pl.col("method") == "none").write_csv(first)
    frame.filter(pl.col("method") == "a").with_columns(steps=300).write_csv(second)
    forward, back = (
        dfsim.compare(files, resamples=100) for files in ([first, second], [second, first])
    )
    assert forward.cells[0].methods[1].overall == pytest.approx(back.cells[0].methods[1].overall)
    assert "steps" in " ".join(forward.cells[0].cautions)
