"""verl's TransferQueue ↔ ``OutputRows``: the only file that reads and writes the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict

from ...traces.ragged import AnyArray, Int, segment_sum
from ..core.rows import TOKEN_FIELDS, OutputRows, mini_batches, prompt_digest

_FIELDS = ("response_mask", "advantages", "returns", "rm_scores", "prompts", "extra_fields")
_OPTIONAL = ("token_level_rewards", "rollout_is_weights")


def read_rows(
    batch: Any,
    step: int,
    *,
    domain: str | None,
    kl_in_reward: bool,
    ranks: int,
    mini_batch_rows: int | None,
    text: Any = None,
) -> tuple[OutputRows, dict[str, Any]]:
    """Read one step from the queue.

    Args:
        batch: verl's ``KVBatchMeta`` after advantages were computed.
        step: ``global_steps``.
        domain: dataset column that names the domain, or ``None``.
        kl_in_reward: whether rewards hold a KL penalty (``algorithm.use_kl_in_reward``).
        ranks: data-parallel ranks of the actor.
        mini_batch_rows: output rows of a mini-batch, or ``None`` where verl shuffles them.
        text: tokenizer that decodes prompts and responses, or ``None`` for no text.

    Returns:
        The rows, and the nested tensors that a delivery needs: ``response_mask``, ``returns``.
    """
    wanted = [*_FIELDS, *_OPTIONAL, *TOKEN_FIELDS, *([domain] if domain else [])]
    if text is not None:
        wanted.append("responses")
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=list(dict.fromkeys(wanted))
    )
    mask, offsets = flat(data["response_mask"])
    score = flat(data["rm_scores"])[0]
    rewarded = score
    if kl_in_reward and "token_level_rewards" in data:
        rewarded = flat(data["token_level_rewards"])[0]
    prompts, prompt_offsets = flat(data["prompts"])
    ids = [prompts[a:b] for a, b in pairwise(prompt_offsets)]
    rows = OutputRows(
        step=step,
        keys=list(batch.keys),
        is_padding_R=np.array([bool(t.get("is_padding", False)) for t in batch.tags]),
        offsets=offsets,
        mask_F=mask > 0,
        advantage_F=flat(data["advantages"])[0],
        reward_R=segment_sum(rewarded, offsets),
        task_reward_R=segment_sum(score, offsets) if kl_in_reward else None,
        tokens={
            ours: flat(data[theirs])[0] for theirs, ours in TOKEN_FIELDS.items() if theirs in data
        },
        is_weight_F=flat(data["rollout_is_weights"])[0] if "rollout_is_weights" in data else None,
        prompt_R=np.array([prompt_digest(i) for i in ids], dtype=object),
        domain_R=np.array(_listed(data[domain]), dtype=object) if domain in data else None,
        mini_batch_R=None
        if mini_batch_rows is None
        else mini_batches(len(batch.keys), ranks, mini_batch_rows),
        policy_version_min_R=_versions(batch.tags, "min_global_steps"),
        policy_version_max_R=_versions(batch.tags, "max_global_steps"),
        extras=_extras(_listed(data["extra_fields"])) if "extra_fields" in data else {},
        texts=None if text is None else _texts(text, ids, data["responses"]),
    )
    return rows, {name: data[name] for name in ("response_mask", "returns")}


def write_fields(batch: Any, like: torch.Tensor, fields: Mapping[str, AnyArray]) -> Any:
    """Put flat token values under the given names, for every row, and return verl's new meta.

    The returned ``KVBatchMeta`` names the new fields; the worker side selects exactly what the meta
    names, so the trainer must go on with this one.

    Args:
        batch: the ``KVBatchMeta`` so far.
        like: a nested tensor of the wanted shape, ``response_mask``.
        fields: name → values (F).
    """
    nested = {
        name: torch.nested.nested_tensor_from_jagged(
            torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)), like.offsets()
        )
        for name, values in fields.items()
    }
    return tq.kv_batch_put(
        keys=batch.keys,
        partition_id=batch.partition_id,
        fields=TensorDict(nested, batch_size=len(batch.keys)),
    )


def flat(tensor: torch.Tensor) -> tuple[AnyArray, Int]:
    """Values and offsets of a jagged tensor, whatever view verl handed out."""
    if not tensor.is_nested:
        rows, width = tensor.shape[0], tensor.shape[1]
        return tensor.reshape(-1).numpy(), np.arange(rows + 1, dtype=np.int64) * width
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    offsets = tensor.offsets().numpy().astype(np.int64)
    return tensor.values().numpy()[: offsets[-1]], offsets


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _versions(tags: Sequence[Mapping[str, Any]], name: str) -> AnyArray | None:
    values = [t.get(name) for t in tags]
    return None if None in values else np.array(values, dtype=np.int64)


def _extras(fields: Sequence[Any]) -> dict[str, AnyArray]:
    """The verifier's numbers: ``reward_extra_info``; NaN where a row has none."""
    infos = [(f or {}).get("reward_extra_info") or {} for f in fields]
    names = sorted({n for info in infos for n, v in info.items() if _is_number(v)})
    return {
        name: np.array(
            [float(info[name]) if _is_number(info.get(name)) else np.nan for info in infos],
            np.float64,
        )
        for name in names
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.number, np.bool_))


def _texts(tokenizer: Any, prompts: Sequence[AnyArray], responses: Any) -> dict[str, AnyArray]:
    values, offsets = flat(responses)
    answers = [values[a:b] for a, b in pairwise(offsets)]

    def decoded(rows: Sequence[AnyArray]) -> AnyArray:
        text = [tokenizer.decode(ids.tolist(), skip_special_tokens=True) for ids in rows]
        return np.array(text, dtype=object)

    return {"prompt": decoded(prompts), "response": decoded(answers)}
