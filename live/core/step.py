"""One live step between its decision and its end, and what it leaves in the logs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...sim.estimators import CATALOG
from ...strategies.base import Decision
from ...strategies.spec import Spec
from .delivery import Applied
from .proof import Seen, Verdict, whole
from .rows import Responses
from .steer import DRAWN


@dataclass
class LiveStep:
    """What one step needs between its decision and its end.

    Attributes:
        responses: the step's responses, and the way back to the trainer's rows.
        decisions: strategy → decision.
        delivered: name of the delivered strategy, or ``None``.
        applied: what it applies.
        estimates: strategy → estimator → value.
        digests: strategy → digest of its decision.
        want: what the loss must report, by mini-batch.
        pg_losses: pg_loss by the weights written, and by those before.
        verdict: whether the weights arrived.
        mix: what the run's sampler drew, see :class:`dfsim.live.core.steer.Steering`.
        shadow_mix: shadow → what it would have asked for.
        domains: of the training set.
        seconds: spent deciding.
    """

    responses: Responses
    decisions: Mapping[str, Decision]
    delivered: str | None
    applied: Applied | None
    estimates: Mapping[str, Mapping[str, float]]
    digests: Mapping[str, str] = field(default_factory=dict)
    want: list[Seen] | None = None
    pg_losses: tuple[float, float] = (0.0, 0.0)
    verdict: Verdict | None = None
    mix: Mapping[str, Any] | None = None
    shadow_mix: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    domains: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def number(self) -> int:
        """``global_steps``."""
        return self.responses.rows.step

    def metrics(self, skipped: bool) -> dict[str, float]:
        """What goes to verl's logger when the step has been decided.

        Args:
            skipped: whether the step's update is skipped.
        """
        found: dict[str, float] = {"dfsim/decide_seconds": self.seconds}
        for name, values in self.estimates.items():
            prefix = "dfsim" if name == self.delivered else f"dfsim/{Spec.parse(name).short}"
            for estimator, value in values.items():
                if CATALOG[estimator].headline and math.isfinite(value):
                    found[f"{prefix}/{estimator}"] = value
        if self.applied is not None:
            found["dfsim/update_skipped"] = float(skipped)
            found["dfsim/rescale"] = self.applied.scale
        if self.mix is not None:
            for name in DRAWN:
                for domain, value in zip(self.domains, self.mix[name], strict=True):
                    if value is not None:
                        found[f"dfsim/mix/{name}/{domain}"] = float(value)
            found |= {f"dfsim/mix/{name}": v for name, v in self.mix["metrics"].items()}
        for name, asked in self.shadow_mix.items():
            for domain, value in zip(self.domains, asked["target"], strict=True):
                found[f"dfsim/{Spec.parse(name).short}/mix/target/{domain}"] = float(value)
        return found

    def record(self, skipped: bool) -> dict[str, Any]:
        """One line of ``live.jsonl``.

        Args:
            skipped: whether the step's update was skipped.
        """
        verdict = self.verdict
        return {
            "step": self.number,
            "digests": dict(self.digests),
            "delivered": None if verdict is None else verdict.delivered,
            "reason": None if verdict is None else verdict.reason,
            "pg_loss": None if verdict is None else verdict.pg_loss,
            "update_skipped": skipped,
            "rescale": None if self.applied is None else self.applied.scale,
            "mix": None if self.mix is None else dict(self.mix),
            "shadow_mix": dict(self.shadow_mix),
            "expected": None if self.want is None else whole(self.want).to_dict(),
            "decide_seconds": self.seconds,
        }


def pg_loss_of(weight_F: Any, advantage_F: Any, mask_F: Any) -> float:
    """−Σ(w·A)/Σmask over flat tokens (F): verl's pg_loss where the ratio is 1."""
    weighted = weight_F[mask_F].astype(np.float64) * advantage_F[mask_F].astype(np.float64)
    return float(-weighted.sum() / max(mask_F.sum(), 1))
