"""What each column of a table of runs is: method, seed, score, cell, setting."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ...traces.errors import DfsimError, nearest
from ...traces.spelling import option
from .score_columns import check_scales, is_counter, score_columns
from .table import RUN, label

METHODS = ("method", "strategy", "algorithm", "algo", "config")
SEEDS = ("seed", "random_seed", "run_seed")
_WRITTEN = re.compile(r"[-+]?\d[\d.,]*\s*(%|±.*|\(.*\)|\+/-.*)?")
"""A number as people write it."""


@dataclass(frozen=True)
class Roles:
    """What each column is.

    Attributes:
        method: column of the method.
        seed: column of the seed.
        metrics: columns of scores.
        by: columns whose values separate cells.
        settings: other columns that describe a run, to see whether runs of a cell differ in them.
        notes: sentences about what was taken by itself.
    """

    method: str
    seed: str
    metrics: tuple[str, ...]
    by: tuple[str, ...]
    settings: tuple[str, ...]
    notes: tuple[str, ...]


def need(frame: pl.DataFrame, column: str, flag: str) -> str:
    """A column's name.

    Raises:
        DfsimError: the table has no such column (nearest given).
    """
    have = [c for c in frame.columns if c != RUN]
    if column not in have:
        shown = ", ".join(have[:20]) + (" …" if len(have) > 20 else "")
        hint = nearest(column, have) or f"; it has: {shown}"
        raise DfsimError(f"{flag}: the table has no column '{column}'{hint}")
    return column


def key_columns(frame: pl.DataFrame, method: str | None, seed: str | None) -> tuple[str, str]:
    """The columns of method and seed, as named or as usually called.

    Raises:
        DfsimError: there is none (nearest given).
    """
    found = []
    for flag, named, usual in (("method", method, METHODS), ("seed", seed, SEEDS)):
        if named is not None:
            found.append(need(frame, named, option(flag, named)))
            continue
        lower = {c.lower(): c for c in reversed(frame.columns)}
        column = next((lower[n] for n in usual if n in lower), None)
        if column is None:
            have = [c for c in frame.columns if c != RUN]
            shown = ", ".join(have[:20]) + (" …" if len(have) > 20 else "")
            raise DfsimError(
                f"the table has no column '{usual[0]}'{nearest(usual[0], have)}; name the one that "
                f"holds it: {option(flag, 'COLUMN')}; it has: {shown}"
            )
        found.append(column)
    if found[0] == found[1]:
        raise DfsimError(
            f"{option('method')} and {option('seed')} are both '{found[0]}'; name two columns"
        )
    return found[0], found[1]


def where(frame: pl.DataFrame, wanted: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Rows whose columns hold one of the values, compared as text.

    Raises:
        DfsimError: no such column or value (nearest given), or no row is left.
    """
    for column, values in wanted.items():
        need(frame, column, option("where", ",".join(values), key=column))
        texts = pl.Series([label(v) for v in frame[column].to_list()], dtype=pl.String)
        have = sorted(set(texts.to_list()))
        for value in values:
            if value not in have:
                some = ", ".join(f"'{v}'" for v in have[:8]) + (" …" if len(have) > 8 else "")
                close = nearest(value, have)
                raise DfsimError(
                    f"{option('where', value, key=column)}: no row left holds that{close}; column "
                    f"'{column}' holds {some}"
                )
        frame = frame.filter(texts.is_in(list(values)))
    return frame


def roles_of(
    frame: pl.DataFrame,
    method: str,
    seed: str,
    metrics: Sequence[str] | None,
    by: Sequence[str] | None,
) -> Roles:
    """Say what each column is; what isn't named is found by name, kind and values.

    Args:
        frame: one row a run, filtered.
        method: column of the method.
        seed: column of the seed.
        metrics: columns of scores; default: every numeric one that is no setting.
        by: columns that separate cells; default: text and truth columns, except those that are
            constant, name each row, or would leave every method alone in its cell.

    Raises:
        DfsimError: an unknown column, one in two roles, no column of scores, or a text among them.
    """
    notes: list[str] = []
    for flag, named in (("by", by), ("metrics", metrics)):
        for column in named or ():
            need(frame, column, option(flag))
            if column in (method, seed) or (flag == "metrics" and column in (by or ())):
                raise DfsimError(
                    f"{option(flag)}: '{column}' is already the column of something else"
                )
    cells = tuple(by) if by is not None else _cell_columns(frame, method, seed, metrics, notes)
    scores = (
        tuple(dict.fromkeys(metrics))
        if metrics is not None
        else score_columns(frame, (method, seed, *cells), cells, notes)
    )
    for column in scores:
        _check_scores(frame, column)
    if metrics is not None:
        check_scales(frame, scores)
    taken = {method, seed, RUN, *cells, *scores}
    settings = tuple(c for c in frame.columns if c not in taken and _describes(frame, c))
    return Roles(method, seed, scores, cells, settings, tuple(notes))


def _is_text(frame: pl.DataFrame, column: str) -> bool:
    return not frame[column].dtype.is_numeric() and not frame[column].dtype.is_nested()


def _names_rows(frame: pl.DataFrame, column: str) -> bool:
    return bool(frame[column].n_unique() == frame.height)


def _describes(frame: pl.DataFrame, column: str) -> bool:
    if _is_text(frame, column):
        return not _names_rows(frame, column)
    return frame[column].dtype.is_numeric() and is_counter(column)


def _cell_columns(
    frame: pl.DataFrame,
    method: str,
    seed: str,
    metrics: Sequence[str] | None,
    notes: list[str],
) -> tuple[str, ...]:
    taken = {method, seed, RUN, *(metrics or ())}
    found = []
    for column in frame.columns:
        if column in taken or not _is_text(frame, column) or frame[column].n_unique() == 1:
            continue
        _refuse_spoilt(frame, column)
        if _names_rows(frame, column):
            notes.append(f"Column '{column}' names each row, so it separates nothing.")
            continue
        if frame.group_by(column).agg(pl.col(method).n_unique())[method].max() == 1:
            notes.append(f"Column '{column}' goes with the method, so it separates no cells.")
            continue
        found.append(column)
    if found:
        notes.append(f"Cells are separated by {', '.join(found)}; {option('by')} overrides.")
    return tuple(found)


def _refuse_spoilt(frame: pl.DataFrame, column: str) -> None:
    """Refuse text among numbers: a score that can't be read must not become a cell's name."""
    series = frame[column]
    if series.dtype != pl.String:
        return
    number = series.str.strip_chars().cast(pl.Float64, strict=False)
    if 2 * number.is_not_null().sum() < series.is_not_null().sum():
        _refuse_written(frame, column)
        return
    row = int((number.is_null() & series.is_not_null()).arg_max() or 0)
    raise DfsimError(
        f"{frame[RUN][row]}: column '{column}' holds '{series[row]}' among numbers; give a number "
        f"or nothing, or name the columns that separate cells: {option('by', column)}"
    )


def _refuse_written(frame: pl.DataFrame, column: str) -> None:
    """Refuse scores such as ``60.1%``, ``60 ± 1`` or ``1,234.5``: text that hardly repeats."""
    texts = [str(v).strip() for v in frame[column].drop_nulls().to_list()]
    if 2 * len(set(texts)) <= len(texts) or not all(_WRITTEN.fullmatch(t) for t in texts):
        return
    raise DfsimError(
        f"{frame[RUN][0]}: column '{column}' holds '{texts[0]}', which is no plain number; write "
        f"it as 60.1, or name the columns that separate cells: {option('by', column)}"
    )


def _check_scores(frame: pl.DataFrame, column: str) -> None:
    """Refuse what is no score.

    Raises:
        DfsimError: the column is text, or a value is infinite.
    """
    series = frame[column]
    if series.dtype.is_nested():
        raise DfsimError(
            f"{option('metrics')}: column '{column}' holds lists; give one number a row"
        )
    if not series.dtype.is_numeric() and series.dtype != pl.Boolean:
        number = series.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
        row = int((number.is_null() & series.is_not_null()).arg_max() or 0)
        raise DfsimError(
            f"{frame[RUN][row]}: column '{column}' holds '{series[row]}', which is no number; give "
            f"one, leave it empty, or leave the column out with {option('metrics')}"
        )
    for row, value in enumerate(series.to_list()):
        if isinstance(value, float) and math.isinf(value):
            raise DfsimError(
                f"{frame[RUN][row]}: column '{column}' is infinite; give a number, or nothing"
            )
