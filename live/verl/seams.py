"""Private functions of verl that dfsim calls, overrides or replaces; ``dfsim doctor`` looks."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seam:
    """A private part of verl that dfsim uses, overrides or replaces.

    Attributes:
        module: where it is.
        name: dotted; of a class also what its methods set on ``self``.
        parameters: first parameters that dfsim counts on, or none.
    """

    module: str
    name: str
    parameters: tuple[str, ...]

    def problem(self) -> str | None:
        """What differs from verl 0.9.1, or ``None``."""
        try:
            found: Any = importlib.import_module(self.module)
            for part in self.name.split("."):
                if _is_set_on_self(found, part):
                    return None
                found = getattr(found, part)
        except ImportError as error:
            return f"{self.module} does not import ({error})"
        except AttributeError:
            return f"{self.module} has no {self.name}"
        if not self.parameters:
            return None
        got = tuple(inspect.signature(found).parameters)
        if got[: len(self.parameters)] != self.parameters:
            return f"takes ({', '.join(got)}), not ({', '.join(self.parameters)})"
        return None

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def _is_set_on_self(owner: Any, name: str) -> bool:
    if not inspect.isclass(owner) or hasattr(owner, name):
        return False
    return re.search(rf"\bself\.{name}(: [^=\n]+)? = ", inspect.getsource(owner)) is not None


_BASE = "verl.trainer.ppo.v1.trainer_base"
_QUEUE = "transfer_queue"

SEAMS = (
    Seam(_BASE, "register_trainer", ("name",)),
    Seam(_BASE, "TRAINER_REGISTRY", ()),
    Seam(_BASE, "PPOTrainer._compute_advantage", ("self", "batch", "metrics")),
    Seam(_BASE, "PPOTrainer._update_actor", ("self", "batch", "metrics")),
    Seam(
        _BASE,
        "PPOTrainer._step_once",
        ("self", "metrics", "timing_raw", "sample_batch_size"),
    ),
    Seam(_BASE, "PPOTrainer._init_dataloader", ("self",)),
    Seam(_BASE, "PPOTrainer._load_checkpoint", ("self",)),
    Seam(_BASE, "PPOTrainer._balance_batch", ("self", "batch", "metrics")),
    Seam(_BASE, "PPOTrainer._fetch_one_gen_batch", ("self",)),
    Seam(_BASE, "PPOTrainer.fit", ("self", "agent_loop_manager")),
    Seam(_BASE, "PPOTrainer.actor_rollout_wg", ()),
    Seam(_BASE, "uuid.uuid4", ()),
    Seam("verl.single_controller.base.worker_group", "WorkerGroup._dispatch_info", ()),
    Seam("verl.workers.engine.fsdp.transformer_impl", "CPUOffloadPolicy", ("pin_memory",)),
    Seam("verl.workers.rollout.base", "_ROLLOUT_REGISTRY", ()),
    Seam("verl.workers.rollout.replica", "RolloutReplica._server_handle", ()),
    Seam("verl.workers.rollout.replica", "RolloutReplica._server_address", ()),
    Seam(
        "verl.utils.distributed",
        "initialize_global_process_group_ray",
        ("timeout_second", "backend"),
    ),
    Seam(
        "verl.trainer.ppo.v1.replay_buffer",
        "ReplayBuffer._select_prompt_uids",
        ("self", "partition_id", "sampleable_keys", "batch_size"),
    ),
    Seam(
        "verl.trainer.ppo.v1.replay_buffer",
        "ReplayBuffer._materialize_batch",
        ("self", "partition_id"),
    ),
    Seam("verl.trainer.ppo.v1.trainer_sync", "PPOTrainerSync", ("config",)),
    Seam("verl.trainer.ppo.core_algos", "POLICY_LOSS_REGISTRY", ()),
    Seam(
        "verl.trainer.ppo.core_algos",
        "compute_policy_loss_vanilla",
        (
            *("old_log_prob", "log_prob", "advantages", "response_mask"),
            *("loss_agg_mode", "config", "rollout_is_weights"),
        ),
    ),
    Seam(_QUEUE, "kv_batch_get", ("keys", "partition_id", "select_fields")),
    Seam(_QUEUE, "kv_batch_put", ("keys", "partition_id", "fields")),
)
