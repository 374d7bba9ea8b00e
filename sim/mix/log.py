"""What samplers need of a trace, read once: every group's sums, and each step as it would be seen.

Shapes: M logged groups, S steps, U units of a level (domains or prompts), D domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...strategies.base import Decision, Scores
from ...strategies.sample.base import (
    SamplingStrategy,
    UnitLevel,
    UnitStep,
    observe_batch,
    unit_names,
)
from ...traces.batch import RolloutBatch
from ...traces.ragged import Bool, Float, Int, ratio, segment_sum
from ...traces.schema import NO_DOMAIN

if TYPE_CHECKING:
    from ...traces.storage.store import Trace


@dataclass(frozen=True, eq=False)
class GroupTable:
    """Sums of every logged prompt group, in the order of the log.

    Attributes:
        reward_M: Σ reward of the responses that count; one whose reward is NaN does not.
        advantage_M: Σ |A| of those.
        responses_M: how many count.
        live_M: whether the group's rewards differ.
    """

    reward_M: Float
    advantage_M: Float
    responses_M: Int
    live_M: Bool

    def observe(
        self, step: int, groups: Int, units: Units, outcomes: Int | None = None
    ) -> UnitStep:
        """What a draw of the given groups shows of each unit.

        Args:
            step: number of the step.
            groups: rows of this table.
            units: whose.
            outcomes: rows whose outcomes stand in for theirs, in order; default: their own.
        """
        outcomes = groups if outcomes is None else outcomes
        code, size = units.unit_M[groups], len(units.names)

        def total(values: Any) -> Any:
            return np.bincount(code, values[outcomes], minlength=size)

        responses = total(self.responses_M)
        return UnitStep(
            step,
            ratio(total(self.reward_M), responses),
            ratio(total(self.advantage_M), responses),
            responses.astype(np.int64),
        )


@dataclass(frozen=True, eq=False)
class Units:
    """Domains, or prompts, of a log.

    Attributes:
        names: sorted (U).
        unit_M: unit of each group.
        domain_U: domain of each unit, as an index.
    """

    names: tuple[str, ...]
    unit_M: Int
    domain_U: Int

    @property
    def prior(self) -> Float:
        """Share of each unit (U) in the log: how it was drawn before a sampler acts."""
        total = np.bincount(self.unit_M, minlength=len(self.names)).astype(np.float64)
        return total / total.sum()

    def by_domain(self, values_U: Float, domains: int) -> Float:
        """Sums over the units of each domain (D)."""
        return np.bincount(self.domain_U, values_U, minlength=domains).astype(np.float64)

    def mean_by_domain(self, values_U: Float, domains: int) -> Float:
        """Means over the units of each domain (D) that have a value."""
        there = ~np.isnan(values_U)
        count = np.bincount(self.domain_U, there, minlength=domains)
        return ratio(self.by_domain(np.where(there, values_U, 0.0), domains), count)


@dataclass(frozen=True, eq=False)
class MixLog:
    """What samplers need of a trace, read once.

    Attributes:
        domains: names of D domains, sorted; one nameless where the trace has none.
        step_S: training steps.
        step_M: index of a group's step.
        domain_M: its domain.
        units: the units of each level that was asked for.
        steps: sampler's name → what it would have observed at each step.
        tables: name of the selector of a pipeline (or "") → sums of every group.
        counts_SD: groups logged a step and domain.
    """

    domains: tuple[str, ...]
    step_S: Int
    step_M: Int
    domain_M: Int
    units: Mapping[UnitLevel, Units]
    steps: Mapping[str, Sequence[UnitStep]]
    tables: Mapping[str, GroupTable]
    counts_SD: Int

    def reward_SD(self, sampler: SamplingStrategy) -> Float:
        """Mean logged reward of a domain's responses that a sampler's selector keeps (S, D)."""
        table, shape = self.tables[selector_of(sampler)], self.counts_SD.shape
        place = self.step_M * shape[1] + self.domain_M
        reward, responses = (
            np.bincount(place, values, minlength=shape[0] * shape[1]).reshape(shape)
            for values in (table.reward_M, table.responses_M)
        )
        return ratio(reward, responses)

    @property
    def prior(self) -> Float:
        """Share of each domain (D) in the log."""
        total = self.counts_SD.sum(axis=0).astype(np.float64)
        return total / total.sum()


class Observations(Sequence[UnitStep]):
    """What a sampler would have seen at each step, holding only the units that a step shows."""

    def __init__(self, names: int = 0) -> None:
        self._size = names
        self._parts: list[tuple[int, Int, Float, Float, Int]] = []

    def add(self, seen: UnitStep) -> None:
        """Keep one step."""
        shown = np.flatnonzero(seen.responses_U)
        self._parts.append(
            (
                seen.step,
                shown,
                seen.reward_U[shown],
                seen.advantage_U[shown],
                seen.responses_U[shown],
            )
        )

    def renamed(self, place_U: Int) -> Observations:
        """The same where unit ``u`` is ``place_U[u]``."""
        other = Observations(len(place_U))
        other._parts = [
            (step, place_U[at], reward, advantage, responses)
            for step, at, reward, advantage, responses in self._parts
        ]
        return other

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: Any) -> Any:
        step, at, reward, advantage, responses = self._parts[index]

        def spread(values: Any, blank: Any) -> Any:
            out = np.full(self._size, blank)
            out[at] = values
            return out

        return UnitStep(
            step, spread(reward, np.nan), spread(advantage, np.nan), spread(responses, 0)
        )


class LogReader:
    """Reads what samplers need while a trace passes by.

    Args:
        trace: which.
        samplers: whose units and selectors matter.

    Raises:
        TraceError: the trace is an evaluation, or lacks what a sampler needs.
    """

    def __init__(self, trace: Trace, samplers: Sequence[SamplingStrategy]) -> None:
        trace.refuse_evaluation("a mixer steers what trains next")
        for sampler in samplers:
            trace.require(sampler.columns, sampler.name)
        self._samplers = samplers
        self._domains = tuple(sorted(trace.manifest.domains)) or (NO_DOMAIN,)
        levels = dict.fromkeys(s.level for s in samplers)
        self._place: dict[UnitLevel, dict[str, int]] = {level: {} for level in levels}
        for index, domain in enumerate(self._domains if "domain" in levels else ()):
            self._place["domain"][domain] = index
        self._selectors = {"": None, **{selector_of(s): s.then for s in samplers}}
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in self._selectors}
        self._units: dict[UnitLevel, list[Int]] = {level: [] for level in levels}
        self._seen = {s.name: Observations() for s in samplers}
        self._domain_G: list[Int] = []
        self._numbers: list[int] = []

    def add(self, batch: RolloutBatch, scores: Scores) -> None:
        """Read one step."""
        decisions = {
            name: None if selector is None else selector.decide(batch, scores)
            for name, selector in self._selectors.items()
        }
        for name, decision in decisions.items():
            self._rows[name].append(_group_rows(batch, decision))
        for level, place in self._place.items():
            names = unit_names(batch, level)
            self._units[level].append(
                np.array([place.setdefault(n, len(place)) for n in names], dtype=np.int64)
            )
        for sampler in self._samplers:
            unit_G, size = self._units[sampler.level][-1], len(self._place[sampler.level])
            decision = decisions[selector_of(sampler)]
            self._seen[sampler.name].add(observe_batch(batch, unit_G, size, decision))
        index = {name: place for place, name in enumerate(self._domains)}
        domain_G = np.zeros(batch.num_groups, dtype=np.int64)
        if batch.domain_G is not None:
            domain_G = np.array([index[n] for n in unit_names(batch, "domain")], dtype=np.int64)
        self._domain_G.append(domain_G)
        self._numbers.append(batch.step)

    def log(self) -> MixLog:
        """Everything read."""
        domain_M = np.concatenate(self._domain_G)
        step_M = np.repeat(np.arange(len(self._domain_G)), [len(d) for d in self._domain_G])
        counts_SD = np.zeros((len(self._domain_G), len(self._domains)), dtype=np.int64)
        np.add.at(counts_SD, (step_M, domain_M), 1)
        units, place_by_level = {}, {}
        for level, place in self._place.items():
            names = tuple(sorted(place))
            rank = {name: index for index, name in enumerate(names)}
            place_U = np.array([rank[name] for name in place], dtype=np.int64)
            unit_M = place_U[np.concatenate(self._units[level])]
            domain_U = np.zeros(len(names), dtype=np.int64)
            domain_U[unit_M[::-1]] = domain_M[::-1]  # of a unit's first group
            if level == "domain":
                domain_U = np.arange(len(names))
            units[level], place_by_level[level] = Units(names, unit_M, domain_U), place_U
        tables = {
            name: GroupTable(**{k: np.concatenate([p[k] for p in parts]) for k in parts[0]})
            for name, parts in self._rows.items()
        }
        steps = {
            s.name: self._seen[s.name].renamed(place_by_level[s.level]) for s in self._samplers
        }
        return MixLog(
            domains=self._domains,
            step_S=np.array(self._numbers),
            step_M=step_M,
            domain_M=domain_M,
            units=units,
            steps=steps,
            tables=tables,
            counts_SD=counts_SD,
        )


def _group_rows(batch: RolloutBatch, decision: Decision | None) -> dict[str, Any]:
    """One step's rows of a ``GroupTable``."""
    counts = ~np.isnan(batch.reward_N)
    if decision is not None:
        counts = counts & (decision.weight_N > 0)
    cuts = batch.group_offsets
    return {
        "reward_M": segment_sum(np.where(counts, batch.reward_N, 0.0), cuts),
        "advantage_M": segment_sum(np.where(counts, batch.abs_advantage_N, 0.0), cuts),
        "responses_M": segment_sum(counts.astype(np.int64), cuts),
        "live_M": batch.live_G,
    }


def selector_of(sampler: SamplingStrategy) -> str:
    """Name and parameters of what a sampler's draw passes through, or an empty string."""
    then = sampler.then
    return "" if then is None else f"{then.name} {sorted(then.params.items())} {then.tie_seed}"
