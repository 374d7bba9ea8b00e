"""Generation that was paid for and not used, and what refilling it would cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...traces.ragged import Float, ratio
from .aggregation import updates_per_step
from .base import GROUPS, LENGTHS, TOKENS, Estimator, Part
from .counts import KEPT_GROUPS
from .terms import Weighted


def _trained(w: Weighted) -> Float:
    return np.where(w.trained_KG, w.group_sum(w.tokens_kept_KN), 0.0)


def _updates(w: Weighted) -> Float:
    count = updates_per_step(w.terms.batch)
    return np.full((1, w.terms.batch.num_groups), count)


def _refill(w: Weighted) -> Float:
    """1 per group for a strategy that keeps or drops whole groups, else NaN."""
    whole = [[1.0 if d.whole_groups else np.nan] for d in w.decisions]
    return np.broadcast_to(np.array(whole), w.signal_KG.shape)


def _wasted(trained: Any, tokens: Any) -> Float:
    return 1.0 - ratio(trained, tokens)


TRAINED = Part(_trained)

ESTIMATORS = (
    Estimator(
        name="trained_token_frac",
        unit="share of tokens",
        formula="tokens with w > 0 in groups with Σ|wA| > 0, over M",
        help="generated tokens that reach the gradient",
        heading="trained\ntokens",
        parts=(TRAINED, TOKENS),
        value=ratio,
        needs=LENGTHS,
        nan_reason="no response has a token",
        better="less",
        headline=True,
    ),
    Estimator(
        name="wasted_token_frac",
        unit="share of tokens",
        formula="1 − trained_token_frac",
        help=(
            "Share of generated tokens that never reach the gradient, even where they were kept."
        ),
        heading="\nwaste",
        parts=(TRAINED, TOKENS),
        value=_wasted,
        needs=LENGTHS,
        nan_reason="no response has a token",
        headline=True,
    ),
    Estimator(
        name="refill_factor",
        unit="generated per kept group",
        formula="ΣG / Σ kept groups, over the run",
        help=("groups to generate for one kept group, if refill drew groups like the logged ones"),
        parts=(Part(_refill), KEPT_GROUPS),
        value=ratio,
        nan_reason="not a filter of whole groups, or nothing was kept in the whole run",
        run="pooled",
    ),
    Estimator(
        name="updates_per_step",
        unit="updates",
        formula="mini-batches of a step",
        help="optimizer updates of one rollout step and epoch",
        parts=(Part(_updates, True), GROUPS),
        value=ratio,
        nan_reason="the trace knows neither mini-batches nor ppo_mini_batch_size and n",
    ),
)
