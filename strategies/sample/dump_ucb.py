"""More of the domains with large advantages, or little seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...traces.ragged import Float
from ..base import param
from .base import UnitStep
from .mixer import Cumulative, SoftmaxRule, window_mean


@dataclass(frozen=True)
class DumpUcb(SoftmaxRule):
    """softmax(u/T) of u = window mean |A| + c·√(2 ln(N+1)/(n_d+1)) (arXiv:2504.09710 §3).

    N and n_d count responses since the start. ``window_responses`` > 0 counts the window in
    responses of a domain, newest first, in place of ``window_steps``; whole steps, so that it holds
    at least so many.
    """

    exploration: float = param(1.0, "c of the bonus for domains little seen", 0)
    window_responses: int = param(0, "window in responses of a domain; 0 counts steps", 0)

    def keeps(self, window: Sequence[UnitStep]) -> bool:
        """Whether the oldest observation still counts for a domain."""
        if not self.window_responses:
            return super().keeps(window)
        newer = sum((step.responses_U for step in list(window)[1:]), np.zeros(1, dtype=np.int64))
        return len(window) == 1 or bool((newer < self.window_responses).any())

    def score(self, window: Sequence[UnitStep], seen: Cumulative) -> Float:
        """u (U); NaN where no advantage was seen."""
        count = seen.responses_U.astype(np.float64)
        bonus = np.sqrt(2 * np.log(count.sum() + 1) / (count + 1))
        if self.window_responses:
            window = _newest(window, self.window_responses)
        return window_mean(window, "advantage_U") + self.exploration * bonus


def _newest(window: Sequence[UnitStep], responses: int) -> list[UnitStep]:
    """Steps whose values count only for domains that had not filled their window yet."""
    size = len(window[-1].responses_U) if window else 0
    filled = np.zeros(size, dtype=np.int64)
    kept = []
    for step in reversed(window):
        open_U = filled < responses
        kept.append(
            UnitStep(
                step.step,
                np.where(open_U, step.reward_U, np.nan),
                np.where(open_U, step.advantage_U, np.nan),
                np.where(open_U, step.responses_U, 0),
            )
        )
        filled = filled + step.responses_U
    return kept[::-1]
