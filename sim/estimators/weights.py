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
    Estimator(
        name="weight_mean",
        unit="weight",
        formula="Σw / N",
        help="mean response weight",
        parts=(WEIGHT, RESPONSES),
        value=ratio,
        headline=True,
    ),
    Estimator(
        name="weight_std",
        unit="weight",
        formula="√(Σw²/N − (Σw/N)²)",
        help="population standard deviation of response weights",
        parts=(WEIGHT, WEIGHT_SQ, RESPONSES),
        value=_std,
        headline=True,
    ),
    Estimator(
        name="weight_max",
        unit="weight",
        formula="max w",
        help="largest response weight",
        parts=(Part(_largest, largest=True),),
        value=lambda top: top,
        interval="a bootstrap of a maximum is not valid",
        better="less",
        headline=True,
    ),
    Estimator(
        name="ess_responses",
        unit="responses",
        formula="(Σw)²/Σw² over responses",
        help="Kish size of the response weights: evenness, blind to advantages",
        parts=(WEIGHT, WEIGHT_SQ),
        value=kish,
        better="more",
        grows=True,
    ),
    Estimator(
        name="ess_tokens",
        unit="tokens",
        formula="(Σw)²/Σw² over tokens",
        help="Kish size of the token weights: evenness, blind to advantages",
        parts=(TOKEN_WEIGHT, TOKEN_WEIGHT_SQ, TOKENS),
        value=lambda total, squares, tokens: kish(total, squares),
        needs=LENGTHS,
        better="more",
        grows=True,
    ),
)
