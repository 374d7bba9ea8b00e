"""The baseline: every response counts as the run counted it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...traces.batch import RolloutBatch
from ..base import Decision, Kind, Level, Rule, Score


@dataclass(frozen=True)
class Unchanged(Rule):
    """Weights are the score itself, ones for the baseline every number is relative to."""

    kind: ClassVar[Kind] = "baseline"
    level: ClassVar[Level] = "response"

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Weights 1 (N)."""
        return Decision(score.values)
