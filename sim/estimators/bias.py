"""What the weights do to the balance of positive and negative advantages inside groups."""

from __future__ import annotations

import numpy as np

from ...traces.ragged import Float
from ..terms import Weighted
from .base import SIGNAL, SIGNAL_GROUPS, Estimator, Part, ratio


def _bias(w: Weighted) -> Float:
    share = ratio(np.abs(w.group_sum(w.signed_N)), w.signal_G)
    return np.where(w.signal_group_G, share, 0.0)


def _one_sided(w: Weighted) -> Float:
    positive, negative = w.group_sum(w.positive_N), w.group_sum(w.negative_N)
    one = (positive <= 1e-12 * w.signal_G) | (negative <= 1e-12 * w.signal_G)
    found = (w.signal_group_G & one).astype(np.float64)
    return np.where(np.isnan(w.signal_G), np.nan, found)


def _positive(w: Weighted) -> Float:
    return w.group_sum(w.positive_N)


_NO_SIGNAL = "no live group carries a weighted advantage"


ESTIMATORS = (
    Estimator(
        "group_bias",
        "share of signal",
        "mean over signal groups of |Σ c w A| / Σ c w|A|: 0 for GRPO, 1 when one sign is kept",
        (Part(_bias), SIGNAL_GROUPS),
        ratio,
        nan_reason=_NO_SIGNAL,
    ),
    Estimator(
        "one_sided_frac",
        "share of signal groups",
        "signal groups that keep advantages of one sign only",
        (Part(_one_sided), SIGNAL_GROUPS),
        ratio,
        nan_reason=_NO_SIGNAL,
    ),
    Estimator(
        "positive_share",
        "share of signal",
        "signal that pushes responses up",
        (Part(_positive), SIGNAL),
        ratio,
        nan_reason="nothing carries a weighted advantage",
    ),
)
