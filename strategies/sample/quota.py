"""From proportions to whole prompts: quotas whose rounding does not drift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...traces.ragged import Float, Int


class Quotas:
    """Rounds B·p to whole prompts a step and carries what rounding left.

    want = B·p + carry; n = max(0, ⌊want⌋); while Σn < B one more at argmax(want − n); while Σn > B
    one less at argmin(want − n) among n > 0; carry = want − n. Ties by sorted name. (Plain largest
    remainder with carry goes negative.)

    Args:
        domains: names of D domains.
    """

    def __init__(self, domains: Sequence[str]) -> None:
        self._order = np.argsort(np.array(domains, dtype=object), kind="stable")
        self.carry = np.zeros(len(domains))

    def take(self, p: Float, count: int) -> Int:
        """Whole prompts of each domain (D) for a draw of ``count``, ≥ 0 and summing to it."""
        want = count * np.asarray(p, dtype=np.float64) + self.carry
        assert np.isfinite(want).all()
        n = np.maximum(0, np.floor(want)).astype(np.int64)
        while n.sum() < count:
            n[self._first(want - n, np.ones(len(n), dtype=bool), np.argmax)] += 1
        while n.sum() > count:
            n[self._first(want - n, n > 0, np.argmin)] -= 1
        self.carry = want - n
        return n

    def _first(self, left: Float, among: Any, choose: Any) -> int:
        """Index of the extreme among some domains, the first by name where several tie."""
        order = self._order[among[self._order]]
        return int(order[choose(np.round(left[order], 9))])  # 22.4 − 22 and 6.4 − 6 are a tie


def draw_prompts(p: Float, count: int, rng: np.random.Generator) -> Int:
    """Draw prompts without replacement, each next one by its share of what is left.

    Largest of log p + Gumbel noise (arXiv:1903.06059 §3). Where fewer than ``count`` have a share
    above 0, each of them is drawn once a round before any comes again.

    Args:
        p: shares (U), ≥ 0 with a sum above 0.
        count: prompts to draw.
        rng: of the noise.

    Returns:
        Indices (count), the surest first.
    """
    there = np.flatnonzero(p > 0)
    drawn: list[Int] = []
    left = count
    while left > 0:
        key = np.log(p[there]) + rng.gumbel(size=len(there))
        drawn.append(there[np.argsort(-key, kind="stable")[:left]])
        left -= len(drawn[-1])
    return np.concatenate(drawn) if drawn else there[:0]
