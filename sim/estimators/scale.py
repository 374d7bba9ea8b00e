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
        "loss_scale",
        "× uniform",
        "Σ c w / Σ c; verl divides by all response tokens, so 0/1 weights shrink the gradient",
        (
            Part(lambda w: w.group_sum(w.loss_KN)),
            Part(lambda w: w.group_sum(w.loss_KN), True),
        ),
        ratio,
        LOSS,
        nan_reason="no response has a token",
    ),
    Estimator(
        "signal_scale",
        "× uniform",
        "Σ c w|A| / Σ c|A|: a learning-rate change under SGD; AdamW and clipping cancel a "
        "constant factor, not its variation nor the balance against KL and entropy",
        (SIGNAL, SIGNAL_NONE),
        ratio,
        LOSS,
        nan_reason=_NO_ADVANTAGE,
    ),
    Estimator(
        "signal_scale_cv",
        "std / mean",
        "variation of signal_scale over steps, which AdamW does not cancel",
        (SIGNAL, SIGNAL_NONE),
        ratio,
        LOSS,
        nan_reason="fewer than two steps with an advantage",
        run="cv",
        interval="noise inside a step inflates a spread over steps",
    ),
    Estimator(
        "energy_scale_low",
        "× uniform",
        "least gradient-noise scale that the log-probs allow",
        _extremes(2, by_domain=False),
        _root,
        LOSS_AND_LOG_PROBS,
        f"{_NO_ADVANTAGE}, or every token was certain",
        domain_parts=_extremes(2, by_domain=True),
    ),
    Estimator(
        "energy_scale_high",
        "× uniform",
        "greatest gradient-noise scale that the log-probs allow",
        _extremes(0, by_domain=False),
        _root,
        LOSS_AND_LOG_PROBS,
        f"{_NO_ADVANTAGE}, or every token was certain",
        domain_parts=_extremes(0, by_domain=True),
    ),
)
