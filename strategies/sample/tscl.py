"""More of the domains whose reward moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...traces.ragged import Float
from .base import UnitStep
from .mixer import Cumulative, SoftmaxRule


@dataclass(frozen=True)
class Tscl(SoftmaxRule):
    """softmax(|b_d|/T) of the slope b_d of a domain's mean reward against step, least squares.

    One point a step in which the domain was seen (arXiv:1707.00183 §3, "window" algorithm). A
    domain with fewer than two points counts as unseen.
    """

    few_points: ClassVar[float] = np.nan

    def score(self, window: Sequence[UnitStep], seen: Cumulative) -> Float:
        """|slope| (U)."""
        step_S = np.array([s.step for s in window], dtype=np.float64)
        reward_SU = np.array([s.reward_U for s in window])
        known = ~np.isnan(reward_SU)
        count = known.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            middle = (known * step_S[:, None]).sum(axis=0) / count
            mean = np.where(known, reward_SU, 0.0).sum(axis=0) / count
            off = np.where(known, step_S[:, None] - middle, 0.0)
            slope = (off * np.where(known, reward_SU - mean, 0.0)).sum(axis=0)
            slope = slope / (off * off).sum(axis=0)
        return np.where(count >= 2, np.abs(slope), self.few_points)


@dataclass(frozen=True)
class TsclPaper(Tscl):
    """The same, where the slope is 1 below two points: new domains come first."""

    few_points: ClassVar[float] = 1.0
