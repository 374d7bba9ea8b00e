"""Fixed proportions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...traces.ragged import Float
from ..base import param
from .base import MixRule


@dataclass(frozen=True)
class Static(MixRule):
    """The same proportions at every step: ``proportions`` by domain name, else uniform."""

    floor: float = param(0.0, "least share of a domain", 0, 1)
    proportions: Mapping[str, float] | None = param(None, "share of each domain, by name")

    def mix(self, score: Float, prior: Float) -> Float:
        """The prior (D)."""
        return prior
