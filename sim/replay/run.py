"""Sums over the steps of a run, and the estimates, phases and per-step records they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.base import Strategy
from ...traces.ragged import AnyArray, Float, ratio
from ..estimators.base import MISSING, SIGNAL, Estimator
from ..estimators.step import BASELINE, StepSums
from ..result import Estimate, Estimates, StrategyResult
from ..stats.intervals import MIN_FUTURE_STEPS, Mean, block_weights, interval, mean_of, variation
from .diagnosis import RunFacts, diagnose, facts_table, step_facts

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
        shape = (1 + len(domains), resamples, len(strategies))
        self._resampled = [Mean((len(estimators), *shape)) for _ in PHASES]
        self._pooled = [i for i, e in enumerate(estimators) if e.run == "pooled"]
        self._pooled_resampled = {
            i: np.zeros((len(PHASES), len(estimators[i].parts), *shape)) for i in self._pooled
        }
        self._series: list[Float] = []
        self._pooled_series: dict[int, list[Float]] = {i: [] for i in self._pooled}
        self._facts: list[Float] = []
        self._steps: list[int] = []
        self._lacks: set[str] = set()
        self._domain_signal = np.zeros((1 + len(domains), len(strategies)))

    def add(self, step: StepSums, counts_RG: AnyArray) -> None:
        """Add one step, and its resamples given how often each holds each group."""
        phase = self._phase(len(self._steps))
        resampled = step.resampled(counts_RG)
        self._resampled[phase].add(step.values(resampled))
        self._series.append(step.values()[:, :, 0])
        for index in self._pooled:
            parts = self.estimators[index].parts
            self._pooled_resampled[index][phase] += [resampled(p) for p in parts]
            self._pooled_series[index].append(np.stack([step.logged(p)[:, 0] for p in parts]))
        self._domain_signal += np.nan_to_num(step.logged(SIGNAL)[:, 0])
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
                per_update=self._per_update(estimates),
                by_phase={name: values[0][k] for name, values in phases.items()},
                diagnosis=[]
                if strategy.name == BASELINE
                else diagnose(self._run_facts(k, estimates, whole[0][0], optimizer)),
            )
        return found

    def _per_update(self, estimates: Estimates) -> dict[str, float] | None:
        names = ("effective_batch", "effective_batch_low", "effective_batch_high")
        if not self.updates > 1:
            return None
        return {name: estimates[name].mean / self.updates for name in names}

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
        inside = [i for i in range(len(self._steps)) if self._phase(i) in phases]
        series = np.array([self._series[i] for i in inside])
        resampled = sum((self._resampled[p] for p in phases), Mean(self._resampled[0].total.shape))
        logged, spread = mean_of(series), resampled.mean()
        for index, estimator in enumerate(self.estimators):
            if estimator.run == "cv":
                logged[index] = variation(series[:, index], np.ones((1, len(inside))))[0]
            elif estimator.run == "pooled":
                parts = np.array([self._pooled_series[index][i] for i in inside])
                logged[index] = estimator.value(*parts.sum(axis=0))
                spread[index] = estimator.value(*self._pooled_resampled[index][phases].sum(axis=0))
        low, high = interval(spread, axis=2)
        future_low, future_high = self._future(inside, seed)
        nan = (~np.isfinite(series)).sum(axis=0)
        return [
            [
                {
                    e.name: self._estimate(
                        e,
                        float(logged[i, scope, k]),
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
        means = ratio(total, count)
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
