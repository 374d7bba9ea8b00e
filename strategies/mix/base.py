"""What a mixer is: it observes each domain's step, and proposes proportions for the next draw.

Shapes: D domains. A mixer is a feedback controller; its rule is a frozen dataclass of parameters,
its state the observations inside the window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...traces.batch import RolloutBatch
from ...traces.errors import StrategyError
from ...traces.ragged import Float, Int, ratio
from ..base import Decision, param


@dataclass(frozen=True, eq=False)
class DomainStep:
    """What one step showed of each domain (D); NaN where it showed nothing.

    Attributes:
        step: training step.
        reward_D: mean reward of the responses that counted; one whose reward is NaN does not.
        advantage_D: mean |A| of those, the run's own, also where a decision replaces advantages.
        responses_D: how many counted.
    """

    step: int
    reward_D: Float
    advantage_D: Float
    responses_D: Int

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values; NaN stays NaN."""
        return {
            "step": self.step,
            "reward": self.reward_D.tolist(),
            "advantage": self.advantage_D.tolist(),
            "responses": self.responses_D.tolist(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> DomainStep:
        """Inverse of :meth:`to_dict`."""
        return cls(
            int(record["step"]),
            np.array(record["reward"], dtype=np.float64),
            np.array(record["advantage"], dtype=np.float64),
            np.array(record["responses"], dtype=np.int64),
        )


def domain_step(
    batch: RolloutBatch, domains: Sequence[str], decision: Decision | None = None
) -> DomainStep:
    """Observe a batch, or what a selector kept of it.

    Args:
        batch: one step.
        domains: names of D domains, in the mixer's order.
        decision: a selector's; responses it dropped do not count.

    Raises:
        StrategyError: the batch has no domains.
    """
    if batch.domain_N is None:
        raise StrategyError(
            "a mixer needs domains, which the trace lacks: import it with --map "
            "domain=YOUR_COLUMN, --domains-from, --domain-regex or --domain-clusters"
        )
    place = {name: d for d, name in enumerate(domains)}
    code = np.array([place.get(name, -1) for name in batch.domains], dtype=np.int64)[batch.domain_N]
    counts = (code >= 0) & ~np.isnan(batch.reward_N)
    if decision is not None:
        counts = counts & (decision.weight_N > 0)
    size = len(domains)
    return DomainStep(
        batch.step,
        _mean_by(code[counts], batch.reward_N[counts], size),
        _mean_by(code[counts], batch.abs_advantage_N[counts], size),
        np.bincount(code[counts], minlength=size),
    )


def _mean_by(code: Int, values: Float, size: int) -> Float:
    """Mean of values by code, NaN where there are none; summed in order of value, not of row."""
    order = np.lexsort((values, code))
    total = np.bincount(code[order], values[order], minlength=size)
    count = np.bincount(code, minlength=size)
    return ratio(total, count)


@dataclass(frozen=True, eq=False)
class Cumulative:
    """Responses of each domain (D) since the start."""

    responses_D: Int


@dataclass(frozen=True)
class MixRule(ABC):
    """Base of the rules: what they share."""

    floor: float = param(0.05, "least share of a domain", 0, 1)
    warmup_steps: int = param(1, "steps before the rule acts; the prior until then", 0)
    update_every_steps: int = param(1, "steps between two updates of the proportions", 1)
    window_steps: int = param(10, "observations a window counts", 1)

    def keeps(self, window: Sequence[DomainStep]) -> bool:
        """Whether the oldest observation still counts."""
        return len(window) <= self.window_steps

    def score(self, window: Sequence[DomainStep], seen: Cumulative) -> Float:
        """The statistic (D) that the rule acts on; NaN where the window shows nothing."""
        return np.full(len(seen.responses_D), np.nan)

    @abstractmethod
    def mix(self, score: Float, prior: Float) -> Float:
        """Proportions (D), before the floor."""


@dataclass(frozen=True)
class SoftmaxRule(MixRule):
    """Base of the rules that take a softmax of their score."""

    temperature: float = param(1.0, "T of the softmax; small ones sharpen", above=0)

    unseen: ClassVar[float | None] = None
    """Score of a domain that the window does not show; ``None``: the best one's, so it is drawn."""

    def mix(self, score: Float, prior: Float) -> Float:
        """softmax(score/T) (D)."""
        return softmax(fill_unseen(score, self.unseen) / self.temperature)


def fill_unseen(score: Float, value: float | None) -> Float:
    """Give domains without a score that of the best one, or a fixed one; all 0 where none has."""
    missing = np.isnan(score)
    if not missing.any():
        return score
    if value is None:
        value = 0.0 if missing.all() else float(np.nanmax(score))
    return np.where(missing, value, score)


def softmax(score: Float) -> Float:
    """exp(score), normalised."""
    power = np.exp(score - score.max())
    return power / power.sum()


def hold_floor(p: Float, floor: float) -> Float:
    """Raise shares below ``floor`` to it and scale the others down, so that the floor holds.

    Args:
        p: proportions (D), sum 1.
        floor: with floor·D ≤ 1.
    """
    low = np.zeros(len(p), dtype=bool)
    q = p
    while True:
        fresh = (q < floor) & ~low
        if not fresh.any():
            return q
        low |= fresh
        rest = p[~low].sum()
        share = 1 - floor * low.sum()
        scaled = p * (share / rest) if rest > 0 else np.full(len(p), 1 / len(p))
        q = np.where(low, floor, scaled)


class Mixer:
    """A mixer at work: its rule, its window, and the proportions it asks for now.

    Args:
        name: as the user wrote it.
        rule: the rule and its parameters.
        domains: names of D domains, sorted.
        prior: proportions (D) before the rule acts; default uniform.

    Raises:
        StrategyError: the floor can't hold for so many domains, or the prior is no distribution.
    """

    def __init__(
        self, name: str, rule: MixRule, domains: Sequence[str], prior: Sequence[float] | None = None
    ) -> None:
        size = len(domains)
        if size == 0:
            raise StrategyError(f"{name}: a mixer needs at least one domain")
        if rule.floor * size > 1 + 1e-12:
            raise StrategyError(
                f"{name}: floor={rule.floor} for {size} domains is more than 1; "
                f"give at most {1 / size:.4g}"
            )
        if len(set(domains)) < size:
            raise StrategyError(f"{name}: a domain is named twice among {', '.join(domains)}")
        self.name, self.rule, self.domains = name, rule, tuple(domains)
        start = np.full(size, 1 / size) if prior is None else np.array(prior, dtype=np.float64)
        if start.shape != (size,) or not (start >= 0).all() or not np.isclose(start.sum(), 1):
            raise StrategyError(
                f"{name}: the prior {start.tolist()} is no distribution; give one share ≥ 0 for "
                f"each of {', '.join(domains)}, with sum 1"
            )
        self.prior = start
        self._window: deque[DomainStep] = deque()
        self._responses = np.zeros(size, dtype=np.int64)
        self._seen = np.zeros(size, dtype=bool)
        self._observed = 0
        self._p = start
        self.score = np.full(size, np.nan)

    @property
    def unseen(self) -> tuple[str, ...]:
        """Domains that no observation has shown yet, or only with NaN rewards."""
        if not self._observed:
            return ()
        pairs = zip(self.domains, self._seen, strict=True)
        return tuple(domain for domain, seen in pairs if not seen)

    def observe(self, seen: DomainStep) -> None:
        """Take in one step, and update the proportions where it is time."""
        self._window.append(seen)
        while not self.rule.keeps(self._window):
            self._window.popleft()
        self._responses = self._responses + seen.responses_D
        self._seen = self._seen | ~np.isnan(seen.reward_D)
        self._observed += 1
        rule = self.rule
        past = self._observed - max(rule.warmup_steps, 1)
        if past < 0 or past % rule.update_every_steps:
            return
        window = tuple(self._window)
        cumulative = Cumulative(self._responses)
        self.score = rule.score(window, cumulative)
        self._p = hold_floor(rule.mix(self.score, self.prior), rule.floor)

    def propose(self) -> Float:
        """Proportions (D) for the next draw."""
        return self._p.copy()

    def state_dict(self) -> dict[str, Any]:
        """All that :meth:`load_state_dict` needs, as plain Python values."""
        return {
            "domains": list(self.domains),
            "window": [step.to_dict() for step in self._window],
            "responses": self._responses.tolist(),
            "seen": self._seen.tolist(),
            "observed": self._observed,
            "proportions": self._p.tolist(),
            "score": self.score.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken.

        Raises:
            StrategyError: the state is of other domains.
        """
        if tuple(state["domains"]) != self.domains:
            raise StrategyError(
                f"{self.name}: the saved state is of domains {', '.join(state['domains'])}; here "
                f"they are {', '.join(self.domains)}"
            )
        steps = map(DomainStep.from_dict, state["window"])
        self._window = deque(steps)
        self._responses = np.array(state["responses"], dtype=np.int64)
        self._seen = np.array(state["seen"], dtype=bool)
        self._observed = int(state["observed"])
        self._p = np.array(state["proportions"], dtype=np.float64)
        self.score = np.array(state["score"], dtype=np.float64)


def window_mean(window: Sequence[DomainStep], values: str) -> Float:
    """Mean over a window of a domain's step values (D), each step weighed by its responses."""
    value_SD = np.array([getattr(step, values) for step in window])
    weight_SD = np.array([step.responses_D for step in window], dtype=np.float64)
    weight_SD = np.where(np.isnan(value_SD), 0.0, weight_SD)
    total = (np.nan_to_num(value_SD) * weight_SD).sum(axis=0)
    weight = weight_SD.sum(axis=0)
    return ratio(total, weight)
