"""verl's replay buffers with short polls and rows in an order that does not depend on timing."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from ..core.rows import key_parts

POLL_SECONDS = 0.02


class _Ordered:
    """Selects the oldest prompts first and returns rows by prompt, session, and output.

    A rehearsal's uids rise in the order in which prompts were drawn (`register`), so this is the
    order of the data loader.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"poll_interval": POLL_SECONDS, **settings})

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: Any, batch_size: int) -> Any:
        uids, partition, steps = super()._select_prompt_uids(  # type: ignore[misc]
            partition_id, sampleable_keys, len(sampleable_keys)
        )
        oldest = sorted(uids, key=lambda uid: (steps.get(uid, 0), uid))
        return oldest[:batch_size], partition, steps

    def _materialize_batch(self, partition_id: str, uids: list[str], partition: Any) -> Any:
        ordered = {key: partition[key] for key in sorted(partition, key=key_parts)}
        return super()._materialize_batch(partition_id, uids, ordered)  # type: ignore[misc]


class RehearsalBuffer(_Ordered, ReplayBuffer):  # type: ignore[misc]
    """verl's synchronous replay buffer, ordered and polling every 20 ms."""


class RehearsalBufferAsync(_Ordered, ReplayBufferAsync):  # type: ignore[misc]
    """verl's asynchronous replay buffer, ordered and polling every 20 ms."""
