"""Weight tokens by how probable they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...traces.batch import RolloutBatch
from ...traces.ragged import batch_sum, segment_sum
from ..base import Decision, Kind, Level, Rule, Score, param


@dataclass(frozen=True)
class ProbabilityMix(Rule):
    """w_t = α·π_t + (1−α), divided by its mean over the batch's tokens unless ``mean_one`` is off.

    Advantage reweighting of arXiv:2505.12929 §4: low-probability tokens, whose gradients are large,
    count less. A token without a usable log-prob keeps weight 1 and stays out of the mean; a
    response without a token gets weight 1.
    """

    kind: ClassVar[Kind] = "reweight"
    level: ClassVar[Level] = "token"
    alpha: float = param(0.5, "α; 0 is uniform", 0, 1)
    mean_one: bool = param(True, "divide by the mean weight of the batch's tokens")

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from a probability per token (T)."""
        assert batch.token_offsets is not None
        prob, scale = score.values, 1.0
        sums = segment_sum(prob, batch.token_offsets)
        all_known = not np.isnan(sums).any()
        if not all_known:
            sums = segment_sum(np.nan_to_num(prob), batch.token_offsets)
        if self.mean_one:
            count = len(prob) if all_known else int((~np.isnan(prob)).sum())
            total = self.alpha * batch_sum(sums) + (1.0 - self.alpha) * count
            scale = count / total if total > 0 else 1.0
        weight = prob * (self.alpha * scale)
        weight += (1.0 - self.alpha) * scale
        if not all_known:
            weight[np.isnan(weight)] = 1.0
            return Decision.of_tokens(batch, weight)
        lengths = np.diff(batch.token_offsets)
        mean = sums * (self.alpha * scale) / np.maximum(lengths, 1) + (1.0 - self.alpha) * scale
        return Decision(np.where(lengths > 0, mean, 1.0), weight)
