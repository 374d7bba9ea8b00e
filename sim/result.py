"""What a replay returns: numbers with their intervals, reasons, diagnoses and notes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..traces.findings import Finding, number_of, plain
from ..traces.version import __version__

if TYPE_CHECKING:
    import polars as pl

    from .mix.result import MixResult

RECORD_VERSION = 1
"""Version of the JSON that ``--out`` and ``--json`` write; readers refuse others."""


@dataclass(frozen=True)
class Estimate:
    """One number of a run.

    Attributes:
        mean: over the steps where it can be estimated; NaN where it nowhere can.
        low: 95 % group bootstrap inside the logged steps: the uncertainty of this trace.
        high: its upper end.
        future_low: 95 % moving blocks over steps: the uncertainty about steps like these.
        future_high: its upper end.
        steps: steps looked at.
        nan_steps: those of them where it could not be estimated.
        reason: why a value above is missing, or ``None``.
    """

    mean: float
    low: float
    high: float
    future_low: float
    future_high: float
    steps: int
    nan_steps: int
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON: NaN becomes null."""
        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Estimate:
        """Read what :meth:`to_dict` wrote."""
        return cls(**{n: v if n == "reason" else number_of(v) for n, v in record.items()})


Estimates = Mapping[str, Estimate]


@dataclass(frozen=True)
class StrategyResult:
    """One strategy on one trace.

    Attributes:
        name: as the user wrote it.
        kind: ``baseline``, ``select`` or ``reweight``.
        params: every parameter with its value.
        estimates: estimator → estimate over the run.
        by_domain: the same per domain.
        by_phase: the same per third of the run.
        diagnosis: findings, most drastic first.
        per_update: effective batch and its bracket per optimizer update, where a rollout step is
            known to be more than one; else ``None``.
    """

    name: str
    kind: str
    params: Mapping[str, Any]
    estimates: Estimates
    by_domain: Mapping[str, Estimates] = field(default_factory=dict)
    by_phase: Mapping[str, Estimates] = field(default_factory=dict)
    diagnosis: Sequence[Finding] = ()
    per_update: Mapping[str, float] | None = None

    def __repr__(self) -> str:
        found = [f.name for f in self.diagnosis]
        return f"{self.name}: {sizes(self.estimates)}" + (f"; {', '.join(found)}" if found else "")

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""

        def records(estimates: Estimates) -> dict[str, Any]:
            return {name: e.to_dict() for name, e in estimates.items()}

        return {
            "kind": self.kind,
            "params": {name: plain(value) for name, value in self.params.items()},
            "estimates": records(self.estimates),
            "by_domain": {d: records(e) for d, e in self.by_domain.items()},
            "by_phase": {p: records(e) for p, e in self.by_phase.items()},
            "diagnosis": [d.to_dict() for d in self.diagnosis],
            **(
                {}
                if self.per_update is None
                else {"per_update": {n: plain(v) for n, v in self.per_update.items()}}
            ),
        }

    @classmethod
    def from_dict(cls, name: str, record: Mapping[str, Any]) -> StrategyResult:
        """Read what :meth:`to_dict` wrote."""

        def estimates(found: Mapping[str, Any]) -> Estimates:
            return {n: Estimate.from_dict(e) for n, e in found.items()}

        per_update = record.get("per_update")
        return cls(
            name=name,
            kind=record["kind"],
            params=record["params"],
            estimates=estimates(record["estimates"]),
            by_domain={d: estimates(e) for d, e in record["by_domain"].items()},
            by_phase={p: estimates(e) for p, e in record["by_phase"].items()},
            diagnosis=[Finding.from_dict(d) for d in record["diagnosis"]],
            per_update=per_update and {n: number_of(v) for n, v in per_update.items()},
        )


@dataclass(frozen=True)
class ReplayResult:
    """Several strategies on one trace; ``none`` is always there and first.

    Attributes:
        trace: path, fingerprint and sizes.
        loss_agg_mode: verl's loss aggregation.
        strategies: name → result.
        findings: what stands out in the data, whatever a strategy does.
        notes: what holds for every number: cautions and assumptions.
        step_records: one record a step, strategy and domain (``None`` = all), for ``steps()``.
        settings: resamples, seed, φ and reward tolerance.
        mixers: name → what a sampler would have asked for and got; not in ``from_dict``'s.
    """

    trace: Mapping[str, Any]
    loss_agg_mode: str
    strategies: Mapping[str, StrategyResult]
    notes: Sequence[str]
    step_records: Mapping[str, Sequence[Any]]
    settings: Mapping[str, Any]
    findings: Sequence[Finding] = ()
    mixers: Mapping[str, MixResult] = field(default_factory=dict)

    def __repr__(self) -> str:
        lines = [
            f"ReplayResult of {self.trace['path']}: {self.trace['steps']} steps, "
            f"{self.loss_agg_mode}; .table(), .steps(), .to_dict()"
        ]
        lines += [f"  the data: {', '.join(f.name for f in self.findings)}"] * bool(self.findings)
        shown = (*self.strategies.values(), *self.mixers.values())
        return "\n".join([*lines, *(f"  {s!r}" for s in shown)])

    def to_dict(self) -> dict[str, Any]:
        """As the JSON of ``dfsim replay --json``."""
        return {
            "dfsim": __version__,
            "trace": dict(self.trace),
            "loss_agg_mode": self.loss_agg_mode,
            "settings": dict(self.settings),
            "findings": [finding.to_dict() for finding in self.findings],
            "notes": list(self.notes),
            "strategies": {name: s.to_dict() for name, s in self.strategies.items()},
            **({"mixers": {n: m.to_dict() for n, m in self.mixers.items()}} if self.mixers else {}),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> ReplayResult:
        """Read what :meth:`to_dict` wrote; the values of single steps are not in it."""
        strategies = record["strategies"].items()
        return cls(
            trace=record["trace"],
            loss_agg_mode=record["loss_agg_mode"],
            strategies={name: StrategyResult.from_dict(name, s) for name, s in strategies},
            notes=record["notes"],
            step_records={},
            settings=record["settings"],
            findings=[Finding.from_dict(f) for f in record.get("findings", ())],
        )

    def table(self) -> pl.DataFrame:
        """One row a strategy and estimator: mean, interval, future interval, steps, reason."""
        import polars as pl

        rows = [
            {"strategy": name, "estimator": estimator, **estimate.to_dict()}
            for name, strategy in self.strategies.items()
            for estimator, estimate in strategy.estimates.items()
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def steps(self) -> pl.DataFrame:
        """One row a step, strategy and domain (null = all groups), a column an estimator."""
        import polars as pl

        return pl.DataFrame(dict(self.step_records), strict=False).fill_nan(None)


def sizes(estimates: Estimates) -> str:
    """Effective batch and its bracket."""
    ends = ("effective_batch", "effective_batch_low", "effective_batch_high")
    size, low, high = (estimates[name].mean for name in ends)
    return f"effective batch {size:.3g} [{low:.3g}, {high:.3g}]"


def dump_json(record: Mapping[str, object]) -> str:
    """One JSON object, standard JSON only (no NaN)."""
    return json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
