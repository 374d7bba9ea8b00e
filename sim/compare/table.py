"""Tables of finished runs: CSV, Parquet or JSON lines, one row a run or one row a score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from ...traces.errors import DfsimError
from ...traces.importers.sources import PLACE, SUFFIXES, read_chunks

RUN = "__run"
LONG_NAMES = ("metric", "benchmark", "task", "eval", "evaluation", "dataset", "bench")
LONG_VALUES = ("value", "score", "accuracy", "acc", "result")
_MISSING = ("", "na", "n/a", "nan", "null", "-", "–", "—")
_WHOLE = 10**9


def read_runs(paths: Sequence[Path]) -> pl.DataFrame:
    """Read tables of runs into one; columns that a file lacks are null in its rows.

    Text columns of numbers and missing marks become numbers. Column ``__run`` holds each row's
    ``file:row``.

    Args:
        paths: files that end in .csv, .parquet or .jsonl.

    Raises:
        DfsimError: a path is missing, a folder, of another kind, unreadable, without a row, names a
            column twice, or a column can't be joined over the files.
    """
    if not paths:
        raise DfsimError("no table of runs is named; give one: dfsim compare RUNS.csv")
    frames = [_read(path) for path in paths]
    try:
        return pl.concat(frames, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise DfsimError(
            f"the files can't be joined ({_line(error)}); compare them apart"
        ) from None


def as_runs(frame: pl.DataFrame, origin: str = "row ") -> pl.DataFrame:
    """A frame with ``__run``, and numbers where text holds nothing else.

    Raises:
        DfsimError: it holds no row.
    """
    if not frame.height:
        raise DfsimError(f"{origin.strip(': ')} holds no row; nothing to compare")
    places = frame[PLACE] if PLACE in frame.columns else pl.Series(range(1, frame.height + 1))
    kept = [_numbers(s) for s in frame.drop(PLACE, RUN, strict=False).get_columns()]
    return pl.DataFrame(kept).with_columns(
        pl.Series(RUN, [f"{origin}{place}" for place in places.to_list()])
    )


def _read(path: Path) -> pl.DataFrame:
    if not path.exists():
        raise DfsimError(f"{path} does not exist; name a table of runs")
    if path.is_dir():
        raise DfsimError(f"{path} is a folder; name the table of runs in it")
    if path.suffix.lower() not in SUFFIXES:
        raise DfsimError(f"{path} is no {' or '.join(SUFFIXES)} file; convert it")
    chunks = [chunk.frame for chunk in read_chunks(path, _WHOLE)]
    if not chunks:
        raise DfsimError(f"{path} holds no row; nothing to compare")
    frame = pl.concat(chunks, how="diagonal_relaxed")
    columns = [c for c in frame.columns if c != PLACE]
    if len(columns) == 1:
        raise DfsimError(
            f"{path} has one column, '{columns[0][:60]}'; a table of runs has a method, a seed and "
            "scores, separated by commas"
        )
    for column in columns:
        first = column.partition("_duplicated_")[0]
        if first != column and first in columns:
            raise DfsimError(f"{path} names column '{first}' twice; rename one")
    filled = frame.filter(~pl.all_horizontal(pl.col(columns).is_null()))  # a blank line is no row
    if not filled.height:
        raise DfsimError(f"{path} holds no row; nothing to compare")
    return as_runs(filled, f"{path}:")


def _numbers(series: pl.Series) -> pl.Series:
    """A text column of numbers and missing marks as numbers; any other as it is."""
    if series.dtype != pl.String:
        return series
    text = series.str.strip_chars()
    number = text.cast(pl.Float64, strict=False)
    known = number.is_not_null() | text.is_null() | text.str.to_lowercase().is_in(_MISSING)
    return number if known.all() and number.is_not_null().any() else series


def widen(frame: pl.DataFrame, method: str, seed: str) -> tuple[pl.DataFrame, list[str]]:
    """One row a run from one row a score; a frame that has no such rows comes back as it is.

    A table is long if a text column is called as in ``LONG_NAMES`` and a column of scores as in
    ``LONG_VALUES``. Rows whose benchmark is null count as wide. Of the other columns, numbers that
    vary inside a run (a standard error) and text that follows the benchmark (its domain) are left
    out.

    Args:
        frame: rows as read.
        method: column of the method.
        seed: column of the seed.

    Returns:
        The frame, and sentences about what was recognised.

    Raises:
        DfsimError: two columns could hold the score, the scores are text, or a run has a benchmark
            twice.
    """
    names = [c for c in frame.columns if c.lower() in LONG_NAMES and frame[c].dtype == pl.String]
    values = [c for c in frame.columns if c.lower() in LONG_VALUES]
    names = [c for c in names if frame[c].n_unique() > 1] or names[:1]
    if not names or not values:
        return frame, []
    if len(values) > 1:
        raise DfsimError(
            f"the table is long (column '{names[0]}' names benchmarks), but '{values[0]}' and "
            f"'{values[1]}' could both be the score; drop one"
        )
    name, (value,) = "/".join(names), values
    long = frame.filter(pl.all_horizontal(pl.col(names).is_not_null()))
    wide = frame.filter(~pl.all_horizontal(pl.col(names).is_not_null())).drop(*names, value)
    if not long[value].dtype.is_numeric():
        row = _first_text(long, value)
        raise DfsimError(f"{row[0]}: column '{value}' holds '{row[1]}'; give a number, or nothing")
    bench = pl.concat_str(names, separator="/").alias(name)
    tidy, left_out = _tidy(long.with_columns(bench), [*names, name, value], method, seed)
    key = [c for c in tidy.columns if c not in (name, value, RUN)]
    _refuse_repeats(tidy, [*key, name], method, seed, name)
    taken = next((n for n in tidy[name].unique() if n in (*key, RUN)), None)
    if taken is not None:
        raise DfsimError(f"column '{name}' holds '{taken}', which is a column too; rename either")
    places = tidy.group_by(key, maintain_order=True).agg(pl.col(RUN).first())
    pivoted = tidy.drop(RUN).pivot(on=name, index=key, values=value)
    one_a_run = pivoted.with_columns(places[RUN])
    said = [f"Long form: benchmarks in column '{name}', scores in '{value}'"]
    if left_out:
        said[0] += f"; left out, since not of the run: {', '.join(left_out)}"
    joined = pl.concat([one_a_run, wide], how="diagonal_relaxed") if wide.height else one_a_run
    return joined, [f"{said[0]}."]


def _tidy(
    long: pl.DataFrame, taken: Sequence[str], method: str, seed: str
) -> tuple[pl.DataFrame, list[str]]:
    """Rows without columns that are not of the run, and the names of those."""
    name, value = taken[-2:]
    others = [c for c in long.columns if c not in (*taken, method, seed, RUN)]
    texts = [c for c in others if not long[c].dtype.is_numeric()]
    per_name = long.group_by(name).agg(pl.col(texts).n_unique()) if texts else pl.DataFrame()
    drop = [c for c in texts if long[c].n_unique() > 1 and (per_name[c] == 1).all()]
    key = [method, seed, *(c for c in texts if c not in drop)]
    numbers = [c for c in others if c not in texts]
    if numbers:
        per_run = long.group_by(key).agg(pl.col(numbers).n_unique())
        drop += [c for c in numbers if (per_run[c] > 1).any()]
    keep = [*key, *(c for c in numbers if c not in drop), name, value, RUN]
    return long.select(keep), drop


def _refuse_repeats(
    tidy: pl.DataFrame, key: Sequence[str], method: str, seed: str, name: str
) -> None:
    again = tidy.filter(pl.struct(key).is_duplicated())
    if again.height:
        first = again.row(0, named=True)
        raise DfsimError(
            f"{first[RUN]}: {name} '{first[name]}' occurs twice for {method}={first[method]}, "
            f"{seed}={label(first[seed])}; keep one row, or add a column that tells the runs apart"
        )


def _first_text(frame: pl.DataFrame, column: str) -> tuple[str, str]:
    bad = frame.filter(
        pl.col(column).is_not_null() & pl.col(column).cast(pl.Float64, strict=False).is_null()
    )
    row = bad if bad.height else frame
    return str(row[RUN][0]), str(row[column][0])


def label(value: object) -> str:
    """A value of a column as text: 1.0, as a joined file may hold it, is 1; null is empty."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
