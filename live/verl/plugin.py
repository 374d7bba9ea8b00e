"""verl's ``verl.plugins`` entry point: registers dfsim's trainer and reporting losses.

verl imports this module in every process that imports verl. Registration waits until the modules it
needs are imported anyway, so a process that only borrows a function from verl pays next to nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .after_import import after_import

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

    _warn_of_unused_settings(module.PPOTrainerSync)


def _warn_of_unused_settings(stock: Any) -> None:
    """Let the stock trainer say that it does not act on ``+dfsim`` settings; no more than that."""
    start = stock.__init__

    def announced(self: Any, config: Any) -> None:
        if type(self) is stock and config.get("dfsim") is not None:
            print(
                "dfsim: +dfsim settings have no effect with trainer.v1.trainer_mode=sync; add "
                "trainer.v1.trainer_mode=dfsim_sync",
                file=sys.stderr,
                flush=True,
            )
        start(self, config)

    stock.__init__ = announced


def _register_proofs(module: ModuleType) -> None:
    from ..core.proof import register_proofs

    register_proofs(module.POLICY_LOSS_REGISTRY)


after_import(
    "verl.trainer.ppo.v1.trainer_sync", _loudly(_register_trainer, "registering the trainer")
)
after_import(
    "verl.trainer.ppo.core_algos", _loudly(_register_proofs, "registering the reporting losses")
)
if os.environ.get(ON_CPU) == "1":
    from ..rehearsal.register import register

    register()
