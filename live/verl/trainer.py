"""verl's synchronous trainer with dfsim inside: registered as ``dfsim_sync``."""

from __future__ import annotations

import sys
from typing import Any

import verl
from omegaconf import OmegaConf, open_dict
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.dataset.rl_dataset import collate_fn

from ..core.backend import ROW_COLUMN
from ..core.session import Session
from .adapt import VerlBackend
from .compat import TRAINER_MODE, check_mixing, check_run, check_verl_version, policy_loss_mode
from .loss import proof_name
from .run_config import run_config
from .settings import read_settings


def say(text: str) -> None:
    """Print one line to stderr, which Ray forwards to verl's console."""
    print(text, file=sys.stderr, flush=True)


@register_trainer(TRAINER_MODE)
class DfsimSyncTrainer(PPOTrainerSync):  # type: ignore[misc]
    """``PPOTrainerSync`` that captures, decides, delivers and proves.

    With ``+dfsim.capture`` or ``+dfsim.shadow`` alone it computes what the stock trainer computes.

    Raises:
        DfsimError: a setting that can't work, before any model loads.
    """

    def __init__(self, config: Any) -> None:
        check_verl_version(verl.__version__)
        plain = OmegaConf.to_container(config, resolve=True)
        settings = read_settings(plain.get("dfsim") or {})
        check_run(plain, settings.weights)
        if settings.sampler is not None:
            check_mixing(plain)
        run = run_config(plain)
        self.dfsim = Session(settings, run, VerlBackend(self, plain, run), say)
        with open_dict(config):
            # Any other name would take verl's asynchronous branches.
            config.trainer.v1.trainer_mode = "sync"
            if self.dfsim.proves:
                loss = config.actor_rollout_ref.actor.policy_loss
                loss.loss_mode = proof_name(policy_loss_mode(plain))
        super().__init__(config)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        rows = self.train_dataset
        frame: Any = getattr(rows, "dataframe", None)
        if hasattr(frame, "column_names"):
            if self.dfsim.numbers_rows:
                frame = rows.dataframe = frame.add_column(ROW_COLUMN, list(range(len(frame))))
            self.dfsim.prepare(list(frame.column_names), lambda name: frame[name])
        else:  # a dataset of the user's own
            self.dfsim.prepare(
                list(rows[0]), lambda name: (rows[index][name] for index in range(len(rows)))
            )
        if self.dfsim.rows is not None:
            self.train_dataloader = StatefulDataLoader(
                dataset=self.train_dataset,
                batch_sampler=self.dfsim.rows,
                num_workers=0,
                collate_fn=collate_fn,
            )

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        self.dfsim.begin(self.global_steps + 1)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        return self.dfsim.observe(batch, metrics)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if self.dfsim.skips_update():
            return batch
        return super()._update_actor(batch, metrics)

    def _step_once(self, metrics: dict[str, Any], timing_raw: Any, sample_batch_size: int) -> Any:
        batch = super()._step_once(metrics, timing_raw, sample_batch_size)
        self.dfsim.finish(metrics)
        return batch

    def fit(self, agent_loop_manager: Any) -> None:
        """Train; what is captured is written also where training fails."""
        try:
            super().fit(agent_loop_manager)
        finally:
            self.dfsim.close()
