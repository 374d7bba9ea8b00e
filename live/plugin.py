"""verl's ``verl.plugins`` entry point: registers dfsim's trainer and reporting losses.

verl imports this module in every process that imports verl. Registration waits until the modules it
needs are imported anyway, so a process that only borrows a function from verl pays nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType

from .after_import import after_import
from .compat import ON_CPU


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
    from .proof import register_proofs

    register_proofs(module.POLICY_LOSS_REGISTRY)


after_import(
    "verl.trainer.ppo.v1.trainer_sync", _loudly(_register_trainer, "registering the trainer")
)
after_import(
    "verl.trainer.ppo.core_algos", _loudly(_register_proofs, "registering the reporting losses")
)
if os.environ.get(ON_CPU) == "1":
    from .rehearsal.register import register

    register()
