"""Keep groups whose rewards vary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...traces.advantage import REWARD_TOL
from ...traces.batch import RolloutBatch
from ..base import Decision, Kind, Level, Rule, Score, param


@dataclass(frozen=True)
class VaryingGroups(Rule):
    """Keep a group iff its span, max − min of a metric, exceeds ``reward_tol``.

    DAPO's filter (arXiv:2503.14476 §3.2) as verl's ``filter_groups`` and TRL's test of the standard
    deviation have it, whatever the reward's scale. It is DAPO only with refill: see
    ``refill_factor``. A group of one has no span and is dropped, where verl's filter lets it pass.
    """

    kind: ClassVar[Kind] = "select"
    level: ClassVar[Level] = "group"
    reward_tol: float = param(REWARD_TOL, "spans up to this count as none", 0)

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from the span (G)."""
        varies = score.values > self.reward_tol
        return Decision(varies[batch.group_N].astype(np.float64), whole_groups=True)
