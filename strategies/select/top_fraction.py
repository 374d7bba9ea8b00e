"""Keep the best fraction of the whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...traces.batch import RolloutBatch
from ..base import Decision, Kind, Level, Rule, Score, param, selection


@dataclass(frozen=True)
class TopFraction(Rule):
    """Keep the max(1, round(fraction·N)) highest scores of the batch.

    Scores of binary rewards take few levels, so the cut usually falls inside a tie: it is decided
    by the batch's tie keys, then rollout_idx (see ``RolloutBatch.tie_keys``).
    """

    kind: ClassVar[Kind] = "select"
    level: ClassVar[Level] = "response"
    optional_columns: ClassVar[tuple[str, ...]] = ("prompt_id",)
    fraction: float = param(0.5, "share of the batch that is kept", high=1, above=0)

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from a score per response (N)."""
        count = len(score.values)
        tied = np.zeros(count, dtype=bool)
        if count == 0:
            return selection(batch, tied, tied.copy(), False)
        rounded = score.rounded
        m = max(1, round(self.fraction * count))
        cut = np.partition(rounded, count - m)[count - m]
        keep = rounded > cut
        level = np.flatnonzero(rounded == cut)
        need = m - int(keep.sum())
        if need < len(level):
            tied[level] = True
            groups, place = np.unique(batch.group_N[level], return_inverse=True)
            keys = batch.tie_keys(tie_seed, groups)[place]
            level = level[np.lexsort((batch.rollout_idx_N[level], keys))]
        keep[level[:need]] = True
        return selection(batch, keep, tied, False)
