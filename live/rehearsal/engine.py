"""verl's FSDP2 training engine, registered for the CPU."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any


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
