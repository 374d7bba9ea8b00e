"""Keep groups whose solve rate lies strictly inside a band."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ...traces.batch import RolloutBatch
from ..base import Decision, Kind, Level, Rule, Score, param


@dataclass(frozen=True)
class SolveBand(Rule):
    """Keep a group iff low·n < k < high·n, with k solved of n responses.

    Compared exactly: the bounds are taken as the decimals they are written as, so at n = 5 the
    band (0.2, 0.8) keeps k = 2 and 3.
    """

    kind: ClassVar[Kind] = "select"
    level: ClassVar[Level] = "group"
    low: float = param(0.2, "solve rate must lie above", 0, 1)
    high: float = param(0.8, "solve rate must lie below", 0, 1)

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from the solve rate (G)."""
        n = batch.group_size_G
        k = np.rint(score.values * n).astype(np.int64)
        low, high = Fraction(str(self.low)), Fraction(str(self.high))
        inside = k * low.denominator > n * low.numerator
        inside &= k * high.denominator < n * high.numerator
        return Decision(inside[batch.group_N].astype(np.float64), whole_groups=True)
