"""More of the domains whose reward lags behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...traces.ragged import Float
from .base import UnitStep
from .mixer import Cumulative, SoftmaxRule, window_mean


@dataclass(frozen=True)
class RewardGap(SoftmaxRule):
    """softmax((max_d r_d − r_d)/T) of the window's mean rewards r (DataFlex-RL)."""

    def score(self, window: Sequence[UnitStep], seen: Cumulative) -> Float:
        """Gap to the best domain (U)."""
        reward = window_mean(window, "reward_U")
        if np.isnan(reward).all():
            return reward
        return np.nanmax(reward) - reward


@dataclass(frozen=True)
class RewardGapAsRun(RewardGap):
    """The same, where a domain that was never seen counts as reward 0 (DataFlex-RL f4d305b)."""

    def score(self, window: Sequence[UnitStep], seen: Cumulative) -> Float:
        """Gap to the best domain (U)."""
        reward = np.nan_to_num(window_mean(window, "reward_U"))
        return reward.max() - reward


@dataclass(frozen=True)
class MeanReward(SoftmaxRule):
    """softmax(r/T) of the window's mean rewards: favours easy domains.

    What DataFlex-RL f4d305b computes under the names of ``dump_ucb`` and ``tscl``, whose own
    statistics never reach them.
    """

    unseen: ClassVar[float | None] = 0.0

    def score(self, window: Sequence[UnitStep], seen: Cumulative) -> Float:
        """Mean reward (U)."""
        return window_mean(window, "reward_U")
