"""verl as a session's backend: the only file that reads and writes its TransferQueue."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict

from ...traces.ragged import AnyArray, Int, segment_sum
from ..core.backend import ROW_COLUMN, RunConfig
from ..core.proof import Seen
from ..core.rows import OutputRows, mini_batches, prompt_digest
from .loss import take_seen

_FIELDS = ("response_mask", "advantages", "returns", "rm_scores", "prompts", "extra_fields")
_OPTIONAL = ("token_level_rewards", "rollout_is_weights")
_TOKEN_FIELDS = {
    "old_log_probs": "old_log_probs",
    "rollout_log_probs": "rollout_log_probs",
    "ref_log_prob": "ref_log_probs",
    "entropy": "entropy",
}
"""verl's token fields and what a trace calls them."""
_WRITTEN = {"weights": "rollout_is_weights"}
"""What a session writes and what verl calls it, where the names differ."""


class VerlBackend:
    """See :class:`dfsim.live.core.backend.Backend`; a batch is verl's ``KVBatchMeta``.

    Args:
        trainer: verl's.
        config: its resolved configuration as plain Python values.
        run: the same as dfsim sees it.
    """

    def __init__(self, trainer: Any, config: Mapping[str, Any], run: RunConfig) -> None:
        self._trainer = trainer
        self._kl_in_reward = bool(config["algorithm"].get("use_kl_in_reward"))
        shuffles = config["actor_rollout_ref"]["actor"].get("shuffle")
        self._mini_batch_rows = None if shuffles else run.batch_options["mini_batch_rows"]
        self._response_mask: torch.Tensor | None = None

    def read(self, batch: Any, *, domain: str | None, numbered: bool, text: bool) -> OutputRows:
        """Read one step from the queue."""
        wanted = [*_FIELDS, *_OPTIONAL, *_TOKEN_FIELDS, *([domain] if domain else [])]
        wanted += [*([ROW_COLUMN] if numbered else []), *(["responses"] if text else [])]
        data = tq.kv_batch_get(
            keys=batch.keys,
            partition_id=batch.partition_id,
            select_fields=list(dict.fromkeys(wanted)),
        )
        self._response_mask = data["response_mask"]
        mask, offsets = _flat(data["response_mask"])
        score = _flat(data["rm_scores"])[0]
        rewarded = score
        if self._kl_in_reward and "token_level_rewards" in data:
            rewarded = _flat(data["token_level_rewards"])[0]
        prompts, prompt_offsets = _flat(data["prompts"])
        ids = [prompts[a:b] for a, b in pairwise(prompt_offsets)]
        weights = _flat(data["rollout_is_weights"])[0] if "rollout_is_weights" in data else None
        return OutputRows(
            step=self._trainer.global_steps,
            keys=list(batch.keys),
            is_padding_R=np.array([bool(t.get("is_padding", False)) for t in batch.tags]),
            offsets=offsets,
            mask_F=mask > 0,
            advantage_F=_flat(data["advantages"])[0],
            reward_R=segment_sum(rewarded, offsets),
            task_reward_R=segment_sum(score, offsets) if self._kl_in_reward else None,
            tokens={
                ours: _flat(data[theirs])[0]
                for theirs, ours in _TOKEN_FIELDS.items()
                if theirs in data
            },
            returns_F=_flat(data["returns"])[0],
            is_weight_F=weights,
            prompt_R=np.array([prompt_digest(i) for i in ids], dtype=object),
            domain_R=np.array(_listed(data[domain]), dtype=object) if domain in data else None,
            dataset_row_R=np.array(_listed(data[ROW_COLUMN]), np.int64) if numbered else None,
            mini_batch_R=None
            if self._mini_batch_rows is None
            else mini_batches(len(batch.keys), _ranks(self._trainer), self._mini_batch_rows),
            policy_version_min_R=_versions(batch.tags, "min_global_steps"),
            policy_version_max_R=_versions(batch.tags, "max_global_steps"),
            extras=_extras(_listed(data["extra_fields"])) if "extra_fields" in data else {},
            texts=_texts(self._trainer.tokenizer, ids, data["responses"]) if text else None,
        )

    def write(self, batch: Any, fields: Mapping[str, AnyArray]) -> Any:
        """Put token values for every row, and return verl's new meta.

        The returned ``KVBatchMeta`` names the new fields; the worker side selects exactly what the
        meta names, so the trainer must go on with this one.
        """
        assert self._response_mask is not None
        offsets = self._response_mask.offsets()
        nested = {
            _WRITTEN.get(name, name): torch.nested.nested_tensor_from_jagged(
                torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)), offsets
            )
            for name, values in fields.items()
        }
        return tq.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=TensorDict(nested, batch_size=len(batch.keys)),
        )

    def take_report(self, metrics: MutableMapping[str, Any]) -> tuple[Seen | None, float | None]:
        """Move the sums of the reporting loss out of verl's metrics, and read its pg_loss."""
        return take_seen(metrics), metrics.get("actor/pg_loss")


def _ranks(trainer: Any) -> int:
    """Data-parallel ranks of the actor, as ``_balance_batch`` asked for them in this step."""
    return int(max(trainer.actor_rollout_wg._dispatch_info["actor"])) + 1


def _flat(tensor: torch.Tensor) -> tuple[AnyArray, Int]:
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
    values, offsets = _flat(responses)
    answers = [values[a:b] for a, b in pairwise(offsets)]

    def decoded(rows: Sequence[AnyArray]) -> AnyArray:
        text = [tokenizer.decode(ids.tolist(), skip_special_tokens=True) for ids in rows]
        return np.array(text, dtype=object)

    return {"prompt": decoded(prompts), "response": decoded(answers)}
