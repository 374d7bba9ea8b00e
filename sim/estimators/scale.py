"""How large the loss and its gradient become against the uniform update."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...traces.ragged import Float, ratio
from .base import LOSS, LOSS_AND_LOG_PROBS, SIGNAL, SIGNAL_NONE, Estimator, Part
from .terms import Weighted


def _extremes(first: int, by_domain: bool) -> tuple[Part, Part]:
    def part(index: int) -> Part:
        def of(w: Weighted) -> Float:
            if w.terms.norm_N is None:
                return np.full(w.signal_KG.shape, np.nan)
            return w.energy_extremes(by_domain)[index]

        return Part(of)

    return part(first), part(first + 1)


def _root(top: Any, bottom: Any) -> Float:
    return np.sqrt(ratio(top, bottom))


_NO_ADVANTAGE = "every advantage of the step is 0"

ESTIMATORS = (
    Estimator(
        name="loss_scale",
        unit="× uniform",
        formula="Σcw / Σc",
        help=("verl divides by all response tokens, so 0/1 weights shrink the gradient"),
        parts=(
            Part(lambda w: w.group_sum(w.loss_KN)),
            Part(lambda w: w.group_sum(w.loss_KN), True),
        ),
        value=ratio,
        needs=LOSS,
        nan_reason="no response has a token",
        headline=True,
    ),
    Estimator(
        name="signal_scale",
        unit="× uniform",
        formula="Σcw|A| / Σc|A|",
        help=(
            "The policy gradient against the uniform update's. AdamW and gradient "
            "clipping cancel a constant factor, not its variation; under SGD it is a "
            "learning-rate change."
        ),
        heading="signal\nscale",
        parts=(SIGNAL, SIGNAL_NONE),
        value=ratio,
        needs=LOSS,
        nan_reason=_NO_ADVANTAGE,
        headline=True,
    ),
    Estimator(
        name="signal_scale_cv",
        unit="std / mean",
        formula="standard deviation over mean of signal_scale's steps",
        help="variation of signal_scale over steps, which AdamW does not cancel",
        parts=(SIGNAL, SIGNAL_NONE),
        value=ratio,
        needs=LOSS,
        nan_reason="fewer than two steps with an advantage",
        run="cv",
        interval="noise inside a step inflates a spread over steps",
    ),
    Estimator(
        name="energy_scale_low",
        unit="× uniform",
        formula="least √(Σc²w²A²u′ / Σc²A²u′) over u′ in [u, 2u]",
        help="least gradient-noise scale that the log-probs allow",
        parts=_extremes(2, by_domain=False),
        value=_root,
        needs=LOSS_AND_LOG_PROBS,
        nan_reason=f"{_NO_ADVANTAGE}, or every token was certain",
        domain_parts=_extremes(2, by_domain=True),
    ),
    Estimator(
        name="energy_scale_high",
        unit="× uniform",
        formula="greatest √(Σc²w²A²u′ / Σc²A²u′) over u′ in [u, 2u]",
        help="greatest gradient-noise scale that the log-probs allow",
        parts=_extremes(0, by_domain=False),
        value=_root,
        needs=LOSS_AND_LOG_PROBS,
        nan_reason=f"{_NO_ADVANTAGE}, or every token was certain",
        domain_parts=_extremes(0, by_domain=True),
    ),
)
