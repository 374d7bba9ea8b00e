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
    Estimator(
        name="num_responses",
        unit="responses",
        formula="N",
        help="responses in the step",
        parts=(RESPONSES,),
        value=lambda n: n,
        grows=True,
    ),
    Estimator(
        name="num_groups",
        unit="groups",
        formula="G",
        help="prompt groups in the step",
        parts=(GROUPS,),
        value=lambda g: g,
        grows=True,
    ),
    Estimator(
        name="num_tokens",
        unit="tokens",
        formula="M: trainable response tokens",
        help="response tokens in the step",
        parts=(TOKENS,),
        value=lambda m: m,
        needs=LENGTHS,
        grows=True,
    ),
    Estimator(
        name="live_group_frac",
        unit="share of groups",
        formula="groups whose rewards differ by more than reward_tol, over G",
        help="groups whose rewards differ, the only ones GRPO learns from",
        parts=(LIVE, GROUPS),
        value=ratio,
        headline=True,
    ),
    Estimator(
        name="singleton_share",
        unit="share of Σ|A|",
        formula="Σ|A| of groups of one, over Σ|A|",
        help="signal of groups of one, whose advantage verl leaves at the raw reward",
        parts=(Part(_abs_singleton, True), Part(_abs_advantage, True)),
        value=ratio,
        nan_reason="every advantage is 0",
    ),
    Estimator(
        name="kept_frac",
        unit="share of responses",
        formula="responses with w > 0, over N",
        help="responses with weight above 0",
        parts=(Part(lambda w: w.kept_KG), RESPONSES),
        value=ratio,
        headline=True,
    ),
    Estimator(
        name="kept_token_frac",
        unit="share of tokens",
        formula="tokens with w > 0, over M",
        help="tokens with weight above 0",
        parts=(Part(lambda w: w.group_sum(w.tokens_kept_KN)), TOKENS),
        value=ratio,
        needs=LENGTHS,
        nan_reason="no response has a token",
    ),
    Estimator(
        name="kept_group_frac",
        unit="share of groups",
        formula="groups with a response of w > 0, over G",
        help="groups with a kept response",
        parts=(KEPT_GROUPS, GROUPS),
        value=ratio,
    ),
    Estimator(
        name="signal_group_frac",
        unit="share of groups",
        formula="live groups with Σ|wA| > 0, over G",
        help="live groups that still carry a weighted advantage",
        parts=(SIGNAL_GROUPS, GROUPS),
        value=ratio,
        better="more",
    ),
)
