"""How much there is, and how much is kept."""

from __future__ import annotations

import numpy as np

from ...traces.ragged import Float, ratio
from .base import GROUPS, LENGTHS, LIVE, RESPONSES, SIGNAL_GROUPS, TOKENS, Estimator, Part
from .terms import Weighted


def _kept_group(w: Weighted) -> Float:
    return (w.kept_KG > 0).astype(np.float64)


def _abs_advantage(w: Weighted) -> Float:
    return w.group_sum(np.abs(w.terms.batch.advantage_N)[None])


def _abs_singleton(w: Weighted) -> Float:
    return np.where(w.terms.batch.group_size_G == 1, _abs_advantage(w), 0.0)


KEPT_GROUPS = Part(_kept_group)

ESTIMATORS = (
    Estimator("num_responses", "responses", "responses in the step", (RESPONSES,), lambda n: n),
    Estimator("num_groups", "groups", "prompt groups in the step", (GROUPS,), lambda g: g),
    Estimator(
        "num_tokens", "tokens", "response tokens in the step", (TOKENS,), lambda m: m, LENGTHS
    ),
    Estimator(
        "live_group_frac",
        "share of groups",
        "groups whose rewards differ, the only ones GRPO learns from",
        (LIVE, GROUPS),
        ratio,
    ),
    Estimator(
        "singleton_share",
        "share of Σ|A|",
        "signal of groups of one, whose advantage verl leaves at the raw reward",
        (Part(_abs_singleton, True), Part(_abs_advantage, True)),
        ratio,
        nan_reason="every advantage is 0",
    ),
    Estimator(
        "kept_frac",
        "share of responses",
        "responses with weight above 0",
        (Part(lambda w: w.kept_KG), RESPONSES),
        ratio,
    ),
    Estimator(
        "kept_token_frac",
        "share of tokens",
        "tokens with weight above 0",
        (Part(lambda w: w.group_sum(w.tokens_kept_KN)), TOKENS),
        ratio,
        LENGTHS,
        "no response has a token",
    ),
    Estimator(
        "kept_group_frac",
        "share of groups",
        "groups with a kept response",
        (KEPT_GROUPS, GROUPS),
        ratio,
    ),
    Estimator(
        "signal_group_frac",
        "share of groups",
        "live groups that still carry a weighted advantage",
        (SIGNAL_GROUPS, GROUPS),
        ratio,
    ),
)
