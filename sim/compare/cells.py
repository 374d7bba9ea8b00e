"""Cells: runs that may be compared with each other, as arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ...traces.errors import DfsimError
from ...traces.ragged import Float
from ...traces.spelling import option
from ..stats.intervals import mean_of
from .columns import Roles
from .table import RUN, label

Row = Mapping[str, object]
SHOWN = 4
_SUMMARIES = frozenset(("mean", "avg", "average", "median", "std", "stderr", "sem", "all", "total"))


@dataclass(frozen=True)
class Cell:
    """Runs of several methods over the same seeds, with their scores.

    Attributes:
        name: column → value of what separates the cell.
        methods: K methods, sorted.
        seeds: S seeds of any of them, sorted.
        metrics: M metrics that some run of the cell has.
        score_SKM: scores; NaN where a run, or its score, is missing.
        ran_SK: whether the run is in the table.
        reference_M: mean score of the reference, or ``None``.
        cautions: sentences about its runs.
    """

    name: Mapping[str, str]
    methods: tuple[str, ...]
    seeds: tuple[str, ...]
    metrics: tuple[str, ...]
    score_SKM: Float
    ran_SK: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    reference_M: Float | None
    cautions: tuple[str, ...]


def cells_of(frame: pl.DataFrame, roles: Roles, reference: str | None) -> list[Cell]:
    """Split runs into cells, in the order of their names.

    Args:
        frame: one row a run.
        roles: what each column is.
        reference: a method that is shown and never tested; where a cell has none, its rows count
            that agree with the cell wherever they say anything.

    Raises:
        DfsimError: a run without method or seed, or a method × seed twice in a cell.
    """
    rows = frame.rows(named=True)
    for row in rows:
        if row[roles.method] is None:
            raise DfsimError(f"{row[RUN]}: column '{roles.method}' is empty; name the method")
    shown = [r for r in rows if label(r[roles.method]) == reference]
    tested = [r for r in rows if label(r[roles.method]) != reference]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in tested:
        groups.setdefault(tuple(label(row[c]) for c in roles.by), []).append(row)
    return [
        _cell(dict(zip(roles.by, key, strict=True)), groups[key], shown, roles)
        for key in sorted(groups, key=lambda k: tuple(_natural(v) for v in k))
    ]


def _cell(name: dict[str, str], rows: list[Row], shown: Sequence[Row], roles: Roles) -> Cell:
    found = _runs(name, rows, roles)
    methods = tuple(sorted({m for m, _ in found}, key=_natural))
    seeds = tuple(sorted({s for _, s in found}, key=_natural))
    score_SKM = np.full((len(seeds), len(methods), len(roles.metrics)), np.nan)
    ran_SK = np.zeros((len(seeds), len(methods)), dtype=np.bool_)
    for (method, seed), row in found.items():
        at = seeds.index(seed), methods.index(method)
        score_SKM[at] = _scores(row, roles)
        ran_SK[at] = True
    has_M = np.isfinite(score_SKM).any(axis=(0, 1))
    metrics = tuple(m for m, has in zip(roles.metrics, has_M, strict=True) if has)
    reference_M = _reference(name, shown, roles)
    gone = [m for m in roles.metrics if m not in metrics]
    cautions = [
        *([f"No run here has {capped(gone)}, so the overall is over the rest."] if gone else []),
        *_missing(score_SKM[..., has_M], ran_SK, methods, seeds, metrics),
        *_differing(rows, roles),
    ]
    return Cell(
        name=name,
        methods=methods,
        seeds=seeds,
        metrics=metrics,
        score_SKM=score_SKM[..., has_M],
        ran_SK=ran_SK,
        reference_M=None if reference_M is None else reference_M[has_M],
        cautions=tuple(cautions),
    )


def title(name: Mapping[str, str]) -> str:
    """A cell in words."""
    return ", ".join(f"{k}={v or '(empty)'}" for k, v in name.items()) or "all runs"


def capped(items: Sequence[str]) -> str:
    """The first few of a list, and how many more."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more


def _natural(text: str) -> tuple[int, float, str]:
    try:
        number = float(text)
    except ValueError:
        return (1, 0.0, text)
    return (0, number, text) if math.isfinite(number) else (1, 0.0, text)


def _scores(row: Row, roles: Roles) -> list[float]:
    values = (row[m] for m in roles.metrics)
    return [math.nan if v is None else float(v) for v in values]  # type: ignore[arg-type]


def _runs(name: Mapping[str, str], rows: list[Row], roles: Roles) -> dict[tuple[str, str], Row]:
    """(method, seed) → row."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = label(row[roles.method]), label(row[roles.seed])
        if not key[1]:
            raise DfsimError(
                f"{row[RUN]}: column '{roles.seed}' is empty for {roles.method}={key[0]}; give a "
                f"seed, or show the method untested: {option('reference', key[0])}"
            )
        if key[1].strip().lower() in _SUMMARIES:
            raise DfsimError(
                f"{row[RUN]}: {roles.seed}={key[1]} is no run but sums up others; remove the row"
            )
        if key in found:
            _refuse_repeat(name, found[key], row, roles)
        found[key] = row
    return found


def _refuse_repeat(name: Mapping[str, str], first: Row, second: Row, roles: Roles) -> None:
    known = {roles.method, roles.seed, RUN, *roles.metrics}
    apart = [c for c in first if c not in known and first[c] != second[c]]
    named = [c for c in apart if c in roles.settings or not isinstance(first[c], float)]
    if named:
        values = "; ".join(f"{c}: {label(first[c])} and {label(second[c])}" for c in named[:4])
        pick = next((c for c in named if c in roles.settings), named[0])
        by = ",".join([*roles.by, pick])
        remedy = (
            f"they differ in {values}; add what separates them, {option('by', by)}, or pick with "
        )
        remedy += option("where", label(second[pick]), key=pick)
    elif all(first[m] == second[m] for m in roles.metrics):
        remedy = "the rows are equal; remove one"
    else:
        remedy = "they differ in scores only; remove one, or add a column that tells them apart"
    raise DfsimError(
        f"{second[RUN]}: {roles.method}={label(second[roles.method])}, "
        f"{roles.seed}={label(second[roles.seed])} occurs twice in the cell {title(name)} (first "
        f"{first[RUN]}); {remedy}"
    )


def _reference(name: Mapping[str, str], shown: Sequence[Row], roles: Roles) -> Float | None:
    own = [r for r in shown if all(label(r[c]) == v for c, v in name.items())]
    if not own:
        own = [r for r in shown if all(label(r[c]) in ("", v) for c, v in name.items())]
    if not own:
        return None
    score_RM = np.array([_scores(r, roles) for r in own])
    return mean_of(score_RM)


def _missing(
    score_SKM: Float,
    ran_SK: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    methods: tuple[str, ...],
    seeds: tuple[str, ...],
    metrics: tuple[str, ...],
) -> list[str]:
    """A sentence on scores that runs of the cell lack."""
    gone = [
        f"{metrics[m]} of {methods[k]} seed {seeds[s]}"
        for s, k, m in np.argwhere(np.isnan(score_SKM) & ran_SK[:, :, None])
    ]
    if not gone:
        return []
    count = f"{len(gone)} score is" if len(gone) == 1 else f"{len(gone)} scores are"
    return [
        f"{count} missing, so the pair is dropped for that metric, and the run for the overall: "
        f"{capped(gone)}."
    ]


def _differing(rows: list[Row], roles: Roles) -> list[str]:
    """Sentences on settings that vary inside the cell."""
    said = []
    for column in roles.settings:
        runs: dict[str, list[str]] = {}
        for row in rows:
            run = f"{label(row[roles.method])} seed {label(row[roles.seed])}"
            runs.setdefault(label(row[column]), []).append(run)
        if len(runs) == 1:
            continue
        ordered = sorted(runs, key=lambda v: (-len(runs[v]), _natural(v)))
        parts = [f"'{ordered[0]}' in {len(runs[ordered[0]])} runs"]
        parts += [f"'{v}' in {capped(sorted(runs[v]))}" for v in ordered[1:SHOWN]]
        more = f"; {len(ordered) - SHOWN} more values" if len(ordered) > SHOWN else ""
        said.append(
            f"Runs differ in more than the method: {column} is {'; '.join(parts)}{more}. A "
            f"difference may be its; {option('by', ','.join([*roles.by, column]))} separates them."
        )
    return said
