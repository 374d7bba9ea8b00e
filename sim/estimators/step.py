"""Sums of all parts over a step, for the step itself, each domain, and bootstrap resamples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...strategies.base import Decision
from ...traces.batch import RolloutBatch
from ...traces.ragged import Float, Int
from ..aggregation import LossAggMode
from ..terms import StepTerms, Weighted
from .base import MISSING, Estimator, Part

BASELINE = "none"


class StepSums:
    """Parts of one step for K decisions, ready to be summed over any weighting of its groups.

    Args:
        batch: the step.
        decisions: name → decision; K of them.
        estimators: what to evaluate.
        mode: verl's loss aggregation.
        reward_tol: rewards closer than this are one value.
    """

    def __init__(
        self,
        batch: RolloutBatch,
        decisions: Mapping[str, Decision],
        estimators: Sequence[Estimator],
        mode: LossAggMode,
        reward_tol: float,
    ) -> None:
        terms = StepTerms(batch, mode, reward_tol)
        uniform = Weighted(terms, Decision(np.ones(batch.num_responses)))
        self.weighted = {name: Weighted(terms, d) for name, d in decisions.items()}
        self.batch, self.estimators = batch, estimators
        used = dict.fromkeys(p for e in estimators for p in (*e.parts, *(e.domain_parts or ())))
        self._shared = {p: i for i, p in enumerate(p for p in used if p.baseline)}
        self._own = {p: i for i, p in enumerate(p for p in used if not p.baseline)}
        self._shared_parts = np.stack([p.of(uniform) for p in self._shared], axis=1)
        self._own_parts = np.stack(
            [np.stack([p.of(w) for w in self.weighted.values()], axis=1) for p in self._own], axis=1
        )

    def _scopes(self, domains: int) -> list[Int | slice]:
        codes = self.batch.domain_G
        if codes is None:
            return [slice(None)]
        return [slice(None), *(np.flatnonzero(codes == d) for d in range(domains))]

    def values(self, domains: int = 0, counts_RG: Float | None = None) -> Float:
        """Value of every estimator (E, 1+D, 1+R, K): scope 0 is the step, row 0 as logged.

        Args:
            domains: D, or 0 for the step alone.
            counts_RG: how often each of R resamples holds each group.
        """
        scopes = self._scopes(domains)
        rows = 1 if counts_RG is None else 1 + len(counts_RG)
        names, lacking = len(self.weighted), self.lacking()
        out = np.full((len(self.estimators), 1 + domains, rows, names), np.nan)
        for scope, groups in enumerate(scopes):
            shared = self._sum(self._shared_parts[groups], groups, counts_RG)
            own = self._sum(self._own_parts[groups], groups, counts_RG)
            for index, estimator in enumerate(self.estimators):
                if estimator.needs in lacking:
                    continue
                parts = estimator.parts if scope == 0 else estimator.domain_parts or estimator.parts
                sums = [
                    shared[:, self._shared[p], None] if p.baseline else own[:, self._own[p]]
                    for p in parts
                ]
                if any(p.largest for p in parts):
                    sums = [self._largest(p, groups) for p in parts]
                out[index, scope, : len(sums[0])] = estimator.value(*sums)
        return out

    def part_sums(self, parts: Sequence[Part], domains: int, counts_RG: Float | None) -> Float:
        """Sums of the given parts themselves, (P, 1+D, 1+R, K)."""
        rows = 1 if counts_RG is None else 1 + len(counts_RG)
        out = np.zeros((len(parts), 1 + domains, rows, len(self.weighted)))
        for scope, groups in enumerate(self._scopes(domains)):
            index = [self._own[p] for p in parts]
            sums = self._sum(self._own_parts[groups][:, index], groups, counts_RG)
            out[:, scope] = np.moveaxis(sums, 1, 0)
        return out

    def _sum(self, parts: Float, groups: Int | slice, counts_RG: Float | None) -> Float:
        whole = parts.sum(axis=0)[None]
        if counts_RG is None:
            return whole
        flat = parts.reshape(len(parts), -1)
        with np.errstate(invalid="ignore"):
            resampled = counts_RG[:, groups] @ flat
        return np.concatenate((whole, resampled.reshape(-1, *parts.shape[1:])))

    def _largest(self, part: Part, groups: Int | slice) -> Any:
        values = self._own_parts[groups][:, self._own[part]]
        if len(values) == 0:
            return np.full((1, len(self.weighted)), np.nan)
        return values.max(axis=0)[None]

    def lacking(self) -> set[str]:
        """What the step lacks of that which estimators need."""
        lacking = {
            "lengths": self.batch.num_tokens_N is None,
            "log_probs": self.batch.one_minus_prob_sq_O is None,
        }
        assert lacking.keys() == MISSING.keys()
        return {name for name, absent in lacking.items() if absent}
