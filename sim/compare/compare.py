"""``compare``: finished training runs, judged by paired seeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...traces.errors import DfsimError, nearest
from ...traces.spelling import option
from ...traces.storage.files import sha256_of
from ..stats.bootstrap import STUDENTIZED_FROM
from ..types import Progress
from .cells import Cell, capped, cells_of, title
from .columns import Roles, key_columns, roles_of, where
from .judge import Standard, judge
from .overall import Overall, overall_name, overall_of
from .result import CellResult, CompareResult
from .table import as_runs, label, read_runs, widen
from .verdict import FEW_SEEDS, Scale, scale_of, sentences

if TYPE_CHECKING:
    import polars as pl

    Source = str | Path | Sequence[str | Path] | pl.DataFrame

BASELINES = ("none", "baseline", "static", "grpo")
_MIN_RESAMPLES = 100


def compare(
    source: Source,
    *,
    method: str | None = None,
    seed: str | None = None,
    metrics: Sequence[str] | None = None,
    where: Mapping[str, Sequence[str]] | None = None,
    by: Sequence[str] | None = None,
    baseline: Sequence[str] | None = None,
    reference: str | None = None,
    domains: Mapping[str, Sequence[str]] | None = None,
    subsets: Mapping[str, Sequence[str]] | None = None,
    margin: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    resamples: int = 10_000,
    rng_seed: int = 0,
    progress: Progress | None = None,
) -> CompareResult:
    """Judge finished runs, method × seed × benchmarks, cell by cell.

    A method is compared with the baseline by its differences at the same seeds: paired t (the
    headline below 15 seeds; the bootstrap over seeds from there), sign flips, both corrected over
    the methods of the cell. See :func:`dfsim.sim.compare.judge.judge` for when it counts as
    separated.

    Args:
        source: tables (.csv, .parquet, .jsonl), wide or long, or a frame.
        method: column of the method; default: method, strategy, algorithm, algo or config.
        seed: column of the seed; default: seed.
        metrics: columns of scores; default: every numeric one that is no setting.
        where: column → values; other rows are left out.
        by: columns that separate cells; default: text columns that vary.
        baseline: methods, the first that a cell has is its baseline; default: none, baseline,
            static, grpo.
        reference: a method that is shown and never tested, such as the untrained model.
        domains: domain → metrics; the overall score is then the mean over domains.
        subsets: name → metrics, whose order of methods is compared with the overall's.
        margin: differences up to this count as none; default: 1 for scores in 0…100, .01 in 0…1.
        alpha: level of tests; intervals cover 1 − alpha.
        power: for the smallest difference found and the seeds needed.
        resamples: of the bootstrap over seeds.
        rng_seed: of everything random.
        progress: called with cells done and all cells.

    Returns:
        Every method of every cell against its baseline, in numbers and sentences.

    Raises:
        DfsimError: a table that can't be read or judged; names file, column, value and remedy.

    Example:
        >>> import polars as pl
        >>> runs = pl.DataFrame(
        ...     {"method": ["none"] * 3 + ["new"] * 3, "seed": [1, 2, 3] * 2,
        ...      "gsm8k": [61.0, 60.0, 62.5, 62.0, 60.5, 62.0]}
        ... )
        >>> dfsim.compare(runs).cells[0].methods[1].verdict
        'open'
    """
    standard = _standard(margin, alpha, power, resamples, rng_seed)
    frame, files = _read(source)
    rows = frame.height
    frame, kept, roles, notes = _roles(frame, method, seed, metrics, where or {}, by)
    overall = overall_of(roles.metrics, domains, subsets)
    cells = cells_of(frame, roles, reference)
    wanted = tuple(baseline) if baseline is not None else BASELINES
    _check_methods(frame, roles, cells, baseline, reference)
    empty = [title(c.name) for c in cells if not c.metrics]
    if empty:
        notes.append(f"No run has a score in {capped(empty)}, so nothing is said of it.")
    low, high = _extent(frame, roles)
    scale, usual = scale_of(low, high)
    standard = dataclasses.replace(standard, margin=usual if margin is None else margin)
    found = []
    cells = [cell for cell in cells if cell.metrics]
    for done, cell in enumerate(cells):
        own = next((b for b in wanted if b in cell.methods), None)
        judged = judge(cell, own, overall, standard)
        said = sentences(judged, standard, scale, wanted)
        found.append(dataclasses.replace(judged, sentences=said))
        if progress is not None:
            progress(done + 1, len(cells))
    settings = {
        "method": roles.method,
        "seed": roles.seed,
        "metrics": list(roles.metrics),
        "by": list(roles.by),
        "where": {k: list(v) for k, v in (where or {}).items()},
        "baseline": list(wanted),
        "reference": reference,
        "domains": {k: list(v) for k, v in overall.domains.items()},
        "subsets": {k: list(v) for k, v in overall.subsets.items()},
        **dataclasses.asdict(standard),
        "scale": dataclasses.asdict(scale),
    }
    return CompareResult(
        runs={"files": files, "rows": rows, "used": kept, "runs": frame.height},
        settings=settings,
        notes=[
            *notes,
            *roles.notes,
            *_about_scores(frame, roles, overall, scale, standard),
            *_about_numbers(found, standard),
        ],
        cells=found,
    )


def _standard(
    margin: float | None, alpha: float, power: float, resamples: int, rng_seed: int
) -> Standard:
    if not 0 < alpha <= 0.5:
        raise DfsimError(f"{option('alpha', alpha)} must be above 0 and at most 0.5, such as 0.05")
    if not alpha < power < 1:
        raise DfsimError(f"{option('power', power)} must be above alpha and below 1, such as 0.8")
    if margin is not None and not (margin > 0 and math.isfinite(margin)):
        raise DfsimError(
            f"{option('margin', margin)} must be above 0, in the score's units, such as 1"
        )
    if resamples < _MIN_RESAMPLES:
        raise DfsimError(
            f"{option('resamples', resamples)} is too few; give at least {_MIN_RESAMPLES}"
        )
    if rng_seed < 0:
        raise DfsimError(f"{option('rng_seed', rng_seed)} must be 0 or above")
    return Standard(margin, alpha, power, resamples, rng_seed)


def _read(source: Source) -> tuple[pl.DataFrame, dict[str, str]]:
    """The rows, and file → start of its SHA-256."""
    if isinstance(source, (str, Path)):
        source = [source]
    if isinstance(source, Sequence):
        paths = [Path(p) for p in source]
        return read_runs(paths), {str(p): sha256_of(p)[:16] for p in paths}
    return as_runs(source), {}


def _roles(
    frame: pl.DataFrame,
    method: str | None,
    seed: str | None,
    metrics: Sequence[str] | None,
    wanted: Mapping[str, Sequence[str]],
    by: Sequence[str] | None,
) -> tuple[pl.DataFrame, int, Roles, list[str]]:
    """One row a run, filtered; rows that fulfil the conditions; and what the columns are."""
    method, seed = key_columns(frame, method, seed)
    frame = where(frame, wanted)
    if not frame.height:
        raise DfsimError(f"no row is left; the conditions of {option('where')} exclude each other")
    kept = frame.height
    frame, notes = widen(frame, method, seed)
    return frame, kept, roles_of(frame, method, seed, metrics, by), notes


def _check_methods(
    frame: pl.DataFrame,
    roles: Roles,
    cells: Sequence[Cell],
    baseline: Sequence[str] | None,
    reference: str | None,
) -> None:
    names = sorted({label(v) for v in frame[roles.method].to_list()})
    if reference is not None and reference not in names:
        raise DfsimError(
            f"{option('reference', reference)}: no method is called that"
            f"{nearest(reference, names)}; there are: {', '.join(names[:20])}"
        )
    tested = sorted({m for cell in cells for m in cell.methods})
    if baseline is not None and not set(baseline) & set(tested):
        one = ",".join(baseline)
        raise DfsimError(
            f"{option('baseline', one)}: no method is called that{nearest(one, tested)}; there "
            f"are: {', '.join(tested[:20])}"
        )
    if len(tested) < 2:
        raise DfsimError(
            f"column '{roles.method}' holds one method to compare, '{', '.join(tested)}'; add the "
            f"runs of another, or name the column of methods with {option('method')}"
        )
    if all(len(cell.methods) < 2 for cell in cells):
        raise DfsimError(
            f"every cell holds one method, since {', '.join(roles.by)} separates them (such as "
            f"{title(cells[0].name)}); name the columns that separate cells with {option('by')}"
        )
    if not any(cell.metrics for cell in cells):
        raise DfsimError(
            f"no run has a score in {', '.join(roles.metrics)}; name others: {option('metrics')}"
        )


def _extent(frame: pl.DataFrame, roles: Roles) -> tuple[float, float]:
    values = [_values(frame, m) for m in roles.metrics]
    flat = np.concatenate(values)
    return (float(flat.min()), float(flat.max())) if len(flat) else (0.0, 0.0)


def _values(frame: pl.DataFrame, metric: str) -> np.ndarray:
    found = np.array([math.nan if v is None else float(v) for v in frame[metric].to_list()])
    return found[np.isfinite(found)]


def _about_scores(
    frame: pl.DataFrame, roles: Roles, overall: Overall, scale: Scale, by: Standard
) -> list[str]:
    said = []
    if overall.domains:
        listed = "; ".join(f"{d}: {', '.join(m)}" for d, m in overall.domains.items())
        how = "by the names of benchmarks" if overall.known else "as named"
        said.append(f"Overall is the mean over domains ({how}): {listed}.")
        loose = [m for m in roles.metrics if not any(m in g for g in overall.domains.values())]
        if loose:
            said.append(f"In no domain, so not in the overall: {', '.join(loose)}.")
    elif len(roles.metrics) > 1:
        balances = option("domains", "a,b", key="NAME")
        said.append(f"Overall is {overall_name(roles.metrics, {})}; {balances} balances.")
    if by.margin is None:
        said.append(
            "Scores are neither in 0…1 nor in 0…100, so no margin is taken by itself; "
            f"{option('margin')} gives equivalence and seeds needed."
        )
    else:
        said.append(
            f"Differences up to {scale.amount(by.margin)} count as none ({option('margin')})."
        )
    return said


def _about_numbers(cells: Sequence[CellResult], by: Standard) -> list[str]:
    """How to read what was computed."""
    counts = [m.overall.seeds for c in cells for m in c.methods if m.overall is not None]
    if not any(n > 1 for n in counts):
        return []
    fewest = min(n for n in counts if n > 1)
    said = [
        f"Separated: Holm's p on the paired t-test of the overall score is at most {by.alpha:g}. "
        "Sign-flip and its max-T assume no normality, only that noise is symmetric.",
        "Seeds are the only replicates: nothing here says how other benchmarks or models would "
        "come out.",
    ]
    if fewest <= FEW_SEEDS:
        said.insert(
            1,
            f"A bootstrap over {fewest} seeds is far too narrow to be an interval; it stands "
            "beside t's because papers report it.",
        )
    if max(counts) >= STUDENTIZED_FROM:
        said.append(
            f"From {STUDENTIZED_FROM} seeds the bootstrap, studentized, is the interval to quote: "
            "it leans with skewed differences."
        )
    return said
