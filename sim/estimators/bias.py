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
        name="group_bias",
        unit="share of signal",
        formula="mean over signal groups of |ΣcwA| / Σcw|A|",
        help=(
            "Share of a group's signal that no longer cancels: 0 for GRPO where "
            "responses count alike (token-mean weighs long ones more), 1 when one "
            "sign is kept."
        ),
        heading="group\nbias",
        parts=(Part(_bias), SIGNAL_GROUPS),
        value=ratio,
        needs=LOSS,
        nan_reason=_NO_SIGNAL,
        better="less",
        headline=True,
    ),
    Estimator(
        name="one_sided_frac",
        unit="share of signal groups",
        formula="signal groups with w|A| > 0 for one sign of A only, over all of them",
        help="signal groups that keep advantages of one sign only",
        parts=(Part(_one_sided), SIGNAL_GROUPS),
        value=ratio,
        needs=LOSS,
        nan_reason=_NO_SIGNAL,
        better="less",
    ),
    Estimator(
        name="positive_share",
        unit="share of signal",
        formula="Σ over A > 0 of cw|A|, over Σcw|A|",
        help="signal that pushes responses up",
        parts=(Part(lambda w: w.positive_KG), SIGNAL),
        value=ratio,
        needs=LOSS,
        nan_reason="nothing carries a weighted advantage",
    ),
)
