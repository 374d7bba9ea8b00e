"""Sums of all parts over a step, for the step itself, each domain, and bootstrap resamples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from ...strategies.base import Decision
from ...traces.batch import RolloutBatch
from ...traces.ragged import AnyArray, Bool, Float, Int
from .aggregation import LossAggMode
from .base import MISSING, Estimator, Part
from .terms import StepTerms, Weighted

BASELINE = "none"


class StepSums:
    """Parts of one step for K decisions, summed over its groups, each domain's, and resamples.

    Scope 0 is the step, scope 1+d domain d.

    Args:
        batch: the step.
        decisions: name → decision; K of them.
        estimators: what to evaluate.
        mode: verl's loss aggregation.
        reward_tol: rewards closer than this are one value.
        domains: D, or 0 for the step alone.
    """

    def __init__(
        self,
        batch: RolloutBatch,
        decisions: Mapping[str, Decision],
        estimators: Sequence[Estimator],
        mode: LossAggMode,
        reward_tol: float,
        domains: int = 0,
    ) -> None:
        self.batch, self.estimators, self.mode = batch, estimators, mode
        terms = StepTerms(batch, mode, reward_tol)
        chosen = dict(decisions)
        chosen.setdefault(BASELINE, Decision(np.ones(batch.num_responses)))
        self.weighted = Weighted(terms, list(chosen.values()))
        self._count, self._baseline = len(decisions), list(chosen).index(BASELINE)
        self._scopes = 1 + domains
        self._cuts: list[int] = [0, batch.num_groups]
        self._order: slice | Int = slice(None)
        self._split = domains > 0 and batch.domain_G is not None
        if self._split and batch.domain_G is not None:
            self._order = np.argsort(batch.domain_G, kind="stable")
            sizes = np.bincount(batch.domain_G, minlength=domains)
            self._cuts = [0, *np.cumsum(sizes).tolist()]

    def values(self, sums: PartSums | None = None) -> Float:
        """Value of every estimator (E, 1+D, rows, K), by default of the step as logged (1 row)."""
        sums = self.logged if sums is None else sums
        lacking = self.lacking()
        shape = (len(self.estimators), self._scopes, sums.rows, self._count)
        out = np.full(shape, np.nan, dtype=sums.dtype)
        for index, estimator in enumerate(self.estimators):
            if not lacking.isdisjoint(estimator.needs):
                continue
            if not any(p.largest for p in estimator.parts):
                inside = estimator.domain_parts or estimator.parts
                pairs = zip(estimator.parts, inside, strict=True)
                with np.errstate(over="ignore", invalid="ignore"):  # float32 has an end
                    out[index] = estimator.value(*(sums(p, d) for p, d in pairs))
            elif sums is self.logged:
                out[index] = estimator.value(*(self._largest(p) for p in estimator.parts))
        return out

    @cached_property
    def logged(self) -> PartSums:
        """Sums over the step as logged: one row."""
        pieces = [self._stacked[:, a:b].sum(axis=1)[None] for a, b in pairwise(self._cuts)]
        return self._part_sums(pieces)

    def resampled(self, counts_RG: AnyArray) -> PartSums:
        """Sums over R resamples, given how often each holds each group.

        One matrix product a domain serves every part, in the counts' precision: float32 is ample
        for intervals.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            stacked = self._stacked.astype(counts_RG.dtype, copy=False)
            pieces = [counts_RG[:, a:b] @ stacked[:, a:b].T for a, b in pairwise(self._cuts)]
        return self._part_sums(pieces)

    def _part_sums(self, pieces: list[AnyArray]) -> PartSums:
        every = np.full((self._scopes, *pieces[0].shape), np.nan, dtype=pieces[0].dtype)
        every[0] = np.add.reduce(pieces)
        if self._across.any():
            squares = np.add.reduce([np.square(p[:, self._across]) for p in pieces])
            every[0][:, self._across] = np.sqrt(squares)
        if self._split:
            every[1:] = pieces
        split = np.split(every, self._part_cuts, axis=2)
        return PartSums(dict(zip(self._parts, split, strict=True)))

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        used = (p for e in self.estimators for p in (*e.parts, *(e.domain_parts or ())))
        return tuple(p for p in dict.fromkeys(used) if not p.largest)

    @cached_property
    def _tables(self) -> list[Float]:
        return [self._table(part) for part in self._parts]

    def _table(self, part: Part) -> Float:
        """Values of a part (K, G), of the baseline's alone (1, G)."""
        found = part.of(self.weighted)
        if not part.baseline:
            return found[: self._count]
        return found[self._baseline][None] if len(found) > 1 else found

    @cached_property
    def _across(self) -> Bool:
        """Which rows of the stacked parts combine over domains as a root of squares."""
        flags = [part.across for part in self._parts]
        return np.repeat(flags, [len(table) for table in self._tables])

    @cached_property
    def _part_cuts(self) -> Int:
        return np.cumsum([len(t) for t in self._tables])[:-1]

    @cached_property
    def _stacked(self) -> Float:
        return np.concatenate(self._tables)[:, self._order]

    def _largest(self, part: Part) -> Float:
        """Maximum over the groups of each scope (1+D, 1, K); NaN where a scope has none."""
        table = self._table(part)[:, self._order]
        found = np.full((self._scopes, 1, len(table)), np.nan)
        found[0, 0] = table.max(axis=1)
        if self._split:
            for scope, (start, end) in enumerate(pairwise(self._cuts), start=1):
                if end > start:
                    found[scope, 0] = table[:, start:end].max(axis=1)
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


class PartSums:
    """Sums of every part: (1+D, rows, K or 1)."""

    def __init__(self, sums: Mapping[Part, AnyArray]) -> None:
        self._sums = sums
        first = next(iter(sums.values()))
        self.rows, self.dtype = first.shape[1], first.dtype

    def __call__(self, part: Part, inside: Part | None = None) -> AnyArray:
        """Sums of a part; ``inside`` replaces it in the domains' scopes."""
        found = self._sums[part]
        if inside is None or inside is part:
            return found
        return np.concatenate((found[:1], self._sums[inside][1:]))
