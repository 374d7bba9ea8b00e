"""Keep the best k responses of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...traces.batch import RolloutBatch
from ..base import Decision, Kind, Level, Rule, Score, param, selection


@dataclass(frozen=True)
class GroupTopK(Rule):
    """Keep the min(k, n) highest scores of each group; ties go to the lowest rollout_idx.

    With reward per token this is GFPO (arXiv:2508.09726 §3), which re-normalises advantages inside
    the kept subset; without ``renormalise`` the kept advantages no longer sum to 0.
    """

    kind: ClassVar[Kind] = "select"
    level: ClassVar[Level] = "response"
    k: int = param(3, "responses kept per group", 1)
    renormalise: bool = param(False, "recompute advantages inside the kept subset")

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from a score per response (N)."""
        rounded = score.rounded
        keep = np.ones(batch.num_responses, dtype=bool)
        tied = np.zeros(batch.num_responses, dtype=bool)
        for bucket in batch.buckets:
            if bucket.size <= self.k:
                continue
            value = rounded[bucket.rows]
            order = np.argsort(-value, axis=1, kind="stable")
            kept = np.zeros(value.shape, dtype=bool)
            np.put_along_axis(kept, order[:, : self.k], True, axis=1)
            inner = np.take_along_axis(value, order[:, self.k - 1 : self.k], axis=1)
            outer = np.take_along_axis(value, order[:, self.k : self.k + 1], axis=1)
            keep[bucket.rows] = kept
            tied[bucket.rows] = (inner == outer) & (value == inner)
        return selection(batch, keep, tied, self.renormalise)
