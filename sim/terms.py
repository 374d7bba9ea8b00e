"""Per-response and per-group sums of one step, from which every estimator is computed.

Two steps: :class:`StepTerms` holds what no strategy changes, :class:`Weighted` one decision's sums.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..strategies.base import Decision
from ..traces.advantage import REWARD_TOL, live_groups
from ..traces.batch import RolloutBatch, one_minus_prob_sq
from ..traces.ragged import AnyArray, Bool, Float, Int, segment_mean, segment_sum
from .aggregation import LossAggMode, coefficients, output_tokens


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
        self.norm_N: Float | None = None if norms is None else self._per_response(square_O * norms)
        self.noise_N = self._per_response(square_O * tokens_O) if norms is None else self.norm_N
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

    def group_sum(self, values_N: AnyArray) -> AnyArray:
        """Sum over the responses of each group (G)."""
        return segment_sum(values_N, self.batch.group_offsets)

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
    """One decision's sums over one step. Letters: w weight, A advantage (A′ where replaced).

    Attributes:
        terms: the step's own sums.
        decision: the weights.
        loss_N: Σ_t c w.
        signal_N: Σ_t c w |A|.
        signed_N: Σ_t c w A.
        energy_N: Σ_t c² w² A² u.
        moved_N: whether a token has |wA| > 0, as a number ≥ 0.
    """

    def __init__(self, terms: StepTerms, decision: Decision) -> None:
        self.terms, self.decision = terms, decision
        self._extremes: dict[bool, tuple[Float, Float, Float, Float]] = {}
        batch = terms.batch
        weight = decision.weight_N
        self.per_token = decision.token_weight_T is not None or batch.advantage_T is not None
        if self.per_token and batch.token_offsets is not None:
            self._from_tokens()
            return
        advantage = batch.advantage_N if decision.advantage_N is None else decision.advantage_N
        self.moved_N: Float = np.where(terms.tokens_N > 0, np.abs(weight * advantage), 0.0)
        self.tokens_kept_N: AnyArray = np.where(weight > 0, terms.tokens_N, 0)
        self.token_weight_N: Float = weight * terms.tokens_N
        self.token_weight_sq_N: Float = weight * self.token_weight_N
        self.loss_N: Float = terms.coef_N * weight
        self.signed_N: Float = self.loss_N * advantage
        self.signal_N: Float = np.abs(self.signed_N)
        self.positive_N: Float = np.maximum(self.signed_N, 0.0)
        self.negative_N: Float = self.positive_N - self.signed_N
        self.energy_N: Float = terms.noise_N * np.square(weight * advantage)

    def _from_tokens(self) -> None:
        terms, batch = self.terms, self.terms.batch
        weight_T = self.decision.token_weight_T
        if weight_T is None:
            weight_T = np.repeat(self.decision.weight_N, terms.tokens_N)
        advantage_T = terms.advantage_T
        if self.decision.advantage_N is not None:
            advantage_T = np.repeat(self.decision.advantage_N, terms.tokens_N)
        loss_T = terms.coef_T * weight_T
        signed_T = loss_T * advantage_T
        self.moved_N = terms.token_sum(np.abs(weight_T * advantage_T))
        self.tokens_kept_N = terms.token_sum((weight_T > 0).astype(np.int64))
        self.token_weight_N = terms.token_sum(weight_T)
        self.token_weight_sq_N = terms.token_sum(weight_T * weight_T)
        self.loss_N = terms.token_sum(loss_T)
        self.signed_T = signed_T
        self.signed_N = terms.token_sum(signed_T)
        self.positive_N = terms.token_sum(np.maximum(signed_T, 0.0))
        self.negative_N = self.positive_N - self.signed_N
        self.signal_N = self.positive_N + self.negative_N
        norm_T = terms.norm_T
        if norm_T is None and batch.one_minus_prob_sq_O is not None:
            mean = np.divide(
                batch.one_minus_prob_sq_O,
                terms._tokens_O,
                out=np.zeros(len(terms._tokens_O)),
                where=terms._tokens_O > 0,
            )
            norm_T = np.repeat(mean, terms._tokens_O)
        self.norm_T = norm_T
        u_T = 1.0 if norm_T is None else norm_T
        self.energy_N = terms.token_sum(signed_T * signed_T * u_T)

    def group_sum(self, values_N: AnyArray) -> AnyArray:
        """Sum over the responses of each group (G)."""
        return self.terms.group_sum(values_N)

    @cached_property
    def signal_G(self) -> Float:
        """s_g = Σ c w |A| over the group."""
        return self.group_sum(self.signal_N)

    @cached_property
    def projection_G(self) -> Float:
        """S_g = Σ c w A d over the group."""
        return self.group_sum(self.signed_N * self.terms.deviation_N)

    @cached_property
    def signal_group_G(self) -> Bool:
        """Live groups with Σ |wA| > 0."""
        return self.terms.live_G & self.trained_G

    @cached_property
    def trained_G(self) -> Bool:
        """Groups with Σ |wA| > 0 over their tokens, live or not."""
        return self.group_sum(self.moved_N) > 0

    def energy_extremes(self, by_domain: bool) -> tuple[Float, Float, Float, Float]:
        """Summands (G) of the extreme energy ratios: high numerator, denominator, low ones.

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

    def _energy_extremes(self, by_domain: bool) -> tuple[Float, Float, Float, Float]:
        terms, batch = self.terms, self.terms.batch
        if self.per_token and batch.token_offsets is not None:
            assert self.norm_T is not None
            base = np.square(terms.coef_T * terms.advantage_T) * self.norm_T
            own = np.square(self.signed_T) * self.norm_T
            lengths = np.diff(batch.token_offsets)
        else:
            assert terms.norm_N is not None
            base = terms.norm_N * np.square(batch.advantage_N)
            own = self.energy_N
            lengths = None
        domain = np.zeros(len(base), dtype=np.int64)
        if by_domain and batch.domain_N is not None:
            domain = batch.domain_N if lengths is None else np.repeat(batch.domain_N, lengths)
        high = np.ones(len(base))
        low = np.ones(len(base))
        for code in np.unique(domain):
            inside = domain == code
            high[inside], low[inside] = _extreme_factors(own[inside], base[inside])
        parts = [own * high, base * high, own * low, base * low]
        if lengths is not None:
            parts = [terms.token_sum(p) for p in parts]
        a, b, c, d = (self.group_sum(p) for p in parts)
        return a, b, c, d


def _extreme_factors(own: Float, base: Float) -> tuple[Float, Float]:
    """Factors v ∈ {1, 2} that make Σ own·v / Σ base·v greatest, and least."""
    slope = np.divide(own, base, out=np.where(own > 0, np.inf, 0.0), where=base > 0)
    order = np.argsort(slope)
    zero = np.zeros(1)
    top = np.concatenate((zero, np.cumsum(own[order])))
    bottom = np.concatenate((zero, np.cumsum(base[order])))
    if not bottom[-1] > 0:
        return np.ones(len(own)), np.ones(len(own))
    high = int(np.argmax((2 * top[-1] - top) / (2 * bottom[-1] - bottom)))
    low = int(np.argmin((top[-1] + top) / (bottom[-1] + bottom)))
    greatest, least = np.full(len(own), 2.0), np.ones(len(own))
    greatest[order[:high]] = 1.0
    least[order[:low]] = 2.0
    return greatest, least
