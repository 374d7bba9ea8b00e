"""What mixers need of a trace, read once: every group's sums, and each step as it would be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...strategies.base import Decision, Scores
from ...strategies.mix.base import DomainStep, domain_step
from ...strategies.mix.presets import Mix
from ...traces.batch import RolloutBatch
from ...traces.ragged import Bool, Float, Int, ratio, segment_sum
from ..replay.loop import columns_for
from ..types import Progress

if TYPE_CHECKING:
    from ...traces.store import Trace


@dataclass(frozen=True, eq=False)
class GroupTable:
    """Sums of every logged prompt group, in the order of the log. M groups, D domains, S steps.

    Attributes:
        step_S: training steps.
        step_M: index of a group's step.
        domain_M: its domain.
        reward_M: Σ reward of the responses that count; one whose reward is NaN does not.
        advantage_M: Σ |A| of those.
        responses_M: how many count.
        live_M: whether the group's rewards differ.
    """

    step_S: Int
    step_M: Int
    domain_M: Int
    reward_M: Float
    advantage_M: Float
    responses_M: Int
    live_M: Bool

    def observe(self, step: int, groups: Int, domains: int) -> DomainStep:
        """What a draw of the given groups shows of each domain."""
        code = self.domain_M[groups]

        def total(values: Any) -> Any:
            return np.bincount(code, values[groups], minlength=domains)

        responses = total(self.responses_M)

        def mean(values: Any) -> Float:
            return ratio(total(values), responses)

        return DomainStep(
            step, mean(self.reward_M), mean(self.advantage_M), responses.astype(np.int64)
        )


def group_rows(batch: RolloutBatch, index: int, decision: Decision | None) -> dict[str, Any]:
    """One step's rows of a ``GroupTable``."""
    counts = ~np.isnan(batch.reward_N)
    if decision is not None:
        counts = counts & (decision.weight_N > 0)
    cuts = batch.group_offsets
    assert batch.domain_G is not None
    return {
        "step_M": np.full(batch.num_groups, index),
        "domain_M": batch.domain_G,
        "reward_M": segment_sum(np.where(counts, batch.reward_N, 0.0), cuts),
        "advantage_M": segment_sum(np.where(counts, batch.abs_advantage_N, 0.0), cuts),
        "responses_M": segment_sum(counts.astype(np.int64), cuts),
        "live_M": batch.live_G,
    }


@dataclass(frozen=True, eq=False)
class MixLog:
    """What mixers need of a trace, read once.

    Attributes:
        domains: names of D domains, sorted.
        steps: mixer name → what it would have observed at each step.
        tables: name of the selector of a pipeline (or "") → sums of every group.
        counts_SD: groups logged a step and domain.
    """

    domains: tuple[str, ...]
    steps: Mapping[str, Sequence[DomainStep]]
    tables: Mapping[str, GroupTable]
    counts_SD: Int

    @property
    def prior(self) -> Float:
        """Share of each domain in the log: the prior before a mixer acts."""
        total = self.counts_SD.sum(axis=0).astype(np.float64)
        return total / total.sum()


def read_log(trace: Trace, mixes: Sequence[Mix], progress: Progress | None = None) -> MixLog:
    """Read a trace for mixers.

    Args:
        trace: with domains.
        mixes: whose selectors decide.
        progress: called with (steps done, steps in all).

    Raises:
        TraceError: a selector needs a column that the trace lacks.
        StrategyError: the trace has no domains.
    """
    trace.refuse_evaluation("a mixer steers what trains next")
    trace.require(["domain"], "a mixer")
    domains = tuple(sorted(trace.manifest.domains))
    selectors = {selector_of(m): m.then for m in mixes}
    selectors.setdefault("", None)
    strategies = [s for s in selectors.values() if s is not None]
    for strategy in strategies:
        trace.require(strategy.columns, strategy.name)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in selectors}
    steps: dict[str, list[DomainStep]] = {name: [] for name in selectors}
    counts, numbers = [], []
    total = len(trace.manifest.steps)
    for index, batch in enumerate(trace.batches(columns_for(trace, strategies))):
        scores = Scores(batch)
        for name, selector in selectors.items():
            decision = None if selector is None else selector.decide(batch, scores)
            steps[name].append(domain_step(batch, domains, decision))
            rows[name].append(group_rows(batch, index, decision))
        numbers.append(batch.step)
        counts.append(np.bincount(rows[""][-1]["domain_M"], minlength=len(domains)))
        if progress is not None:
            progress(index + 1, total)
    tables = {
        name: GroupTable(
            step_S=np.array(numbers),
            **{k: np.concatenate([part[k] for part in parts]) for k in parts[0]},
        )
        for name, parts in rows.items()
    }
    by_mix = {m.name: steps[selector_of(m)] for m in mixes}
    return MixLog(domains, by_mix, tables, np.array(counts))


def selector_of(mix: Mix) -> str:
    """Name and parameters of what a mixer's draw passes through, or an empty string."""
    if mix.then is None:
        return ""
    return f"{mix.then.name} {sorted(mix.then.params.items())} {mix.then.tie_seed}"
