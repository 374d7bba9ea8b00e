"""What the built-in samplers of domains share: a window, a score, a mix above a floor.

A mixer is a feedback controller: its rule is a frozen dataclass of parameters, its state the
observations inside the window. Shapes: U units.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...traces.errors import StrategyError
from ...traces.ragged import Float, Int, ratio
from ..base import param
from .base import UnitStep


@dataclass(frozen=True, eq=False)
class Cumulative:
    """Responses of each unit (U) since the start."""

    responses_U: Int


@dataclass(frozen=True)
class MixRule(ABC):
    """Base of the rules: what they share."""

    floor: float = param(0.05, "least share of a domain", 0, 1)
    warmup_steps: int = param(1, "steps before the rule acts; the prior until then", 0)
    update_every_steps: int = param(1, "steps between two updates of the proportions", 1)
    window_steps: int = param(10, "observations a window counts", 1)

    def keeps(self, window: Sequence[UnitStep]) -> bool:
        """Whether the oldest observation still counts."""
        return len(window) <= self.window_steps

    def score(self, window: Sequence[UnitStep], seen: Cumulative) -> Float:
        """The statistic (U) that the rule acts on; NaN where the window shows nothing."""
        return np.full(len(seen.responses_U), np.nan)

    def start(self, name: str, units: Sequence[str], prior: Float) -> Mixer:
        """Begin over units (U).

        Raises:
            StrategyError: the floor can't hold for so many.
        """
        if self.floor * len(units) > 1 + 1e-12:
            raise StrategyError(
                f"{name}: floor={self.floor} for {len(units)} domains is more than 1; "
                f"give at most {1 / len(units):.4g}"
            )
        return Mixer(self, self.prior(name, units, prior))

    def prior(self, name: str, units: Sequence[str], prior: Float) -> Float:
        """Proportions (U) before the rule acts."""
        return prior

    @abstractmethod
    def mix(self, score: Float, prior: Float) -> Float:
        """Proportions (U), before the floor."""


@dataclass(frozen=True)
class SoftmaxRule(MixRule):
    """Base of the rules that take a softmax of their score."""

    temperature: float = param(1.0, "T of the softmax; small ones sharpen", above=0)

    unseen: ClassVar[float | None] = None
    """Score of a domain that the window does not show; ``None``: the best one's, so it is drawn."""

    def mix(self, score: Float, prior: Float) -> Float:
        """softmax(score/T) (U)."""
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
        p: proportions (U), sum 1.
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
    """A built-in rule at work: its window, and the proportions it asks for now.

    Args:
        rule: the rule and its parameters.
        prior: proportions (U) before the rule acts.
    """

    def __init__(self, rule: MixRule, prior: Float) -> None:
        self.rule, self._prior = rule, prior
        self._window: deque[UnitStep] = deque()
        self._responses = np.zeros(len(prior), dtype=np.int64)
        self._observed = 0
        self._p = prior
        self._score = np.full(len(prior), np.nan)

    def observe(self, seen: UnitStep) -> None:
        """Take in one step, and update the proportions where it is time."""
        self._window.append(seen)
        while not self.rule.keeps(self._window):
            self._window.popleft()
        self._responses = self._responses + seen.responses_U
        self._observed += 1
        rule = self.rule
        past = self._observed - max(rule.warmup_steps, 1)
        if past < 0 or past % rule.update_every_steps:
            return
        self._score = rule.score(tuple(self._window), Cumulative(self._responses))
        self._p = hold_floor(rule.mix(self._score, self._prior), rule.floor)

    def propose(self) -> Float:
        """Proportions (U) for the next draw."""
        return self._p.copy()

    def metrics(self) -> dict[str, Any]:
        """The score (U) behind the proportions."""
        return {"signal": self._score}

    def state_dict(self) -> dict[str, Any]:
        """See :class:`Sampler`."""
        return {
            "window": [step.to_dict() for step in self._window],
            "responses": self._responses.tolist(),
            "observed": self._observed,
            "proportions": self._p.tolist(),
            "score": self._score.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`Sampler`."""
        self._window = deque(map(UnitStep.from_dict, state["window"]))
        self._responses = np.array(state["responses"], dtype=np.int64)
        self._observed = int(state["observed"])
        self._p = np.array(state["proportions"], dtype=np.float64)
        self._score = np.array(state["score"], dtype=np.float64)


def window_mean(window: Sequence[UnitStep], values: str) -> Float:
    """Mean over a window of a domain's step values (U), each step weighed by its responses."""
    value_SU = np.array([getattr(step, values) for step in window])
    weight_SU = np.array([step.responses_U for step in window], dtype=np.float64)
    weight_SU = np.where(np.isnan(value_SU), 0.0, weight_SU)
    total = (np.nan_to_num(value_SU) * weight_SU).sum(axis=0)
    weight = weight_SU.sum(axis=0)
    return ratio(total, weight)
