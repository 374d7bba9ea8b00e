"""A trainer with a fault that verl does not notice: it trains on with the meta before the put."""

from __future__ import annotations

from types import ModuleType

from wrapt import register_post_import_hook


def _register(module: ModuleType) -> None:
    from verl.trainer.ppo.v1.trainer_base import register_trainer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from dfsim.live.verl.trainer import DfsimSyncTrainer

    @register_trainer("wrong_meta")
    class WrongMeta(DfsimSyncTrainer):
        def _compute_advantage(self, batch, metrics):
            stale = PPOTrainerSync._compute_advantage(self, batch, metrics)
            self.dfsim.observe(stale, metrics)
            return stale


register_post_import_hook(_register, "verl.trainer.ppo.v1.trainer_sync")
