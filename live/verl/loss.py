"""Policy losses that report what they saw: for every loss of verl, one that delegates to it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from ..core.proof import Seen

PREFIX = "dfsim_proof_"
METRIC = "dfsim_proof"
SUMS = ("seen", "mask", "weight", "weight_sq", "signal")


def proof_name(loss_mode: str) -> str:
    """Name under which the reporting loss of ``loss_mode`` is registered."""
    return f"{PREFIX}{loss_mode}"


def register_proofs(registry: MutableMapping[str, Callable[..., Any]]) -> None:
    """Add a reporting loss for every policy loss in verl's registry."""
    for mode in [m for m in registry if not m.startswith(PREFIX)]:
        registry[proof_name(mode)] = reporting(registry[mode])


def reporting(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The same loss, whose metrics also hold the sums of ``SUMS``.

    Args:
        loss: takes verl's policy-loss arguments, returns (loss, metrics).
    """

    def report(
        old_log_prob: Any,
        log_prob: Any,
        advantages: Any,
        response_mask: Any,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        pg_loss, metrics = loss(
            old_log_prob=old_log_prob,
            log_prob=log_prob,
            advantages=advantages,
            response_mask=response_mask,
            loss_agg_mode=loss_agg_mode,
            config=config,
            rollout_is_weights=rollout_is_weights,
        )
        mask = response_mask.double()
        weight = mask if rollout_is_weights is None else rollout_is_weights.double() * mask
        sums = {
            "seen": float(rollout_is_weights is not None),
            "mask": mask.sum().item(),
            "weight": weight.sum().item(),
            "weight_sq": (weight * weight).sum().item(),
            "signal": (weight * advantages.double().abs()).sum().item(),
        }
        return pg_loss, {**metrics, **{f"{METRIC}/{k}": v for k, v in sums.items()}}

    return report


def take_seen(metrics: MutableMapping[str, Any]) -> Seen | None:
    """Move the report out of verl's metrics; ``None`` where the loss did not run."""
    sums = {name: metrics.pop(f"actor/{METRIC}/{name}", None) for name in SUMS}
    if any(value is None for value in sums.values()):
        return None
    return Seen(**{name: float(value) for name, value in sums.items() if value is not None})
