"""What comparing finished runs returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ...traces.findings import number_of, plain
from ...traces.version import __version__
from ..result import RECORD_VERSION
from ..stats.power import Range
from ..stats.ranks import RankStability

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Comparison:
    """A method against the baseline on one score, over the seeds that both have.

    NaN means that it can't be estimated from so many pairs. P-values are two-sided.

    Attributes:
        method: its name.
        metric: the benchmark; ``None`` for the overall score.
        seeds: pairs.
        difference: mean of method − baseline, in the score's units.
        std: standard deviation of the paired differences.
        low: paired-t interval of the difference.
        high: its upper end.
        boot_low: interval by bootstrap over seeds: percentile below 15 seeds, studentized from
            there.
        boot_high: its upper end.
        test: ``t``, or ``sign-flip`` where all differences are equal, so that t has no spread.
        p: of that test.
        p_holm: adjusted over the family: all methods, times all metrics for a metric.
        p_bh: Benjamini–Hochberg over the same family.
        p_sign_flip: of sign flips.
        p_sign_flip_min: the smallest that so many seeds can give.
        p_max_t: of sign flips, adjusted over the family by max-T.
        p_equivalence: that the true difference lies inside the margin, by two one-sided t.
        p_equivalence_holm: adjusted over the family.
    """

    method: str
    metric: str | None
    seeds: int
    difference: float
    std: float
    low: float
    high: float
    boot_low: float
    boot_high: float
    test: str
    p: float
    p_holm: float
    p_bh: float
    p_sign_flip: float
    p_sign_flip_min: float
    p_max_t: float
    p_equivalence: float
    p_equivalence_holm: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Comparison:
        """Read what :meth:`to_dict` wrote, among other fields."""
        return cls(**_fields(cls, record))


@dataclass(frozen=True)
class MethodResult:
    """A method of a cell.

    Attributes:
        name: as in the table.
        runs: its runs in the cell.
        mean: overall score over its runs that have every score.
        means: metric → mean over its runs that have it.
        overall: against the baseline; ``None`` for the baseline, and where there is no pair.
        iqm: interquartile mean of the paired differences over seeds and metrics.
        iqm_low: its bootstrap interval over seeds.
        iqm_high: its upper end.
        improve: probability of improvement over seeds and metrics.
        improve_low: its bootstrap interval over seeds.
        improve_high: its upper end.
        detectable: smallest true difference found with the power asked for, by its own spread.
        seeds_needed: pairs that find the margin, by its own spread.
        verdict: ``above``, ``below``, ``equivalent``, ``open``, ``baseline`` or ``not compared``.
        reason: why it is not compared, or what the verdict rests on; else ``None``.
    """

    name: str
    runs: int
    mean: float
    means: Mapping[str, float]
    overall: Comparison | None = None
    iqm: float = float("nan")
    iqm_low: float = float("nan")
    iqm_high: float = float("nan")
    improve: float = float("nan")
    improve_low: float = float("nan")
    improve_high: float = float("nan")
    detectable: Range | None = None
    seeds_needed: Range | None = None
    verdict: str = "not compared"
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON; what compares it stands at its top level."""
        own = {k: plain(v) for k, v in vars(self).items() if k not in ("name", "means", "overall")}
        for name in ("detectable", "seeds_needed"):
            value = getattr(self, name)
            own[name] = None if value is None else value.to_dict()
        compared = {} if self.overall is None else self.overall.to_dict()
        compared.pop("method", None)
        compared.pop("metric", None)
        return {**own, **compared}

    @classmethod
    def from_dict(
        cls, name: str, record: Mapping[str, Any], means: Mapping[str, Any]
    ) -> MethodResult:
        """Read what :meth:`to_dict` wrote, and the means that stand apart from it."""
        whole = {"method": name, "metric": None, **record}
        overall = Comparison.from_dict(whole) if "difference" in record else None
        read = {
            **_fields(cls, {**record, "name": name}),
            "means": {metric: number_of(v) for metric, v in means.items()},
            "overall": overall,
        }
        for key in ("detectable", "seeds_needed"):
            read[key] = None if record[key] is None else Range(**_fields(Range, record[key]))
        return cls(**read)


@dataclass(frozen=True)
class Precision:
    """What a cell's seeds can find in the overall score.

    Attributes:
        seeds: pairs that most methods have.
        std: root mean square over methods of the standard deviation of paired differences, with its
            95 % interval by χ² on ``seeds − 1`` degrees: all methods share the baseline's runs.
        detectable: smallest true difference found with the power asked for at level α.
        detectable_holm: at Holm's first step, α over the number of methods.
        seeds_needed: pairs that find the margin.
    """

    seeds: int
    std: Range
    detectable: Range
    detectable_holm: Range
    seeds_needed: Range | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {k: v.to_dict() if isinstance(v, Range) else v for k, v in vars(self).items()}


@dataclass(frozen=True)
class CellResult:
    """Methods over the same seeds.

    Attributes:
        name: column → value of what separates the cell.
        baseline: what methods are compared with; ``None`` where the cell has none.
        seeds: seeds of any method.
        metrics: benchmarks that a run of the cell has.
        weights: metric → weight in the overall score.
        methods: the baseline first, then by overall score.
        comparisons: every method × metric with the baseline.
        ranks: orders of methods by other choices of benchmarks.
        precision: what the seeds can find; ``None`` under two pairs.
        reference: metric → score of the reference, which is not tested; or ``None``.
        sentences: what it comes to.
        cautions: what to know of its runs.
    """

    name: Mapping[str, str]
    baseline: str | None
    seeds: Sequence[str]
    metrics: Sequence[str]
    weights: Mapping[str, float]
    methods: Sequence[MethodResult]
    comparisons: Sequence[Comparison]
    ranks: Sequence[RankStability]
    precision: Precision | None
    reference: Mapping[str, float] | None
    sentences: Sequence[str] = ()
    cautions: Sequence[str] = ()

    @property
    def compared(self) -> list[MethodResult]:
        """Methods that have a pair."""
        return [m for m in self.methods if m.overall is not None]

    @property
    def reference_mean(self) -> float:
        """Overall score of the reference; NaN where a benchmark is missing."""
        if self.reference is None:
            return float("nan")
        return sum(w * self.reference[m] for m, w in self.weights.items() if w)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "cell": dict(self.name),
            "baseline": self.baseline,
            "seeds": list(self.seeds),
            "sentences": list(self.sentences),
            "cautions": list(self.cautions),
            "weights": dict(self.weights),
            "means": {m.name: {k: plain(v) for k, v in m.means.items()} for m in self.methods},
            "reference": self._reference(),
            "overall": {m.name: m.to_dict() for m in self.methods},
            "metrics": [c.to_dict() for c in self.comparisons],
            "ranks": [{k: plain(v) for k, v in vars(r).items()} for r in self.ranks],
            "precision": None if self.precision is None else self.precision.to_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> CellResult:
        """Read what :meth:`to_dict` wrote; the precision stands in its sentences."""
        reference, means = record["reference"], record["means"]
        methods = record["overall"].items()
        return cls(
            name=record["cell"],
            baseline=record["baseline"],
            seeds=record["seeds"],
            metrics=list(record["weights"]),
            weights=record["weights"],
            methods=[MethodResult.from_dict(name, m, means[name]) for name, m in methods],
            comparisons=[Comparison.from_dict(c) for c in record["metrics"]],
            ranks=[RankStability(**_fields(RankStability, r)) for r in record["ranks"]],
            precision=None,
            reference=reference and {m: number_of(v) for m, v in reference["means"].items()},
            sentences=record["sentences"],
            cautions=record["cautions"],
        )

    def _reference(self) -> dict[str, Any] | None:
        if self.reference is None:
            return None
        gains = {m.name: plain(m.mean - self.reference_mean) for m in self.methods}
        return {
            "means": {k: plain(v) for k, v in self.reference.items()},
            "overall": plain(self.reference_mean),
            "gains": gains,
        }


@dataclass(frozen=True)
class CompareResult:
    """Finished runs, judged cell by cell.

    Attributes:
        runs: files with the start of their SHA-256, rows read and rows used.
        settings: columns taken, margin, α, power, resamples, seed.
        notes: what was taken by itself, and how to read the numbers.
        cells: in the order of their names.
    """

    runs: Mapping[str, Any]
    settings: Mapping[str, Any]
    notes: Sequence[str]
    cells: Sequence[CellResult] = field(default_factory=tuple)

    def __repr__(self) -> str:
        lines = [f"CompareResult of {len(self.cells)} cells; .table(), .methods(), .to_dict()"]
        for cell in self.cells[:_SHOWN]:
            name = ", ".join(f"{k}={v}" for k, v in cell.name.items()) or "all runs"
            told = ", ".join(f"{m.name} {m.verdict}" for m in cell.methods[:_SHOWN])
            lines.append(f"  {name}: {told}" + (" …" if len(cell.methods) > _SHOWN else ""))
        return "\n".join([*lines, *(["  …"] if len(self.cells) > _SHOWN else [])])

    def to_dict(self) -> dict[str, Any]:
        """As the JSON of ``dfsim compare --json``."""
        return {
            "dfsim": __version__,
            "version": RECORD_VERSION,
            "runs": dict(self.runs),
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "cells": [cell.to_dict() for cell in self.cells],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> CompareResult:
        """Read what :meth:`to_dict` wrote."""
        cells = [CellResult.from_dict(cell) for cell in record["cells"]]
        return cls(record["runs"], record["settings"], record["notes"], cells)

    def table(self) -> pl.DataFrame:
        """One row a cell, method and metric (null = overall): differences, intervals, p-values."""
        import polars as pl

        return pl.DataFrame(list(self._rows()), infer_schema_length=None)

    def methods(self) -> pl.DataFrame:
        """One row a cell and method: overall score, and what pools seeds and metrics."""
        import polars as pl

        rows = []
        for cell in self.cells:
            for method in cell.methods:
                record = method.to_dict()
                for name in ("detectable", "seeds_needed"):
                    found = record.pop(name) or {}
                    record |= {name: found.get("value")}
                    record |= {f"{name}_{end}": found.get(end) for end in ("low", "high")}
                rows.append(_row(cell, {"method": method.name, **record}))
        return pl.DataFrame(rows, infer_schema_length=None)

    def means(self) -> pl.DataFrame:
        """One row a cell and metric, one column a method: mean scores."""
        import polars as pl

        rows = [
            _row(cell, {"metric": metric} | {m.name: plain(m.means[metric]) for m in cell.methods})
            for cell in self.cells
            for metric in cell.metrics
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for cell in self.cells:
            overall = [m.overall for m in cell.compared if m.overall is not None]
            for comparison in (*overall, *cell.comparisons):
                yield _row(cell, {"baseline": cell.baseline, **comparison.to_dict()})


def _row(cell: CellResult, record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with what separates its cell."""
    return {**{f"cell.{k}" if k in record else k: v for k, v in cell.name.items()}, **record}


_SHOWN = 8
_MAY_BE_NONE = ("metric", "reason", "median")


def _fields(cls: type[Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass that a JSON record holds; null is NaN where a number belongs."""
    names = (f.name for f in fields(cls) if f.name in record)
    return {n: record[n] if n in _MAY_BE_NONE else number_of(record[n]) for n in names}
