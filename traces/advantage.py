"""Advantages recomputed from rewards, as verl computes them (``trainer.ppo.core_algos``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .ragged import Bool, Float, Int, segment_max, segment_mean, segment_min, segment_sum

REWARD_TOL = 1e-6
"""Rewards of a group closer than this are one value; floats leave residue, so never test for 0."""

Estimator = Literal["grpo", "dr_grpo", "rloo"]


@dataclass(frozen=True)
class AdvantageConfig:
    """How a run turns rewards into advantages.

    Attributes:
        adv_estimator: ``grpo`` (arXiv:2402.03300 §4.1.2), ``dr_grpo`` (arXiv:2503.20783 §3.2: no
            division by the standard deviation; verl's ``norm_adv_by_std_in_grpo=False``), ``rloo``
            (arXiv:2402.14740 §2.3).
        eps: added to the standard deviation; verl 1e-6, TRL 1e-4.
    """

    adv_estimator: Estimator = "grpo"
    eps: float = 1e-6


def live_groups(reward_N: Float, group_offsets: Int, reward_tol: float = REWARD_TOL) -> Bool:
    """Whether a group (G) has rewards that differ: max − min > ``reward_tol``, NaN rows aside."""
    nan = np.isnan(reward_N)
    high = segment_max(np.where(nan, -np.inf, reward_N), group_offsets)
    low = segment_min(np.where(nan, np.inf, reward_N), group_offsets)
    differs = high > low
    return differs & (np.where(differs, high, 0.0) - np.where(differs, low, 0.0) > reward_tol)


def advantages(reward_N: Float, group_offsets: Int, config: AdvantageConfig) -> Float:
    """Advantage (N) of each response inside its group.

    With m and s the group's mean and Bessel standard deviation over n responses: ``grpo``
    (r − m)/(s + eps), ``dr_grpo`` r − m, ``rloo`` (r − m)·n/(n−1). Exactly 0 in a constant group
    of two or more. A group of one is verl's: m = 0 and s = 1, so r/(1 + eps) under ``grpo``, else
    r. A row whose reward is NaN gets 0 and takes no part in its group's m, s and n; the only row
    left of a larger group gets 0 too, since nothing remains to compare it with.

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
    centred = reward_N - np.where(sizes == 1, 0.0, segment_mean(reward_N, group_offsets))[group]
    if config.adv_estimator == "rloo":
        scale = sizes / np.maximum(sizes - 1, 1)
    elif config.adv_estimator == "dr_grpo":
        scale = np.ones(len(sizes))
    else:
        squares = segment_sum(centred * centred, group_offsets)
        std = np.where(sizes == 1, 1.0, np.sqrt(squares / np.maximum(sizes - 1, 1)))
        scale = 1.0 / (std + config.eps)
    trains = live_groups(reward_N, group_offsets) | (sizes == 1)
    return np.where(trains[group], centred * scale[group], 0.0)
