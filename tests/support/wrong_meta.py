"""A trainer with a fault that verl does not notice: it trains on with the meta before the put."""

from __future__ import annotations

from types import ModuleType

from dfsim.live.verl.after_import import after_import


def _register(module: ModuleType) -> None:
    from verl.trainer.ppo.v1.trainer_base import register_trainer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from dfsim.live.verl.trainer import DfsimSyncTrainer

    @register_trainer("wrong_meta")
    class WrongMeta(DfsimSyncTrainer):
        def _compute_advantage(self, batch, metrics):
            stale = PPOTrainerSync._compute_advantage(self, batch, metrics)
            self.dfsim.observe(self, stale, metrics)
            return stale


after_import("verl.trainer.ppo.v1.trainer_sync", _register)
