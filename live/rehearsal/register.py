"""Make verl run a rehearsal, on a CPU and repeatably, in the current process.

Everything here is a registration with verl, except for three replacements in memory:

- ``verl.utils.distributed``: the process group is plain gloo (`use_plain_gloo`);
- ``verl.workers.engine.fsdp.transformer_impl``: a reference policy's offload does not pin memory
  (`register_engine`);
- ``verl.trainer.ppo.v1.trainer_base``: uids are a function of seed, step, and draw
  (`use_repeatable_uids`), because verl's are random and rows are ordered by them.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from wrapt import register_post_import_hook

SEED_VARIABLE = "DFSIM_REHEARSAL_SEED"
_registered = False


def register() -> None:
    """Register platform, engine, and rollout; what needs a heavy module waits for its import."""
    global _registered
    if _registered:
        return
    _registered = True
    if os.environ.get("VERL_PLATFORM") == "cpu":
        _run_on_cpu()
    register_post_import_hook(_register_replica, "verl.workers.rollout.replica")
    register_post_import_hook(_register_rollout, "verl.workers.rollout.base")
    register_post_import_hook(use_repeatable_uids, "verl.trainer.ppo.v1.trainer_base")


def _run_on_cpu() -> None:
    from verl.plugin.platform import PlatformRegistry

    from .platform import CpuPlatform

    PlatformRegistry.register(platform="cpu")(CpuPlatform)
    register_post_import_hook(use_plain_gloo, "verl.utils.distributed")
    register_post_import_hook(register_engine, "verl.workers.engine.fsdp.transformer_impl")


def register_engine(transformer_impl: ModuleType) -> None:
    """Register verl's FSDP2 language-model engine for the device ``cpu``.

    Args:
        transformer_impl: ``verl.workers.engine.fsdp.transformer_impl``. Its offload policy, which
            the engine of a reference policy always uses, stops pinning memory: only an accelerator
            can pin it.
    """
    policy = transformer_impl.CPUOffloadPolicy

    def unpinned(pin_memory: bool = False) -> Any:
        return policy(pin_memory=False)

    transformer_impl.CPUOffloadPolicy = unpinned  # type: ignore[attr-defined]

    class CpuEngine(transformer_impl.FSDPEngineWithLMHead):  # type: ignore[name-defined,misc]
        pass

    transformer_impl.EngineRegistry.register(
        model_type="language_model", backend="fsdp2", device="cpu"
    )(CpuEngine)


def use_plain_gloo(distributed: ModuleType) -> None:
    """Make verl's process group plain gloo.

    Args:
        distributed: ``verl.utils.distributed``. verl asks for ``cpu:gloo`` and
            ``<device>:<backend>``, which on a CPU names one device twice, and torch refuses that.
    """
    distributed.initialize_global_process_group_ray = partial(  # type: ignore[attr-defined]
        distributed.initialize_global_process_group_ray, backend="gloo"
    )


def _register_replica(replica: ModuleType) -> None:
    def load() -> Any:
        from .rollout import CpuReplica

        return CpuReplica

    replica.RolloutReplicaRegistry.register("cpu", load)


def _register_rollout(base: ModuleType) -> None:
    base._ROLLOUT_REGISTRY[("cpu", "async")] = f"{__package__}.rollout.CpuRollout"


def use_repeatable_uids(trainer_base: ModuleType) -> None:
    """Give prompts uids that rise in the order of draws and repeat with the seed.

    Args:
        trainer_base: ``verl.trainer.ppo.v1.trainer_base``. A uid starts with the global step and
            the number of the draw in that step; the rest is a digest of those and the seed.
    """
    seed = os.environ.get(SEED_VARIABLE, "0")
    drawn: dict[int, int] = {}
    step = 0

    def uid() -> uuid.UUID:
        number = drawn[step] = drawn.get(step, 0) + 1
        digest = hashlib.sha256(f"{seed}/{step}/{number}".encode()).hexdigest()
        return uuid.UUID(f"{step:08x}{number:04x}4{digest[:3]}8{digest[3:18]}")

    fetch = trainer_base.PPOTrainer._fetch_one_gen_batch

    def fetch_in_step(trainer: Any) -> Any:
        nonlocal step
        step = trainer.global_steps
        return fetch(trainer)

    trainer_base.PPOTrainer._fetch_one_gen_batch = fetch_in_step
    trainer_base.uuid = SimpleNamespace(uuid4=uid)  # type: ignore[attr-defined]
