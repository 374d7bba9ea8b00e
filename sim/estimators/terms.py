"""Per-response and per-group sums of one step, from which every estimator is computed.

Two steps: :class:`StepTerms` holds what no strategy changes, :class:`Weighted` the sums of K
decisions at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from ...strategies.base import Decision
from ...traces.advantage import REWARD_TOL, live_groups
from ...traces.batch import RolloutBatch, one_minus_prob_sq
from ...traces.ragged import AnyArray, Bool, Float, Int, ratio, segment_mean, segment_sum
from .aggregation import LossAggMode, coefficients, output_tokens

Extremes = tuple[Float, Float, Float, Float]


class StepTerms:
    """Sums of one batch under one loss aggregation, before any weight.

    Attributes:
        batch: the step.
        coef_N: Σ_t c_it.
        noise_N: Σ_t c²u with u = (1−π)², or 1 where log-probs are unknown.
        even_noise_N: Σ_t c².
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
        self.tokens_N: Int = self._per_response(tokens_O)
        self.coef_N: Float = self._per_response(coef_O * tokens_O)
        square_O = coef_O * coef_O
        norms = batch.one_minus_prob_sq_O
        self.norm_N: Float | None = None
        noise_O: AnyArray = square_O * tokens_O
        self.even_noise_N: Float = self._per_response(noise_O)
        if norms is not None:
            noise_O = square_O * norms
            self.norm_N = self._per_response(noise_O)
        self.noise_N: Float = self._per_response(noise_O)
        self._coef_O, self._tokens_O = coef_O, tokens_O
        self.live_G: Bool = live_groups(batch.reward_N, batch.group_offsets, reward_tol)
        self.deviation_N = self._deviation()

    @cached_property
    def evenness_G(self) -> Float:
        """(Σ|d|)²/(n Σd²) of a group: 4p(1 − p) for a solve rate p; 0 where all are alike."""
        offsets = self.batch.group_offsets
        known = segment_sum((~np.isnan(self.batch.reward_N)).astype(np.int64), offsets)
        total = segment_sum(np.abs(self.deviation_N), offsets)
        squares = segment_sum(np.square(self.deviation_N), offsets)
        return np.where(self.live_G, np.nan_to_num(ratio(total * total, known * squares)), 0.0)

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
        even_energy_KN: Σ_t c² w² A², as if every token's gradient were of one size.
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
        self.even_energy_KN: Float = moved * moved * terms.even_noise_N
        self.token_rows = {
            k: TokenTerms(terms, d)
            for k, d in enumerate(decisions)
            if batch.token_offsets is not None
            and (d.token_weight_T is not None or batch.advantage_T is not None)
        }
        for k, row in self.token_rows.items():
            for name, values in row.sums():
                getattr(self, f"{name}_KN")[k] = values

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
        base = np.broadcast_to(terms.norm_N * np.square(batch.advantage_N), self.energy_KN.shape)
        found: list[Float] = []
        for sign in (1.0, -1.0):
            factor = 1.0 + _doubled(self.energy_KN, base, domain, sign)
            top, bottom = self.group_sum(self.energy_KN * factor), self.group_sum(base * factor)
            for k, row in self.token_rows.items():
                for total, values in zip((top, bottom), row.extremes(domain, sign), strict=True):
                    total[k] = self.group_sum(values[None])[0]
            found += [top, bottom]
        return found[0], found[1], found[2], found[3]


class TokenTerms:
    """A decision that weighs tokens, or advantages per token: sums over each response's tokens.

    Arrays over tokens are made one after the other, so that few are alive at a time.
    """

    def __init__(self, terms: StepTerms, decision: Decision) -> None:
        self._terms, self._decision = terms, decision

    @property
    def _weight_T(self) -> Float:
        weight = self._decision.token_weight_T
        if weight is not None:
            return weight
        return np.repeat(self._decision.weight_N, self._terms.tokens_N)

    def _moved_T(self) -> Float:
        """w A per token."""
        replaced = self._decision.advantage_N
        if replaced is None:
            return self._weight_T * self._terms.advantage_T
        return self._weight_T * np.repeat(replaced, self._terms.tokens_N)

    def _energy_T(self, signed_T: Float) -> Float:
        """Square times u per token, in place."""
        np.square(signed_T, out=signed_T)
        if self._terms.norm_T is not None:
            signed_T *= self._terms.norm_T
        return signed_T

    def sums(self) -> Iterator[tuple[str, Float]]:
        """Name of a sum of :class:`Weighted` and its values (N)."""
        fold, weight = self._terms.token_sum, self._weight_T
        yield "tokens_kept", fold((weight > 0).astype(np.float64))
        yield "token_weight", fold(weight)
        yield "token_weight_sq", fold(weight * weight)
        yield "loss", fold(weight * self._terms.coef_T)
        signed = self._moved_T()
        yield "moved", fold(np.abs(signed))
        signed *= self._terms.coef_T
        yield "signed", fold(signed)
        yield "signal", fold(np.abs(signed))
        yield "positive", fold(np.maximum(signed, 0.0))
        yield "even_energy", fold(signed * signed)
        yield "energy", fold(self._energy_T(signed))

    def extremes(self, domain_N: Int | None, sign: float) -> tuple[Float, Float]:
        """Numerator and denominator (N) of the greatest energy ratio (sign 1), or least (−1)."""
        terms = self._terms
        own = self._energy_T(self._moved_T() * terms.coef_T)
        base = self._energy_T(terms.coef_T * terms.advantage_T)
        domain = None if domain_N is None else np.repeat(domain_N, terms.tokens_N)
        doubled = _doubled(own[None], base[None], domain, sign)[0]
        own[doubled] *= 2
        base[doubled] *= 2
        return terms.token_sum(own), terms.token_sum(base)


def _doubled(own: Float, base: Float, domain: Int | None, sign: float) -> Bool:
    """Where v ∈ {1, 2} (K, ·) is 2 so that Σ own·v / Σ base·v is greatest (sign 1) or least (−1).

    Dinkelbach's iteration (Management Science 13, 1967): for the current ratio λ the best v is 2
    where own is beyond λ·base; it reaches the optimum in finitely many rounds.
    """
    doubled = np.zeros(own.shape, dtype=bool)
    slack = 1e-12 * own.max(axis=1, initial=0.0)[:, None]
    while True:
        top = _by_domain(own, domain) + _by_domain(own * doubled, domain)
        bottom = _by_domain(base, domain) + _by_domain(base * doubled, domain)
        ratio = np.divide(top, bottom, out=np.zeros(top.shape), where=bottom > 0)
        gap = base * (ratio if domain is None else ratio[:, domain])
        np.subtract(own, gap, out=gap)
        better = gap * sign > slack
        if np.array_equal(better, doubled):
            return doubled
        doubled = better


def _by_domain(values: Float, domain: Int | None) -> Float:
    """Sum of each row (K, 1), or of each row and domain (K, D)."""
    if domain is None:
        return values.sum(axis=1, keepdims=True)
    count = int(domain.max(initial=0)) + 1
    return np.stack([np.bincount(domain, row, count) for row in values])
