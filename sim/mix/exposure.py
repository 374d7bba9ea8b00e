"""A domain's reward as a function of how much of it was consumed, with a band."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...traces.ragged import Float
from .log import MixLog

POINTS = 200
MIN_GROUPS = 8


@dataclass(frozen=True, eq=False)
class ExposureCurve:
    """Isotonic fit of mean reward on exposure. P points.

    Attributes:
        exposure_P: prompt groups of the domain consumed.
        middle_P: fitted mean reward.
        low_P: 2.5 % of the bootstrap over groups.
        high_P: 97.5 % of it.
    """

    exposure_P: Float
    middle_P: Float
    low_P: Float
    high_P: Float


def exposure_curve(
    log: MixLog, domain: int, resamples: int = 100, seed: int = 0
) -> ExposureCurve | None:
    """Fit a domain's curve; ``None`` where the log holds fewer than ``MIN_GROUPS`` of its groups.

    Monotone, rising or falling as the data say (pool adjacent violators, Barlow et al. 1972). The
    band holds what resampling groups leaves open, not what another mix would have taught.

    Args:
        log: every group.
        domain: which domain.
        resamples: bootstrap resamples of groups.
        seed: of the bootstrap.
    """
    from sklearn.isotonic import IsotonicRegression

    table = log.tables[""]
    consumed = np.flatnonzero(log.domain_M == domain)
    known = table.responses_M[consumed] > 0
    mine = consumed[known]
    if len(mine) < MIN_GROUPS:
        return None
    reward = table.reward_M[mine] / table.responses_M[mine]
    exposure = np.arange(1, len(consumed) + 1, dtype=np.float64)[known]
    at = np.linspace(exposure[0], exposure[-1], min(POINTS, len(mine)))
    rises = bool(np.corrcoef(exposure, reward)[0, 1] >= 0) if np.ptp(reward) > 0 else True

    def fitted(rows: np.ndarray) -> Float:
        model = IsotonicRegression(increasing=rises, out_of_bounds="clip")
        return model.fit(exposure[rows], reward[rows]).predict(at)

    rng = np.random.default_rng(seed)
    drawn = [fitted(np.sort(rng.integers(0, len(mine), len(mine)))) for _ in range(resamples)]
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    return ExposureCurve(at, fitted(np.arange(len(mine))), low, high)
