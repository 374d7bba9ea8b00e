"""verl's ``verl.plugins`` entry point: registers dfsim's trainer and reporting losses.

verl imports this module in every process that imports verl. Registration waits until the modules it
needs are imported anyway, so a process that only borrows a function from verl pays next to nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType

from wrapt import register_post_import_hook

ON_CPU = "DFSIM_REHEARSAL"


def _loudly(register: Callable[[ModuleType], None], what: str) -> Callable[[ModuleType], None]:
    """verl hides a plug-in's failure at DEBUG level; this one is printed."""

    def run(module: ModuleType) -> None:
        try:
            register(module)
        except Exception as error:
            line = f"{type(error).__name__}: {error}"
            print(f"dfsim: {what} failed: {line}; run dfsim doctor", file=sys.stderr, flush=True)

    return run


def _register_trainer(module: ModuleType) -> None:
    from . import trainer  # noqa: F401  registers itself


def _register_proofs(module: ModuleType) -> None:
    from .loss import register_proofs

    register_proofs(module.POLICY_LOSS_REGISTRY)


register_post_import_hook(
    _loudly(_register_trainer, "registering the trainer"), "verl.trainer.ppo.v1.trainer_sync"
)
register_post_import_hook(
    _loudly(_register_proofs, "registering the reporting losses"), "verl.trainer.ppo.core_algos"
)
if os.environ.get(ON_CPU) == "1":
    from ..rehearsal.register import register

    register()
