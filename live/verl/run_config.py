"""The settings of a verl run that matter for reading and comparing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...traces.files import sha256_of
from ...traces.manifest import Manifest
from .compat import policy_loss_mode


def run_config(config: Mapping[str, Any]) -> dict[str, Any]:
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


def batch_options(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a batch must know of the run, as a trace's manifest would tell it.

    Args:
        run: from :func:`run_config`.
    """
    manifest = Manifest(writer="", config=run, columns={"advantage": "Float64"})
    return {
        "advantage_config": manifest.advantage_config,
        "mini_batch_rows": manifest.mini_batch_rows,
        "loss_scale_factor": run.get("loss_scale_factor"),
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
