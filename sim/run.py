"""Sums over the steps of a run, and the estimates, phases and per-step records they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..strategies.base import Strategy
from ..traces.ragged import Float
from .diagnosis import RunFacts, diagnose, facts_table, step_facts
from .estimators.base import MISSING, SIGNAL, Estimator
from .estimators.step import BASELINE, StepSums
from .result import Estimate, Estimates, StrategyResult
from .uncertainty import MIN_FUTURE_STEPS, Mean, block_weights, interval, variation

PHASES = ("early", "middle", "late")


class RunSums:
    """Adds up steps; memory grows by one value per step, scope, strategy and estimator.

    Shapes: E estimators, scopes 1+D (the step, then each domain), rows 1+R (as logged, then the
    resamples), K strategies.
    """

    def __init__(
        self,
        strategies: Sequence[Strategy],
        estimators: Sequence[Estimator],
        domains: Sequence[str],
        steps: int,
        resamples: int,
    ) -> None:
        self.strategies, self.estimators, self.domains = strategies, estimators, tuple(domains)
        self.names = [s.name for s in strategies]
        self._planned, self._resamples = steps, resamples
        shape = (1 + len(domains), 1 + resamples, len(strategies))
        self._phases = [Mean((len(estimators), *shape)) for _ in PHASES]
        pooled = [i for i, e in enumerate(estimators) if e.run == "pooled"]
        self._pooled = {i: len(estimators[i].parts) for i in pooled}
        self._pooled_sums = {
            i: np.zeros((len(PHASES), parts, *shape)) for i, parts in self._pooled.items()
        }
        self._series: list[Float] = []
        self._pooled_series: dict[int, list[Float]] = {i: [] for i in pooled}
        self._facts: list[Float] = []
        self._steps: list[int] = []
        self._lacks: set[str] = set()
        self._domain_signal = np.zeros((1 + len(domains), len(strategies)))

    def add(self, step: StepSums) -> None:
        """Add one step and its resamples."""
        phase = self._phase(len(self._steps))
        values = step.values()
        self._phases[phase].add(values)
        self._series.append(values[:, :, 0])
        for index in self._pooled:
            shape = values.shape[1:]
            sums = [np.broadcast_to(step.sums(p), shape) for p in self.estimators[index].parts]
            self._pooled_sums[index][phase] += sums
            self._pooled_series[index].append(np.stack(sums)[:, :, 0])
        self._domain_signal += np.nan_to_num(step.sums(SIGNAL)[:, 0])
        self._facts.append(step_facts(step.weighted))
        self._steps.append(step.batch.step)
        self._lacks |= step.lacking()

    def _phase(self, index: int) -> int:
        return min(index * len(PHASES) // self._planned, len(PHASES) - 1)

    @property
    def updates(self) -> float:
        """Mean optimizer updates of a step; NaN where unknown."""
        return float(self._updates().mean())

    @property
    def one_update(self) -> bool:
        """Whether every step is known to be one update."""
        return bool((self._updates() == 1).all())

    def _updates(self) -> Float:
        index = [e.name for e in self.estimators].index("updates_per_step")
        return np.array([v[index, 0, 0] for v in self._series])

    def results(self, seed: int, optimizer: str | None) -> dict[str, StrategyResult]:
        """Estimates and diagnoses of every strategy."""
        everything = list(range(len(PHASES)))
        whole = self._estimates(everything, seed)
        phases = {}
        if len(self._steps) >= len(PHASES):
            phases = {PHASES[p]: self._estimates([p], seed) for p in everything}
        found = {}
        for k, strategy in enumerate(self.strategies):
            estimates = whole[0][k]
            found[strategy.name] = StrategyResult(
                name=strategy.name,
                kind=strategy.kind,
                params=strategy.params,
                estimates=estimates,
                by_domain={d: whole[1 + i][k] for i, d in enumerate(self.domains)},
                by_phase={name: values[0][k] for name, values in phases.items()},
                diagnosis=[]
                if strategy.name == BASELINE
                else diagnose(self._run_facts(k, estimates, whole[0][0], optimizer)),
            )
        return found

    def _run_facts(
        self, k: int, estimates: Estimates, baseline: Estimates, optimizer: str | None
    ) -> RunFacts:
        total = np.maximum(self._domain_signal[0], 1e-300)
        share = self._domain_signal[1:] / total
        return RunFacts(
            strategy=self.strategies[k],
            estimates=estimates,
            baseline=baseline,
            steps=self._steps,
            facts=facts_table(self._facts, k),
            baseline_facts=facts_table(self._facts, 0),
            domain_signal={
                d: (float(share[i, k]), float(share[i, 0])) for i, d in enumerate(self.domains)
            },
            optimizer=optimizer,
        )

    def _estimates(self, phases: list[int], seed: int) -> list[list[Estimates]]:
        """Estimates by scope and strategy over the given phases."""
        mean = Mean(self._phases[0].total.shape)
        for p in phases:
            mean += self._phases[p]
        values = mean.mean()
        inside = [i for i in range(len(self._steps)) if self._phase(i) in phases]
        for index, estimator in enumerate(self.estimators):
            if estimator.run == "cv":
                values[index] = np.nan
                series = np.array([self._series[i][index] for i in inside])
                values[index, :, 0] = variation(series, np.ones((1, len(inside))))[0]
            elif estimator.run == "pooled":
                parts = self._pooled_sums[index][phases].sum(axis=0)
                values[index] = estimator.value(*parts)
        low, high = interval(values[:, :, 1:], axis=2)
        future_low, future_high = self._future(inside, seed)
        nan = np.array([~np.isfinite(self._series[i]) for i in inside]).sum(axis=0)
        return [
            [
                {
                    e.name: self._estimate(
                        e,
                        float(values[i, scope, 0, k]),
                        (float(low[i, scope, k]), float(high[i, scope, k])),
                        (float(future_low[i, scope, k]), float(future_high[i, scope, k])),
                        len(inside),
                        int(nan[i, scope, k]),
                    )
                    for i, e in enumerate(self.estimators)
                }
                for k in range(len(self.names))
            ]
            for scope in range(1 + len(self.domains))
        ]

    def _future(self, inside: list[int], seed: int) -> tuple[Float, Float]:
        series = np.array([self._series[i] for i in inside])
        weights = block_weights(len(inside), self._resamples, seed)
        if weights is None:
            empty = np.full(series.shape[1:], np.nan)
            return empty, empty
        known = np.isfinite(series)
        finite = np.where(known, series, 0.0)
        total = np.tensordot(weights, finite, axes=1)
        count = np.tensordot(weights, known.astype(np.float64), axes=1)
        means = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        for index, estimator in enumerate(self.estimators):
            if estimator.run == "cv":
                means[:, index] = variation(series[:, index], weights)
            elif estimator.run == "pooled":
                parts = np.array([self._pooled_series[index][i] for i in inside])
                with np.errstate(invalid="ignore"):
                    sums = np.tensordot(weights, parts, axes=1)
                means[:, index] = estimator.value(*np.moveaxis(sums, 1, 0))
        return interval(means, axis=0)

    def _estimate(
        self,
        estimator: Estimator,
        mean: float,
        bounds: tuple[float, float],
        future: tuple[float, float],
        steps: int,
        nan_steps: int,
    ) -> Estimate:
        if np.isnan(mean):
            lacking = [MISSING[n] for n in estimator.needs if n in self._lacks]
            reason = lacking[0] if lacking else estimator.nan_reason or "no step allows it"
            return Estimate(mean, mean, mean, mean, mean, steps, nan_steps, reason)
        missing = []
        if estimator.interval:
            bounds = (np.nan, np.nan)
            missing.append(f"no interval of this trace: {estimator.interval}")
        if np.isnan(future[0]):
            missing.append(
                f"no future interval: {steps} steps, {MIN_FUTURE_STEPS} are needed"
                if steps < MIN_FUTURE_STEPS
                else "no future interval: too few steps have a value"
            )
        return Estimate(mean, *bounds, *future, steps, nan_steps, "; ".join(missing) or None)

    def step_records(self) -> dict[str, list[Any]]:
        """Columns of one record a step, domain and strategy."""
        scopes = [None, *self.domains]
        records: dict[str, list[Any]] = {"step": [], "strategy": [], "domain": []}
        for step in self._steps:
            for scope in scopes:
                records["step"] += [step] * len(self.names)
                records["strategy"] += self.names
                records["domain"] += [scope] * len(self.names)
        stacked = np.array(self._series)
        for index, estimator in enumerate(self.estimators):
            if estimator.run != "cv":
                records[estimator.name] = stacked[:, index].ravel().tolist()
        tables = [facts_table(self._facts, k) for k in range(len(self.names))]
        for column, fact in (("no_op", "uniform"), ("tied_frac", "tied_frac")):
            values = np.stack([t[fact] for t in tables], axis=1)
            blank = np.full((len(values), len(scopes), len(self.names)), np.nan)
            blank[:, 0] = values
            records[column] = blank.ravel().tolist()
        return records
