"""Turns a batch into the plain rows that the slow reference implementations take."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from dfsim.strategies.base import Decision
from dfsim.traces.batch import RolloutBatch


def keys_of(batch: RolloutBatch) -> list[tuple[str, int]]:
    uids = [batch.uid_G[g] for g in batch.group_N]
    return list(zip(uids, batch.rollout_idx_N.tolist(), strict=True))


def token_lists(batch: RolloutBatch, values: Any) -> list[Any] | None:
    if values is None or batch.token_offsets is None:
        return None
    cuts = batch.token_offsets.tolist()
    return [values[a:b].tolist() for a, b in pairwise(cuts)]


def rows_of(batch: RolloutBatch) -> list[dict[str, Any]]:
    log_probs = token_lists(batch, batch.old_log_prob_T)
    token_advantages = token_lists(batch, batch.advantage_T)
    rows = []
    for i, (uid, index) in enumerate(keys_of(batch)):
        row = {
            "group_uid": uid,
            "rollout_idx": index,
            "prompt_id": None if batch.prompt_id_G is None else batch.prompt_id_G[batch.group_N[i]],
            "domain": None if batch.domain_N is None else batch.domains[batch.domain_N[i]],
            "reward": float(batch.reward_N[i]),
            "advantage": float(batch.advantage_N[i]),
            "num_tokens": 0 if batch.num_tokens_N is None else int(batch.num_tokens_N[i]),
            "old_log_probs": None if log_probs is None else log_probs[i],
        }
        if token_advantages is not None:
            row["token_advantages"] = token_advantages[i]
        if batch.output_offsets is not None and batch.output_tokens_O is not None:
            cut = slice(batch.output_offsets[i], batch.output_offsets[i + 1])
            mini = batch.mini_batch_O
            minis = [0] * len(batch.output_tokens_O[cut]) if mini is None else mini[cut].tolist()
            row["outputs"] = list(zip(batch.output_tokens_O[cut].tolist(), minis, strict=True))
        rows.append(row)
    return rows


def decision_of(batch: RolloutBatch, decision: Decision) -> dict[str, Any]:
    keys = keys_of(batch)
    tokens = token_lists(batch, decision.token_weight_T)
    replaced = decision.advantage_N
    return {
        "weight": dict(zip(keys, decision.weight_N.tolist(), strict=True)),
        "token_weights": None if tokens is None else dict(zip(keys, tokens, strict=True)),
        "advantage": None if replaced is None else dict(zip(keys, replaced.tolist(), strict=True)),
    }
