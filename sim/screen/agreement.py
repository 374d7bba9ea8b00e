"""Which strategies decide alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...strategies.base import Decision
from ...traces.batch import RolloutBatch
from ...traces.ragged import AnyArray, Bool, Float

_TOLERANCE = 1e-9


class Agreement:
    """Counts, over batches, the responses that each pair of K strategies decides alike.

    Alike means: the same weight (of every token, where a strategy weighs tokens) and the same
    advantage, to 1e-9.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._alike_KK = np.zeros((len(names), len(names)), dtype=np.int64)
        self._responses = 0

    def add(self, batch: RolloutBatch, decisions: Mapping[str, Decision]) -> None:
        """Add one batch's decisions; a callback of :func:`dfsim.replay`."""
        self._responses += batch.num_responses
        chosen = [decisions[name] for name in self.names]
        for first, one in enumerate(chosen):
            for second in range(first, len(chosen)):
                alike = int(_alike(batch, one, chosen[second]).sum())
                self._alike_KK[first, second] += alike
                if second != first:
                    self._alike_KK[second, first] += alike

    def shares_KK(self) -> Float:
        """Share of responses decided alike (K, K)."""
        return self._alike_KK / max(self._responses, 1)


def _alike(batch: RolloutBatch, one: Decision, other: Decision) -> Bool:
    same = np.abs(one.weight_N - other.weight_N) <= _TOLERANCE
    if one.advantage_N is not None or other.advantage_N is not None:
        same &= np.abs(_advantage(batch, one) - _advantage(batch, other)) <= _TOLERANCE
    if one.token_weight_T is None and other.token_weight_T is None:
        return same
    assert batch.token_offsets is not None
    differ_T = np.abs(_of_tokens(batch, one) - _of_tokens(batch, other)) > _TOLERANCE
    total = np.concatenate([[0], np.cumsum(differ_T)])
    return same & (np.diff(total[batch.token_offsets]) == 0)


def _advantage(batch: RolloutBatch, decision: Decision) -> AnyArray:
    return batch.advantage_N if decision.advantage_N is None else decision.advantage_N


def _of_tokens(batch: RolloutBatch, decision: Decision) -> AnyArray:
    if decision.token_weight_T is not None:
        return decision.token_weight_T
    assert batch.token_offsets is not None
    return np.repeat(decision.weight_N, np.diff(batch.token_offsets))
