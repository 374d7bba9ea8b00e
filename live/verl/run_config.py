"""The settings of a verl run that matter for reading and comparing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...traces.storage.files import sha256_of
from ..core.backend import RunConfig
from .compat import POLICY_LOSSES, policy_loss_mode, starts_at_one


def run_config(config: Mapping[str, Any]) -> RunConfig:
    """What a session must know of a run.

    Args:
        config: verl's resolved configuration as plain Python values.
    """
    actor, data = config["actor_rollout_ref"]["actor"], config["data"]
    correction = config["algorithm"].get("rollout_correction") or {}
    loss_mode = policy_loss_mode(config)
    loss_agg_mode = actor.get("loss_agg_mode") or "token-mean"
    return RunConfig(
        record=recorded_settings(config),
        n=int(config["actor_rollout_ref"]["rollout"]["n"]),
        train_batch_size=int(data["train_batch_size"]),
        max_response_length=data.get("max_response_length"),
        seed=int(data.get("seed") or 0),
        loss_agg_mode=loss_agg_mode,
        no_report=None
        if loss_mode in POLICY_LOSSES
        else f"loss_mode={loss_mode} is not one of verl's own, so nothing reports",
        plain_pg_loss=loss_mode == "vanilla"
        and loss_agg_mode == "token-mean"
        and not (correction.get("rollout_rs") or correction.get("bypass_mode")),
        dynamic_batches=bool(actor.get("use_dynamic_bsz")),
        ppo_epochs=int(actor.get("ppo_epochs") or 1),
        critic_warmup=int(config["trainer"].get("critic_warmup") or 0),
        starts_at_one=starts_at_one(config),
    )


def recorded_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that matter for reading and comparing runs, by verl's names.

    Args:
        config: verl's resolved configuration as plain Python values.
    """
    actor_rollout_ref = config["actor_rollout_ref"]
    actor, rollout = actor_rollout_ref["actor"], actor_rollout_ref["rollout"]
    optim, data, algorithm = actor.get("optim") or {}, config["data"], config["algorithm"]
    correction = algorithm.get("rollout_correction") or {}
    return {
        "model": named(actor_rollout_ref["model"]["path"], "config.json"),
        "adv_estimator": str(algorithm["adv_estimator"]),
        "norm_adv_by_std_in_grpo": algorithm.get("norm_adv_by_std_in_grpo"),
        "use_kl_in_reward": algorithm.get("use_kl_in_reward"),
        "rollout_is": correction.get("rollout_is"),
        "n": rollout["n"],
        "temperature": rollout.get("temperature"),
        "max_response_length": data.get("max_response_length"),
        "train_batch_size": data["train_batch_size"],
        "ppo_mini_batch_size": actor["ppo_mini_batch_size"],
        "ppo_epochs": actor.get("ppo_epochs"),
        "loss_agg_mode": actor.get("loss_agg_mode"),
        "loss_scale_factor": actor.get("loss_scale_factor"),
        "loss_mode": policy_loss_mode(config),
        "use_kl_loss": actor.get("use_kl_loss"),
        "kl_loss_coef": actor.get("kl_loss_coef"),
        "entropy_coeff": actor.get("entropy_coeff"),
        "optimizer": optim.get("optimizer"),
        "lr": optim.get("lr"),
        "weight_decay": optim.get("weight_decay"),
        "clip_grad": optim.get("clip_grad"),
        "seed": data.get("seed"),
        "train_files": [named(path) for path in _listed(data.get("train_files"))],
        "reward": _reward(config),
    }


def named(path: Any, inside: str = "") -> str:
    """A file or folder by its name and content, not its place; anything else as it stands.

    Args:
        path: of a file, of a folder, or the name of a model on a hub.
        inside: the file of a folder that stands for it.
    """
    place = Path(str(path)).expanduser()
    file = place / inside if place.is_dir() else place
    if not file.is_file():
        return str(path)
    return f"{place.name} sha256:{sha256_of(file)[:16]}"


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def _reward(config: Mapping[str, Any]) -> str | None:
    function = (config.get("reward") or {}).get("custom_reward_function") or {}
    path = function.get("path")
    return None if path is None else f"{named(path)}:{function.get('name', 'compute_score')}"
