"""The reported numbers. Adding an estimator is one file and its name in ``_FILES``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ...strategies.base import Decision
from ...traces.advantage import REWARD_TOL
from ...traces.batch import RolloutBatch
from . import bias, counts, evenness, scale, waste, weights
from .aggregation import LossAggMode
from .base import Estimator
from .evenness import PHI, effective_batch
from .step import StepSums

_FILES = (counts, weights, evenness, scale, bias, waste)

CATALOG: dict[str, Estimator] = {e.name: e for file in _FILES for e in file.ESTIMATORS}


def with_phi(phi: float) -> tuple[Estimator, ...]:
    """All estimators, with φ of ``effective_batch`` set."""
    value = partial(effective_batch, phi=phi)
    own = replace(CATALOG["effective_batch"], value=value)
    return tuple({**CATALOG, own.name: own}.values())


def estimate_step(
    batch: RolloutBatch,
    decisions: Mapping[str, Decision],
    loss_agg_mode: LossAggMode = "token-mean",
    *,
    reward_tol: float = REWARD_TOL,
    phi: float = PHI,
) -> dict[str, dict[str, float]]:
    """Every estimator of one step for each decision, as replay computes it.

    Args:
        batch: the step.
        decisions: name → what a strategy decided for it.
        loss_agg_mode: verl's loss aggregation.
        reward_tol: rewards closer than this are one value.
        phi: response share of the noise in ``effective_batch``.

    Returns:
        name → estimator → value; NaN where it can't be estimated on this step.
    """
    estimators = [e for e in with_phi(phi) if e.run != "cv"]  # one step has no variation
    domains = len(batch.domains)
    values = StepSums(batch, decisions, estimators, loss_agg_mode, reward_tol, domains).values()
    return {
        name: {e.name: float(values[i, 0, 0, k]) for i, e in enumerate(estimators)}
        for k, name in enumerate(decisions)
    }
