"""Weight tokens by how probable they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...traces.batch import RolloutBatch
from ...traces.ragged import Float, batch_sum, segment_sum
from ..base import Decision, Kind, Level, Rule, param


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

    def __call__(self, score: Float, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from a probability per token (T)."""
        assert batch.token_offsets is not None
        known = ~np.isnan(score)
        weight = np.where(known, self.alpha * score + (1.0 - self.alpha), 0.0)
        if self.mean_one:
            total = batch_sum(segment_sum(weight, batch.token_offsets))
            count = int(known.sum())
            weight = weight * (count / total) if total > 0 else np.ones(len(weight))
        return Decision.of_tokens(batch, np.where(known, weight, 1.0))
