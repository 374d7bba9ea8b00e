"""What the weights do to the balance of positive and negative advantages inside groups."""

from __future__ import annotations

import numpy as np

from ...traces.ragged import Float, ratio
from .base import LOSS, SIGNAL, SIGNAL_GROUPS, Estimator, Part
from .terms import Weighted


def _bias(w: Weighted) -> Float:
    share = ratio(np.abs(2 * w.positive_KG - w.signal_KG), w.signal_KG)
    return np.where(w.signal_group_KG, share, 0.0)


def _one_sided(w: Weighted) -> Float:
    smaller = np.minimum(w.positive_KG, w.signal_KG - w.positive_KG)
    return (w.signal_group_KG & (smaller <= 1e-12 * w.signal_KG)).astype(np.float64)


_NO_SIGNAL = "no live group carries a weighted advantage"


ESTIMATORS = (
    Estimator(
        "group_bias",
        "share of signal",
        "mean over signal groups of |Σ c w A| / Σ c w|A|: 0 for GRPO where responses count alike, "
        "1 when one sign is kept",
        (Part(_bias), SIGNAL_GROUPS),
        ratio,
        LOSS,
        nan_reason=_NO_SIGNAL,
    ),
    Estimator(
        "one_sided_frac",
        "share of signal groups",
        "signal groups that keep advantages of one sign only",
        (Part(_one_sided), SIGNAL_GROUPS),
        ratio,
        LOSS,
        nan_reason=_NO_SIGNAL,
    ),
    Estimator(
        "positive_share",
        "share of signal",
        "signal that pushes responses up",
        (Part(lambda w: w.positive_KG), SIGNAL),
        ratio,
        LOSS,
        nan_reason="nothing carries a weighted advantage",
    ),
)
