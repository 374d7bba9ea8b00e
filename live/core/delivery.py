"""From a decision to what a live run applies, and back: the same arithmetic in trainer and verify.

Decided in float64, applied in float32.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...strategies.base import Decision
from ...traces.batch import RolloutBatch
from ...traces.ragged import Float

Rescale = Literal["none", "kept", "mean_one"]
OnEmpty = Literal["skip_update", "keep_all", "deliver"]
RESCALE: tuple[Rescale, ...] = get_args(Rescale)
ON_EMPTY: tuple[OnEmpty, ...] = get_args(OnEmpty)

Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Applied:
    """What reaches the loss. N responses, T tokens, canonical order, float32.

    Attributes:
        weight_N: weight of each response; for a token strategy the mean of its tokens.
        token_weight_T: weight of each token, or ``None`` for a response strategy.
        advantage_N: advantages that replace the run's, or ``None``.
        empty: whether the decision kept no token at all.
        scale: what ``rescale`` multiplied the weights by.
    """

    weight_N: Float32
    token_weight_T: Float32 | None
    advantage_N: Float32 | None
    empty: bool
    scale: float

    def weights_T(self, batch: RolloutBatch) -> Float32:
        """Weight of every token (T)."""
        if self.token_weight_T is not None:
            return self.token_weight_T
        return np.repeat(self.weight_N, tokens_of(batch))

    def digest(self) -> str:
        """Digest of the bits: equal where every weight and advantage is."""
        digest = hashlib.blake2b(digest_size=16)
        for values in (self.weight_N, self.token_weight_T, self.advantage_N):
            digest.update(b"-" if values is None else values.tobytes() + b"+")
        return digest.hexdigest()


def tokens_of(batch: RolloutBatch) -> NDArray[np.int64]:
    """Trainable tokens of each response (N); a live batch always knows them."""
    assert batch.num_tokens_N is not None
    return batch.num_tokens_N


def apply(
    decision: Decision,
    batch: RolloutBatch,
    rescale: Rescale = "none",
    on_empty: OnEmpty = "skip_update",
) -> Applied:
    """Turn a decision into what the loss gets.

    Args:
        decision: from ``Strategy.decide``.
        batch: the step it decided for.
        rescale: ``none``; ``kept`` multiplies by tokens / tokens with weight > 0, which undoes that
            verl divides by all response tokens; ``mean_one`` makes the token mean of the weights 1.
            Both over the whole step, not per mini-batch.
        on_empty: what a step does that keeps no token: ``skip_update``, ``keep_all`` (weights 1),
            or ``deliver`` (the zeros themselves).
    """
    num_tokens = tokens_of(batch)
    weight_T: Float = (
        np.repeat(decision.weight_N, num_tokens)
        if decision.token_weight_T is None
        else decision.token_weight_T
    )
    kept = int(np.count_nonzero(_float32(weight_T) > 0))
    if kept == 0 and on_empty == "keep_all":
        ones = np.ones(batch.num_responses, np.float32)
        return Applied(ones, None, None, True, 1.0)
    scale = 1.0
    if kept and rescale != "none":
        scale = len(weight_T) / (kept if rescale == "kept" else float(weight_T.sum()))
    return Applied(
        _float32(decision.weight_N * scale),
        None if decision.token_weight_T is None else _float32(decision.token_weight_T * scale),
        None if decision.advantage_N is None else _float32(decision.advantage_N),
        kept == 0,
        scale,
    )


def _float32(values: Any) -> Float32:
    return np.ascontiguousarray(values, dtype=np.float32)
