"""Fixed proportions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...traces.errors import StrategyError, nearest
from ...traces.ragged import Float
from ..base import param
from .mixer import MixRule, hold_floor


@dataclass(frozen=True)
class Static(MixRule):
    """The same proportions at every step: ``proportions`` by domain name, else uniform."""

    floor: float = param(0.0, "least share of a domain", 0, 1)
    proportions: Mapping[str, float] | None = param(None, "share of each domain, by name")

    def prior(self, name: str, units: Sequence[str], prior: Float) -> Float:
        """The proportions (U), whatever was drawn so far.

        Raises:
            StrategyError: they name other domains, or are no shares.
        """
        shares = self.proportions
        if shares is None:
            return hold_floor(np.full(len(units), 1 / len(units)), self.floor)
        if not isinstance(shares, Mapping):
            raise StrategyError(
                f"{name}: proportions={shares!r} is no mapping; write "
                "proportions={DOMAIN: SHARE, …}"
            )
        for domain in shares:
            if domain not in units:
                raise StrategyError(
                    f"{name}: proportions name domain '{domain}'{nearest(str(domain), units)}; the "
                    f"trace has: {', '.join(units)}"
                )
        numbers = [shares.get(unit, 0.0) for unit in units]
        wrong = any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in numbers)
        bad = wrong or not all(0 <= n < math.inf for n in numbers)
        if bad or sum(numbers) <= 0:
            raise StrategyError(
                f"{name}: proportions={dict(shares)} are no shares ≥ 0 with a sum above 0"
            )
        return hold_floor(np.array(numbers, dtype=np.float64) / sum(numbers), self.floor)

    def mix(self, score: Float, prior: Float) -> Float:
        """The prior (U)."""
        return prior
