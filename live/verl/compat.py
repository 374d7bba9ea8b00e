"""On which runs of verl dfsim works: versions, and settings under which weights arrive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...strategies.build import AnyStrategy
from ...strategies.sample.base import SamplingStrategy
from ...traces.errors import DfsimError, nearest

SUPPORTED_VERL = ("0.9.1",)
TRAINER_MODE = "dfsim_sync"

GROUP_ESTIMATORS = (
    *("grpo", "grpo_vectorized", "grpo_passk", "gdpo", "gpg"),
    *("rloo", "rloo_vectorized", "opo", "reinforce_plus_plus_baseline"),
)
"""verl's advantage estimators that compare the responses of one prompt."""


POLICY_LOSSES = (
    *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov"),
    *("geo_mean", "dro", "cispo"),
)
"""verl's own policy losses that use ``rollout_is_weights``."""


def check_verl_version(version: str) -> None:
    """Refuse a verl that this dfsim was not measured on.

    Raises:
        DfsimError: with the versions that are supported.
    """
    if version not in SUPPORTED_VERL:
        raise DfsimError(
            f"verl {version} is not supported: dfsim's seams were measured on "
            f"{', '.join(SUPPORTED_VERL)}. Install that version, or run dfsim doctor to see what "
            "differs"
        )


def check_run(config: Mapping[str, Any], weights: AnyStrategy | None) -> None:
    """Refuse a verl configuration under which dfsim can't do what it says.

    Args:
        config: verl's resolved configuration as plain Python values.
        weights: the strategy whose weights are applied, or ``None``.

    Raises:
        DfsimError: names the setting, why, and the remedy.
    """
    actor_rollout_ref = config["actor_rollout_ref"]
    estimator = str(config["algorithm"]["adv_estimator"])
    if estimator not in GROUP_ESTIMATORS:
        raise DfsimError(
            f"algorithm.adv_estimator={estimator} compares no responses of one prompt, so there is "
            f"nothing for a data strategy to select{nearest(estimator, GROUP_ESTIMATORS)}; use "
            f"one of: {', '.join(GROUP_ESTIMATORS)}"
        )
    if int(actor_rollout_ref["rollout"]["n"]) < 2:
        raise DfsimError(
            "actor_rollout_ref.rollout.n=1 draws one response a prompt, so there is no group to "
            "select in; set it to 2 or more"
        )
    if not actor_rollout_ref.get("hybrid_engine", True):
        raise DfsimError(
            "actor_rollout_ref.hybrid_engine=false is an asynchronous run; dfsim_sync is the "
            "synchronous trainer, so leave hybrid_engine=true"
        )
    sync_steps = ((config["trainer"].get("v1") or {}).get("sync") or {}).get("parameter_sync_step")
    if (sync_steps or 1) != 1:
        raise DfsimError(
            f"trainer.v1.sync.parameter_sync_step={sync_steps} updates several times a step, which "
            "dfsim_sync does not support; set it to 1"
        )
    if weights is None:
        return
    loss_mode = policy_loss_mode(config)
    if loss_mode == "bypass_mode":
        raise DfsimError(
            "actor.policy_loss.loss_mode=bypass_mode ignores rollout_is_weights, so weights would "
            "never reach the loss; use loss_mode=vanilla "
            "(algorithm.rollout_correction.bypass_mode=true may stay)"
        )
    rule = weights.then if isinstance(weights, SamplingStrategy) else weights
    if loss_mode == "geo_mean" and rule is not None and rule.actuator.level == "token":
        raise DfsimError(
            f"loss_mode=geo_mean collapses token weights to one a response, and {rule.name} "
            "weighs tokens; use loss_mode=vanilla, or a strategy that weighs responses"
        )


def check_mixing(config: Mapping[str, Any]) -> None:
    """Refuse a configuration under which a mixer's draw would come late or not at all.

    Raises:
        DfsimError: names the setting, why, and the remedy.
    """
    data = config["data"]
    if data.get("dataloader_num_workers"):
        raise DfsimError(
            f"data.dataloader_num_workers={data['dataloader_num_workers']} fetches prompts ahead, "
            "so a mixer would act late; set it to 0"
        )
    size = data.get("gen_batch_size") or data["train_batch_size"]
    filters = config["algorithm"].get("filter_groups") or {}
    if size != data["train_batch_size"] or filters.get("enable"):
        raise DfsimError(
            "a mixer draws a step's prompts at once: leave data.gen_batch_size unset and "
            "algorithm.filter_groups.enable=false"
        )


def starts_at_one(config: Mapping[str, Any]) -> bool:
    """Whether the run finds no checkpoint to resume from."""
    trainer = config["trainer"]
    if trainer.get("resume_mode") == "auto":
        folder = Path(str(trainer["default_local_dir"]))
        return not (folder / "latest_checkpointed_iteration.txt").exists()
    return trainer.get("resume_mode") == "disable"


def policy_loss_mode(config: Mapping[str, Any]) -> str:
    """``actor.policy_loss.loss_mode``, verl's default where unset."""
    loss = config["actor_rollout_ref"]["actor"].get("policy_loss") or {}
    return str(loss.get("loss_mode") or "vanilla")
