"""Advantages recomputed from rewards, as verl computes them (``trainer.ppo.core_algos``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .ragged import Bool, Float, Int, segment_mean, segment_span, segment_sum

REWARD_TOL = 1e-6
"""Rewards of a group closer than this are one value; floats leave residue, so never test for 0."""

Estimator = Literal["grpo", "dr_grpo", "rloo", "grpo_batch"]


@dataclass(frozen=True)
class AdvantageConfig:
    """How a run turns rewards into advantages.

    Attributes:
        adv_estimator: ``grpo`` (arXiv:2402.03300 §4.1.2), ``dr_grpo`` (arXiv:2503.20783 §3.2: no
            division by the standard deviation; verl's ``norm_adv_by_std_in_grpo=False``, TRL's
            ``scale_rewards="none"``), ``rloo`` (arXiv:2402.14740 §2.3), ``grpo_batch`` (division by
            the standard deviation of the whole step: TRL's ``scale_rewards="batch"``).
        eps: added to the standard deviation; verl 1e-6, TRL 1e-4.
        ddof: 1 for Bessel's standard deviation, as verl and TRL take it; 0 for the population's.
    """

    adv_estimator: Estimator = "grpo"
    eps: float = 1e-6
    ddof: int = 1

    @property
    def formula(self) -> str:
        """In symbols: m the group's mean, s its standard deviation, S the step's, n its size."""
        std = "s" if self.ddof else "s of the population"
        return {
            "grpo": f"(r − m)/({std} + {self.eps:g})",
            "dr_grpo": "r − m",
            "rloo": "(r − m)·n/(n − 1)",
            "grpo_batch": f"(r − m)/({std.replace('s', 'S', 1)} + {self.eps:g})",
        }[self.adv_estimator]


def live_groups(reward_N: Float, group_offsets: Int, reward_tol: float = REWARD_TOL) -> Bool:
    """Whether a group (G) has rewards that differ: max − min > ``reward_tol``, NaN rows aside."""
    low, high = segment_span(reward_N, group_offsets)
    differs = high > low
    return differs & (np.where(differs, high, 0.0) - np.where(differs, low, 0.0) > reward_tol)


def advantages(reward_N: Float, group_offsets: Int, config: AdvantageConfig) -> Float:
    """Advantage (N) of each response inside its group.

    With m and s the group's mean and standard deviation over n responses, S the standard deviation
    over all rows given: ``grpo`` (r − m)/(s + eps), ``dr_grpo`` r − m, ``rloo`` (r − m)·n/(n−1),
    ``grpo_batch`` (r − m)/(S + eps). Exactly 0 in a constant group of two or more. A group of one
    is verl's: m = 0 and s = 1, so r/(1 + eps) under ``grpo``, else r; under ``grpo_batch`` it is
    TRL's, 0. A row whose reward is NaN gets 0 and takes no part in its group's m, s and n; the only
    row left of a larger group gets 0 too, since nothing remains to compare it with.

    Args:
        reward_N: rewards (N), rows of a group contiguous.
        group_offsets: cuts (G+1).
        config: the run's estimator.
    """
    valid = ~np.isnan(reward_N)
    if not valid.all():
        out = np.zeros(len(reward_N))
        kept = np.concatenate(([0], np.cumsum(valid)))[group_offsets]
        offsets = kept.astype(np.int64)
        out[valid] = advantages(reward_N[valid], offsets, config)
        bereft = (np.diff(group_offsets) > 1) & (np.diff(offsets) == 1)
        out[np.repeat(bereft, np.diff(group_offsets))] = 0.0
        return out
    sizes = np.diff(group_offsets)
    group = np.repeat(np.arange(len(sizes)), sizes)
    alone = (sizes == 1) & (config.adv_estimator != "grpo_batch")
    centred = reward_N - np.where(alone, 0.0, segment_mean(reward_N, group_offsets))[group]
    scale = advantage_scales(reward_N, centred, group_offsets, config)
    trains = live_groups(reward_N, group_offsets) | alone
    return np.where(trains[group], centred * scale[group], 0.0)


def advantage_scales(
    reward_N: Float, centred_N: Float, group_offsets: Int, config: AdvantageConfig
) -> Float:
    """What an estimator multiplies r − m by, in each group (G).

    Args:
        reward_N: rewards, none NaN.
        centred_N: r − m; the raw reward in a group of one that verl leaves alone.
        group_offsets: cuts (G+1).
        config: the estimator.
    """
    sizes = np.diff(group_offsets)
    if config.adv_estimator == "rloo":
        return sizes / np.maximum(sizes - 1, 1)
    if config.adv_estimator == "dr_grpo":
        return np.ones(len(sizes))
    if config.adv_estimator == "grpo_batch":
        spread = reward_N - reward_N.mean() if len(reward_N) else reward_N
        std = np.sqrt((spread * spread).sum() / max(len(reward_N) - config.ddof, 1))
        return np.full(len(sizes), 1.0 / (std + config.eps))
    squares = segment_sum(centred_N * centred_N, group_offsets)
    stds = np.sqrt(squares / np.maximum(sizes - config.ddof, 1))
    return 1.0 / (np.where(sizes == 1, 1.0, stds) + config.eps)
