"""Sums of all parts over a step, for the step itself, each domain, and bootstrap resamples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ...strategies.base import Decision
from ...traces.batch import RolloutBatch
from ...traces.ragged import Float, Int
from ..aggregation import LossAggMode
from ..terms import StepTerms, Weighted
from .base import MISSING, Estimator, Part

BASELINE = "none"


class StepSums:
    """Parts of one step for K decisions, summed over its groups, each domain's, and resamples.

    Scope 0 is the step, scope 1+d domain d; row 0 the step as logged, then R resamples.

    Args:
        batch: the step.
        decisions: name → decision; K of them.
        estimators: what to evaluate.
        mode: verl's loss aggregation.
        reward_tol: rewards closer than this are one value.
        domains: D, or 0 for the step alone.
        counts_RG: how often each of R resamples holds each group.
    """

    def __init__(
        self,
        batch: RolloutBatch,
        decisions: Mapping[str, Decision],
        estimators: Sequence[Estimator],
        mode: LossAggMode,
        reward_tol: float,
        domains: int = 0,
        counts_RG: Float | None = None,
    ) -> None:
        self.batch, self.estimators, self.mode = batch, estimators, mode
        self.terms = StepTerms(batch, mode, reward_tol)
        self.weighted = Weighted(self.terms, list(decisions.values()))
        self._uniform = Weighted(self.terms, [Decision(np.ones(batch.num_responses))])
        self._counts = np.zeros((0, batch.num_groups)) if counts_RG is None else counts_RG
        self._scopes = 1 + domains
        self._cuts = np.array([0, batch.num_groups])
        self._order: slice | Int = slice(None)
        self._split = domains > 0 and batch.domain_G is not None
        if self._split and batch.domain_G is not None:
            self._order = np.argsort(batch.domain_G, kind="stable")
            sizes = np.bincount(batch.domain_G, minlength=domains)
            self._cuts = np.concatenate(([0], np.cumsum(sizes)))

    def values(self) -> Float:
        """Value of every estimator (E, 1+D, 1+R, K)."""
        lacking = self.lacking()
        shape = (self._scopes, 1 + len(self._counts), len(self.weighted.decisions))
        out = np.full((len(self.estimators), *shape), np.nan)
        for index, estimator in enumerate(self.estimators):
            if not lacking.isdisjoint(estimator.needs):
                continue
            if any(p.largest for p in estimator.parts):
                out[index, :, :1] = estimator.value(*(self._largest(p) for p in estimator.parts))
            else:
                inside = estimator.domain_parts or estimator.parts
                pairs = zip(estimator.parts, inside, strict=True)
                out[index] = estimator.value(*(self.sums(p, d) for p, d in pairs))
        return out

    def sums(self, part: Part, inside: Part | None = None) -> Float:
        """Sums of a part (1+D, 1+R, K or 1); ``inside`` replaces it in the domains' scopes."""
        found = self._sums[part]
        if inside is None or inside is part:
            return found
        return np.concatenate((found[:1], self._sums[inside][1:]))

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        used = (p for e in self.estimators for p in (*e.parts, *(e.domain_parts or ())))
        return tuple(dict.fromkeys(used))

    @cached_property
    def _sums(self) -> dict[Part, Float]:
        """All sums at once: one matrix product a domain serves every part and resample."""
        tables = [p.of(self._uniform if p.baseline else self.weighted) for p in self._parts]
        stacked = np.concatenate(tables)[:, self._order]
        pieces = []
        for start, end in zip(self._cuts[:-1], self._cuts[1:], strict=True):
            columns = stacked[:, start:end]
            with np.errstate(invalid="ignore"):
                resampled = self._counts[:, start:end] @ columns.T
            pieces.append(np.concatenate((columns.sum(axis=1)[None], resampled)))
        every = np.full((self._scopes, *pieces[0].shape), np.nan)
        every[0] = np.add.reduce(pieces)
        if self._split:
            every[1:] = pieces
        cuts = np.cumsum([len(t) for t in tables])[:-1]
        return dict(zip(self._parts, np.split(every, cuts, axis=2), strict=True))

    def _largest(self, part: Part) -> Float:
        """Maximum over the groups of each scope (1+D, 1, K); NaN where a scope has none."""
        table = part.of(self.weighted)[:, self._order]
        found = np.full((self._scopes, 1, len(table)), np.nan)
        found[0, 0] = table.max(axis=1)
        if self._split:
            for scope, (start, end) in enumerate(zip(self._cuts[:-1], self._cuts[1:], strict=True)):
                if end > start:
                    found[1 + scope, 0] = table[:, start:end].max(axis=1)
        return found

    def lacking(self) -> set[str]:
        """What the step lacks of that which estimators need."""
        lacking = {
            "lengths": self.batch.num_tokens_N is None,
            "log_probs": self.batch.one_minus_prob_sq_O is None,
            "loss_scale_factor": self.mode == "seq-mean-token-sum-norm"
            and self.batch.loss_scale_factor is None,
        }
        assert lacking.keys() == MISSING.keys()
        return {name for name, absent in lacking.items() if absent}
