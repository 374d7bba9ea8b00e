"""Which prompts the next step draws: stateful samplers under the trainer's own data loader.

A trainer fetches a step's prompts when the step begins, so what a sampler asks for after step t
decides the draw of step t + 1. Its state travels in the trainer's checkpoint, with the draw's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...strategies.base import Decision
from ...strategies.sample.base import (
    SamplingStrategy,
    UnitSampler,
    UnitStep,
    observe_batch,
    unit_names,
)
from ...strategies.sample.quota import Quotas, draw_prompts
from ...traces.batch import RolloutBatch
from ...traces.errors import DfsimError
from ...traces.ragged import Float, Int
from ...traces.schema import NO_DOMAIN


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The training set as samplers see it; R rows, D domains.

    Attributes:
        domains: names, sorted; one nameless where the set has none.
        domain_R: domain of each row, as an index.
    """

    domains: tuple[str, ...]
    domain_R: Int

    @classmethod
    def of(cls, domains: Sequence[Any] | None, rows: int) -> TrainingSet:
        """Read the domain of each row, where there is such a column."""
        if domains is None:
            return cls((NO_DOMAIN,), np.zeros(rows, dtype=np.int64))
        named = [NO_DOMAIN if name is None else str(name) for name in domains]
        names, domain_R = np.unique(np.array(named, dtype=object), return_inverse=True)
        return cls(tuple(names), domain_R.astype(np.int64))

    @property
    def rows_D(self) -> Int:
        """Rows of each domain."""
        return np.bincount(self.domain_R, minlength=len(self.domains))

    def by_domain(self, strategy: SamplingStrategy, values_U: Float) -> Float:
        """Sums of a sampler's units over the domains (D)."""
        if strategy.level == "domain":
            return values_U
        return np.bincount(self.domain_R, values_U, minlength=len(self.domains)).astype(np.float64)

    def mean_by_domain(self, strategy: SamplingStrategy, values_U: Float) -> Float:
        """Means over those of a domain's units that have a value (D)."""
        there = ~np.isnan(values_U)
        total = self.by_domain(strategy, np.where(there, values_U, 0.0))
        count = self.by_domain(strategy, there.astype(np.float64))
        return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def start_sampler(
    strategy: SamplingStrategy, domains: Sequence[str], rows_D: Sequence[int]
) -> UnitSampler:
    """Begin over a training set: its domains by their share of the rows, or its rows uniformly.

    Args:
        strategy: which.
        domains: names (D).
        rows_D: rows of each.

    Raises:
        StrategyError: what the rule refuses.
    """
    rows = sum(rows_D)
    if strategy.level == "domain":
        return strategy.start(domains, [count / rows for count in rows_D])
    width = len(str(rows - 1))
    return strategy.start([f"{row:0{width}}" for row in range(rows)])


def watch(
    sampler: UnitSampler,
    strategy: SamplingStrategy,
    batch: RolloutBatch,
    row_G: Int | None,
    decision: Decision | None,
) -> UnitStep:
    """Let a sampler see a step.

    Args:
        sampler: the strategy at work.
        strategy: which.
        batch: the step.
        row_G: row of the training set of each group, where units are rows.
        decision: of the selector that the sampler's draw passes through.
    """
    if strategy.level == "domain":
        unit_G = sampler.codes(unit_names(batch, "domain"))
    else:
        assert row_G is not None
        unit_G = row_G
    seen = observe_batch(batch, unit_G, len(sampler.units), decision)
    sampler.observe(seen)
    return seen


def draw_rows(target_R: Float, count: int, seed: int, draw: int) -> Int:
    """Rows (count) of one draw by each row's share (R); ``draw`` counts from 0."""
    return draw_prompts(target_R, count, np.random.default_rng((seed, 1, draw)))


class RowSampler(ABC):
    """Batches of rows of a training set that follow a sampler; it has no end.

    Args:
        strategy: the sampler's.
        training_set: what is drawn from.
        batch_size: prompts a step.
        seed: of the draw.

    Attributes:
        sampler: the strategy at work: asked for its proposal at every batch.
        target_U: shares of the sampler's units behind the last batch.
        rows: the last batch, sorted.
        exposures_D: prompts of each domain drawn so far.
        live_exposures_D: prompt groups so far whose rewards differed, as :meth:`saw` was told.
    """

    def __init__(
        self, strategy: SamplingStrategy, training_set: TrainingSet, batch_size: int, seed: int
    ) -> None:
        self.strategy, self.training_set = strategy, training_set
        self.sampler = start_sampler(strategy, training_set.domains, training_set.rows_D.tolist())
        self._size, self._seed = batch_size, seed
        self._batches = 0
        self.target_U = self.sampler.propose()
        self.rows: list[int] = []
        self.exposures_D = np.zeros(len(training_set.domains), np.int64)
        self.live_exposures_D = np.zeros(len(training_set.domains), np.int64)

    @property
    def drawn_D(self) -> Int:
        """Prompts of each domain in the last batch."""
        domains = self.training_set.domain_R[self.rows]
        return np.bincount(domains, minlength=len(self.training_set.domains))

    def saw(self, live_domains: Sequence[str]) -> None:
        """Count the groups that carried signal.

        Args:
            live_domains: domain of each such group of the last batch.
        """
        names = list(live_domains)
        counts = [names.count(domain) for domain in self.training_set.domains]
        self.live_exposures_D = self.live_exposures_D + np.array(counts)

    def __len__(self) -> int:
        """Batches of one pass over the training set."""
        return len(self.training_set.domain_R) // self._size

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        self.target_U = self.sampler.propose()
        drawn = self._draw(self.target_U)
        self.rows = sorted(drawn.tolist())
        self.exposures_D = self.exposures_D + self.drawn_D
        self._batches += 1
        order = np.random.default_rng((self._seed, 0, self._batches)).permutation(len(drawn))
        return drawn[order].tolist()

    @abstractmethod
    def _draw(self, target_U: Float) -> Int:
        """Rows of the next batch."""

    def state_dict(self) -> dict[str, Any]:
        """All that :meth:`load_state_dict` needs."""
        return {
            "sampler": self.sampler.state_dict(),
            "batches": self._batches,
            "exposures": self.exposures_D.tolist(),
            "live_exposures": self.live_exposures_D.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken."""
        self.sampler.load_state_dict(state["sampler"])
        self._batches = int(state["batches"])
        self.exposures_D = np.array(state["exposures"], dtype=np.int64)
        self.live_exposures_D = np.array(state["live_exposures"], dtype=np.int64)


class PromptRows(RowSampler):
    """Each row is a unit: drawn without replacement, by its share."""

    def _draw(self, target_U: Float) -> Int:
        return draw_rows(target_U, self._size, self._seed, self._batches)


class DomainRows(RowSampler):
    """Each domain is a unit, with a seeded permutation and a cursor.

    At a permutation's end the domain is shuffled anew. A batch holds no row twice unless its quota
    of a domain exceeds the domain.

    Raises:
        DfsimError: a domain of the sampler has no row.
    """

    def __init__(
        self, strategy: SamplingStrategy, training_set: TrainingSet, batch_size: int, seed: int
    ) -> None:
        super().__init__(strategy, training_set, batch_size, seed)
        domains = training_set.domains
        self._quotas = Quotas(domains)
        self._rows = [np.flatnonzero(training_set.domain_R == d) for d in range(len(domains))]
        for domain, rows in zip(domains, self._rows, strict=True):
            if not len(rows):
                raise DfsimError(f"the training set has no row of domain '{domain}'")
        count = len(domains)
        self._cursor, self._round = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._held: list[list[int]] = [[] for _ in range(count)]

    def _draw(self, target_U: Float) -> Int:
        quota_D = self._quotas.take(target_U, self._size)
        return np.concatenate([self._take(d, int(n)) for d, n in enumerate(quota_D)])

    def _take(self, domain: int, count: int) -> Int:
        """The next rows of a domain; a new round puts the rows that this batch holds last."""
        size = len(self._rows[domain])
        taken: list[int] = []
        while len(taken) < count:
            start = int(self._cursor[domain])
            rest = self._order(domain)[start : start + count - len(taken)]
            taken += rest.tolist()
            self._cursor[domain] += len(rest)
            if self._cursor[domain] == size:
                self._cursor[domain], self._round[domain] = 0, self._round[domain] + 1
                self._held[domain] = taken[-size:]
        return np.array(taken, dtype=np.int64)

    def _order(self, domain: int) -> Int:
        """Order of a domain's rows in its present round."""
        rng = np.random.default_rng((self._seed, 1 + domain, int(self._round[domain])))
        order = rng.permutation(self._rows[domain])
        last = np.isin(order, self._held[domain])
        return np.concatenate((order[~last], order[last]))

    def state_dict(self) -> dict[str, Any]:
        """All that :meth:`load_state_dict` needs."""
        return super().state_dict() | {
            "carry": self._quotas.carry.tolist(),
            "cursor": self._cursor.tolist(),
            "round": self._round.tolist(),
            "held": self._held,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken."""
        super().load_state_dict(state)
        self._quotas.carry = np.array(state["carry"], dtype=np.float64)
        self._cursor = np.array(state["cursor"], dtype=np.int64)
        self._round = np.array(state["round"], dtype=np.int64)
        self._held = [list(rows) for rows in state["held"]]


ROW_SAMPLERS: Mapping[str, type[RowSampler]] = {"domain": DomainRows, "prompt": PromptRows}
"""How a sampler's level is drawn."""
