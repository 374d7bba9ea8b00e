"""Weights 0 for two steps, then 1: a strategy that shows whether weights reach the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

ZERO_STEPS = 2


class Canary:
    """Weight 0 through step ``ZERO_STEPS``, 1 afterwards."""

    kind = "select"

    def weights(self, batch: Any) -> Any:
        """Weights (N)."""
        return np.full(batch.num_responses, float(batch.step > ZERO_STEPS))
