"""Per-response and per-group sums of one step, from which every estimator is computed.

Two steps: :class:`StepTerms` holds what no strategy changes, :class:`Weighted` the sums of K
decisions at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..strategies.base import Decision
from ..traces.advantage import REWARD_TOL, live_groups
from ..traces.batch import RolloutBatch, one_minus_prob_sq
from ..traces.ragged import AnyArray, Bool, Float, Int, segment_mean, segment_sum
from .aggregation import LossAggMode, coefficients, output_tokens

Extremes = tuple[Float, Float, Float, Float]


class StepTerms:
    """Sums of one batch under one loss aggregation, before any weight.

    Attributes:
        batch: the step.
        coef_N: Σ_t c_it.
        noise_N: Σ_t c²u with u = (1−π)², or 1 where log-probs are unknown.
        norm_N: Σ_t c²(1−π)²; ``None`` where log-probs are unknown.
        deviation_N: d_i = r_i − mean reward of the group; NaN rewards 0.
        live_G: whether a group's rewards differ.
    """

    def __init__(
        self, batch: RolloutBatch, mode: LossAggMode, reward_tol: float = REWARD_TOL
    ) -> None:
        self.batch = batch
        coef_O = coefficients(batch, mode)
        tokens_O = output_tokens(batch)
        self.has_lengths = batch.num_tokens_N is not None
        self.tokens_N: Int = self._per_response(tokens_O)
        self.coef_N: Float = self._per_response(coef_O * tokens_O)
        square_O = coef_O * coef_O
        norms = batch.one_minus_prob_sq_O
        self.norm_N: Float | None = None
        noise_O: AnyArray = square_O * tokens_O
        if norms is not None:
            noise_O = square_O * norms
            self.norm_N = self._per_response(noise_O)
        self.noise_N: Float = self._per_response(noise_O)
        self._coef_O, self._tokens_O = coef_O, tokens_O
        self.live_G: Bool = live_groups(batch.reward_N, batch.group_offsets, reward_tol)
        self.deviation_N = self._deviation()

    def _per_response(self, values_O: AnyArray) -> AnyArray:
        offsets = self.batch.output_offsets
        return values_O if offsets is None else segment_sum(values_O, offsets)

    def _deviation(self) -> Float:
        reward, offsets = self.batch.reward_N, self.batch.group_offsets
        nan = np.isnan(reward)
        if not nan.any():
            return reward - segment_mean(reward, offsets)[self.batch.group_N]
        total = segment_sum(np.where(nan, 0.0, reward), offsets)
        count = segment_sum((~nan).astype(np.int64), offsets)
        mean = total / np.maximum(count, 1)
        return np.where(nan, 0.0, reward - mean[self.batch.group_N])

    def group_sum(self, values_KN: AnyArray) -> AnyArray:
        """Sum over the responses of each group, along the last axis: (K, N) → (K, G)."""
        batch = self.batch
        if len(batch.buckets) == 1:
            n = batch.buckets[0].size
            folded = values_KN.reshape(*values_KN.shape[:-1], batch.num_groups, n)
            return folded @ np.ones(n, dtype=folded.dtype)
        return np.add.reduceat(values_KN, batch.group_offsets[:-1], axis=-1)

    @cached_property
    def coef_T(self) -> Float:
        """c_it per token."""
        return np.repeat(self._coef_O, self._tokens_O)

    @cached_property
    def norm_T(self) -> Float | None:
        """(1−π)² per token, where token log-probs were read."""
        log_prob = self.batch.old_log_prob_T
        return None if log_prob is None else one_minus_prob_sq(log_prob)

    @cached_property
    def advantage_T(self) -> Float:
        """A_it per token."""
        if self.batch.advantage_T is not None:
            return self.batch.advantage_T
        return np.repeat(self.batch.advantage_N, self.tokens_N)

    def token_sum(self, values_T: Float) -> Float:
        """Sum over the tokens of each response (N)."""
        assert self.batch.token_offsets is not None
        return segment_sum(values_T, self.batch.token_offsets)


class Weighted:
    """Sums of K decisions over one step. Letters: w weight, A advantage (A′ where replaced).

    Attributes:
        terms: the step's own sums.
        decisions: the weights (K).
        weight_KN: w_i.
        loss_KN: Σ_t c w.
        signed_KN: Σ_t c w A.
        positive_KN: Σ_t c w A over A > 0.
        signal_KN: Σ_t c w |A|.
        energy_KN: Σ_t c² w² A² u.
        moved_KN: whether a token has |wA| > 0, as a number ≥ 0.
        tokens_kept_KN: tokens with w_it > 0.
        token_weight_KN: Σ_t w_it.
        token_weight_sq_KN: Σ_t w_it².
    """

    def __init__(self, terms: StepTerms, decisions: Sequence[Decision]) -> None:
        self.terms, self.decisions = terms, decisions
        self._extremes: dict[bool, Extremes] = {}
        batch = terms.batch
        weight = np.stack([d.weight_N for d in decisions])
        advantage = np.stack(
            [batch.advantage_N if d.advantage_N is None else d.advantage_N for d in decisions]
        )
        self.weight_KN: Float = weight
        self.tokens_kept_KN: Float = np.where(weight > 0, terms.tokens_N, 0).astype(np.float64)
        self.token_weight_KN: Float = weight * terms.tokens_N
        self.token_weight_sq_KN: Float = weight * self.token_weight_KN
        moved = weight * advantage
        self.moved_KN: Float = np.abs(moved)
        self.moved_KN[:, terms.tokens_N == 0] = 0.0
        self.loss_KN: Float = weight * terms.coef_N
        self.signed_KN: Float = moved * terms.coef_N
        self.signal_KN: Float = np.abs(self.signed_KN)
        self.positive_KN: Float = np.maximum(self.signed_KN, 0.0)
        self.energy_KN: Float = moved * moved * terms.noise_N
        self.token_rows = {
            k: TokenSums(terms, d)
            for k, d in enumerate(decisions)
            if batch.token_offsets is not None
            and (d.token_weight_T is not None or batch.advantage_T is not None)
        }
        for k, row in self.token_rows.items():
            for name in TokenSums.SUMS:
                getattr(self, f"{name}_KN")[k] = terms.token_sum(getattr(row, f"{name}_T"))

    def group_sum(self, values_KN: AnyArray) -> AnyArray:
        """Sum over the responses of each group (K, G)."""
        return self.terms.group_sum(values_KN)

    @cached_property
    def signal_KG(self) -> Float:
        """s_g = Σ c w |A| over the group."""
        return self.group_sum(self.signal_KN)

    @cached_property
    def positive_KG(self) -> Float:
        """Σ c w A over A > 0, over the group."""
        return self.group_sum(self.positive_KN)

    @cached_property
    def projection_KG(self) -> Float:
        """S_g = Σ c w A d over the group."""
        return self.group_sum(self.signed_KN * self.terms.deviation_N)

    @cached_property
    def kept_KG(self) -> Float:
        """Responses with w_i > 0 of the group."""
        return self.group_sum((self.weight_KN > 0).astype(np.float64))

    @cached_property
    def trained_KG(self) -> Bool:
        """Groups with Σ |wA| > 0 over their tokens, live or not."""
        return self.group_sum(self.moved_KN) > 0

    @cached_property
    def signal_group_KG(self) -> Bool:
        """Live groups with Σ |wA| > 0."""
        return self.trained_KG & self.terms.live_G

    def energy_extremes(self, by_domain: bool) -> Extremes:
        """Summands (K, G) of the extreme energy ratios: high numerator, denominator, low ones.

        The log-prob fixes u only to [(1−π)², 2(1−π)²]. With k = c²A²(1−π)² and k′ the decision's
        own c²w²A²(1−π)², the ratio Σ k′v/Σ k v over v ∈ [1, 2] is greatest when v is 2 above a cut
        of k′/k and 1 below it, least the other way round. Resamples of groups keep the cut, which
        is exact to first order.

        Args:
            by_domain: cut inside each domain instead of over the batch.
        """
        if by_domain not in self._extremes:
            self._extremes[by_domain] = self._energy_extremes(by_domain)
        return self._extremes[by_domain]

    def _energy_extremes(self, by_domain: bool) -> Extremes:
        terms, batch = self.terms, self.terms.batch
        assert terms.norm_N is not None
        domain = None
        if by_domain and batch.domain_N is not None:
            domain = batch.domain_N
        base = terms.norm_N * np.square(batch.advantage_N)
        parts = _extreme_parts(self.energy_KN, np.broadcast_to(base, self.energy_KN.shape), domain)
        sums = [self.group_sum(p) for p in parts]
        for k, row in self.token_rows.items():
            assert batch.token_offsets is not None
            own_domain = None
            if domain is not None:
                own_domain = np.repeat(domain, np.diff(batch.token_offsets))
            tokens = _extreme_parts(row.energy_T[None], row.base_T[None], own_domain)
            for total, values in zip(sums, tokens, strict=True):
                total[k] = terms.group_sum(terms.token_sum(values[0])[None])[0]
        return sums[0], sums[1], sums[2], sums[3]


class TokenSums:
    """Summands per token (T) of a decision that weighs tokens, or of advantages per token."""

    SUMS = (
        "tokens_kept",
        "token_weight",
        "token_weight_sq",
        "moved",
        "loss",
        "signed",
        "signal",
        "positive",
        "energy",
    )

    def __init__(self, terms: StepTerms, decision: Decision) -> None:
        weight = decision.token_weight_T
        if weight is None:
            weight = np.repeat(decision.weight_N, terms.tokens_N)
        advantage = terms.advantage_T
        if decision.advantage_N is not None:
            advantage = np.repeat(decision.advantage_N, terms.tokens_N)
        self.tokens_kept_T: Float = (weight > 0).astype(np.float64)
        self.token_weight_T: Float = weight
        self.token_weight_sq_T: Float = weight * weight
        self.moved_T: Float = np.abs(weight * advantage)
        self.loss_T: Float = terms.coef_T * weight
        self.signed_T: Float = self.loss_T * advantage
        self.signal_T: Float = np.abs(self.signed_T)
        self.positive_T: Float = np.maximum(self.signed_T, 0.0)
        norm = terms.norm_T
        unit = norm if norm is not None else np.ones(len(weight))
        self.energy_T: Float = np.square(self.signed_T) * unit
        self.base_T: Float = np.square(terms.coef_T * terms.advantage_T) * unit


def _extreme_parts(own: Float, base: Float, domain: Int | None) -> tuple[Float, ...]:
    """Numerator and denominator summands (K, ·) of the greatest ratio, then of the least."""
    found: list[Float] = []
    for sign in (1.0, -1.0):
        factor = _factors(own, base, domain, sign)
        found += [own * factor, base * factor]
    return tuple(found)


def _factors(own: Float, base: Float, domain: Int | None, sign: float) -> Float:
    """Factors v ∈ {1, 2} (K, ·) that make Σ own·v / Σ base·v greatest (sign 1) or least (−1).

    Dinkelbach's iteration (Management Science 13, 1967): for the current ratio λ the best v is 2
    where own is beyond λ·base; it reaches the optimum in finitely many rounds.
    """
    codes = np.zeros(own.shape[1], dtype=np.int64) if domain is None else domain
    count = int(codes.max(initial=0)) + 1
    membership = codes[:, None] == np.arange(count)
    factor = np.ones(own.shape)
    while True:
        top, bottom = (own * factor) @ membership, (base * factor) @ membership
        ratio = np.divide(top, bottom, out=np.zeros(top.shape), where=bottom > 0)
        beyond = sign * (own - ratio[:, codes] * base) > 1e-12 * own
        better = np.where(beyond, 2.0, 1.0)
        if np.array_equal(better, factor):
            return factor
        factor = better
