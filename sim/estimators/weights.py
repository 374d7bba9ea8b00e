"""The weights themselves: mean, spread, and Kish sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...traces.ragged import Float, segment_max
from ..terms import Weighted
from .base import RESPONSES, TOKENS, Estimator, Part, kish, ratio

WEIGHT = Part(lambda w: w.group_sum(w.decision.weight_N))
WEIGHT_SQ = Part(lambda w: w.group_sum(np.square(w.decision.weight_N)))
TOKEN_WEIGHT = Part(lambda w: w.group_sum(w.token_weight_N))
TOKEN_WEIGHT_SQ = Part(lambda w: w.group_sum(w.token_weight_sq_N))


def _std(total: Any, squares: Any, count: Any) -> Float:
    mean = ratio(total, count)
    return np.sqrt(np.maximum(ratio(squares, count) - mean * mean, 0.0))


def _largest(w: Weighted) -> Float:
    return segment_max(w.decision.weight_N, w.terms.batch.group_offsets)


ESTIMATORS = (
    Estimator("weight_mean", "weight", "mean response weight", (WEIGHT, RESPONSES), ratio),
    Estimator(
        "weight_std",
        "weight",
        "population standard deviation of response weights",
        (WEIGHT, WEIGHT_SQ, RESPONSES),
        _std,
    ),
    Estimator(
        "weight_max",
        "weight",
        "largest response weight",
        (Part(_largest, largest=True),),
        lambda top: top,
        interval="a bootstrap of a maximum is not valid",
    ),
    Estimator(
        "ess_responses",
        "responses",
        "Kish size of the response weights: evenness, blind to advantages",
        (WEIGHT, WEIGHT_SQ),
        kish,
    ),
    Estimator(
        "ess_tokens",
        "tokens",
        "Kish size of the token weights: evenness, blind to advantages",
        (TOKEN_WEIGHT, TOKEN_WEIGHT_SQ, TOKENS),
        lambda total, squares, tokens: kish(total, squares),
        "lengths",
    ),
)
