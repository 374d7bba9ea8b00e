"""The weights themselves: mean, spread, and Kish sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...traces.ragged import Float, ratio
from .base import LENGTHS, RESPONSES, TOKENS, Estimator, Part, kish
from .terms import Weighted

WEIGHT = Part(lambda w: w.group_sum(w.weight_KN))
WEIGHT_SQ = Part(lambda w: w.group_sum(np.square(w.weight_KN)))
TOKEN_WEIGHT = Part(lambda w: w.group_sum(w.token_weight_KN))
TOKEN_WEIGHT_SQ = Part(lambda w: w.group_sum(w.token_weight_sq_KN))


def _std(total: Any, squares: Any, count: Any) -> Float:
    mean = ratio(total, count)
    return np.sqrt(np.maximum(ratio(squares, count) - mean * mean, 0.0))


def _largest(w: Weighted) -> Float:
    return np.maximum.reduceat(w.weight_KN, w.terms.batch.group_offsets[:-1], axis=-1)


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
        LENGTHS,
    ),
)
