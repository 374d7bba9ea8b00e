"""Loss coefficients: how much one token of each output row counts in verl's loss."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from ...traces.batch import RolloutBatch
from ...traces.errors import DfsimError, nearest
from ...traces.ragged import Float, Int

LossAggMode = Literal[
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
]
LOSS_AGG_MODES: tuple[str, ...] = get_args(LossAggMode)


def check_mode(mode: str) -> LossAggMode:
    """Return the mode, or raise ``DfsimError`` naming the nearest one."""
    if mode not in LOSS_AGG_MODES:
        raise DfsimError(
            f"no loss_agg_mode is called '{mode}'{nearest(mode, LOSS_AGG_MODES)}; "
            f"verl has: {', '.join(LOSS_AGG_MODES)}"
        )
    return mode  # type: ignore[return-value]


def output_tokens(batch: RolloutBatch) -> Int:
    """Tokens of each output row (O); one output a response where the trace says no more.

    Unknown lengths count as one token a response, so that every response weighs the same.
    """
    if batch.output_tokens_O is not None:
        return batch.output_tokens_O
    if batch.num_tokens_N is not None:
        return batch.num_tokens_N
    return np.ones(batch.num_responses, dtype=np.int64)


def coefficients(batch: RolloutBatch, mode: LossAggMode) -> Float:
    """Coefficient c of one token in each output row (O).

    For mini-batch b of B configured rows with M_b tokens, and an output row of m tokens:
    ``token-mean`` 1/M_b; ``token-sum`` 1; ``seq-mean-token-mean`` 1/(B·m); ``seq-mean-token-sum``
    1/B; ``seq-mean-token-sum-norm`` 1/(B·loss_scale_factor), NaN where that is unset (verl then
    divides by each micro-batch's padded width). A trace that does not say its mini-batches is taken
    as one. Checked against verl 0.9.1's ``agg_loss`` in the tests.
    """
    tokens = output_tokens(batch).astype(np.float64)
    mini = batch.mini_batch_O
    if mini is None:
        mini = np.zeros(len(tokens), dtype=np.int64)
    if mode == "token-mean":
        per_mini = np.bincount(mini, tokens)[mini]
        return np.divide(1.0, per_mini, out=np.zeros(len(tokens)), where=per_mini > 0)
    if mode == "token-sum":
        return np.ones(len(tokens))
    configured = batch.mini_batch_rows
    rows = np.bincount(mini)[mini] if configured is None else np.full(len(tokens), configured)
    if mode == "seq-mean-token-mean":
        return np.divide(1.0, rows * tokens, out=np.zeros(len(tokens)), where=tokens > 0)
    if mode == "seq-mean-token-sum":
        return np.reciprocal(rows.astype(np.float64))
    scale = batch.loss_scale_factor
    return np.full(len(tokens), np.nan) if scale is None else np.divide(1.0, rows * scale)


def updates_per_step(batch: RolloutBatch) -> float:
    """Optimizer updates of a step and epoch: mini-batches seen, else rows over configured rows."""
    if batch.mini_batch_O is not None:
        return float(len(np.unique(batch.mini_batch_O)))
    if batch.mini_batch_rows is None:
        return np.nan
    return float(-(-len(output_tokens(batch)) // batch.mini_batch_rows))
