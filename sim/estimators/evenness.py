"""The headline: how large the batch is as the gradient sees it, and the sizes it is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...traces.ragged import Float, ratio
from ..terms import Weighted
from .base import LIVE, LOSS, SIGNAL, SIGNAL_NONE, Estimator, Part, kish

PHI = 0.25
"""Weight of the response part of the noise; fitted on a tiny model, not identifiable from logs."""


def _squared_signal(w: Weighted) -> Float:
    return np.square(w.signal_KG)


def _projection(w: Weighted) -> Float:
    return w.projection_KG


def _energy(w: Weighted) -> Float:
    return w.group_sum(w.energy_KN)


SIGNAL_SQ = Part(_squared_signal)
PROJECTION = Part(_projection)
ENERGY = Part(_energy)
_SIZES = (
    LIVE,
    SIGNAL,
    SIGNAL_SQ,
    PROJECTION,
    ENERGY,
    SIGNAL_NONE,
    Part(_squared_signal, True),
    Part(_projection, True),
    Part(_energy, True),
)


def _relative(sums: tuple[Any, ...]) -> tuple[Float, Float, Float]:
    """Live groups L, γ = Kish over groups, ρ = signal to noise, both relative to ``none``."""
    live, s, s2, big, q, s_none, s2_none, big_none, q_none = sums
    gamma = ratio(kish(s, s2), kish(s_none, s2_none))
    rho = ratio(ratio(np.square(big), q), ratio(np.square(big_none), q_none))
    dead = ((np.asarray(live) == 0) | (np.asarray(s) == 0)) & ~np.isnan(s)
    return np.asarray(live), np.where(dead, 0.0, gamma), np.where(dead, 0.0, rho)


def effective_batch(*sums: Any, phi: float = PHI) -> Float:
    """L / ((1−φ)/γ + φ/ρ): the weighted harmonic mean of the two relative sizes, in live groups."""
    live, gamma, rho = _relative(sums)
    noise = np.zeros(np.shape(gamma))
    with np.errstate(divide="ignore"):
        for share, size in ((1 - phi, gamma), (phi, rho)):
            if share > 0:
                noise = noise + share / size
        return live / noise


def _low(*sums: Any) -> Float:
    live, gamma, rho = _relative(sums)
    return live * np.minimum(gamma, rho)


def _high(*sums: Any) -> Float:
    live, gamma, rho = _relative(sums)
    return live * np.maximum(gamma, rho)


_UNDEFINED = "no token carries a gradient, so noise can't be compared"

ESTIMATORS = (
    Estimator(
        "kish_groups",
        "groups",
        "evenness of the signal over prompts; blind to thinning inside a group",
        (SIGNAL, SIGNAL_SQ),
        kish,
        LOSS,
    ),
    Estimator(
        "kish_responses",
        "responses",
        "evenness of the signal over responses",
        (SIGNAL, Part(lambda w: w.group_sum(np.square(w.signal_KN)))),
        kish,
        LOSS,
    ),
    Estimator(
        "signal_to_noise",
        "groups",
        "squared signal of the groups over the responses' noise; compare with none's only",
        (PROJECTION, ENERGY),
        lambda big, q: ratio(np.square(big), q),
        LOSS,
        nan_reason="nothing carries a gradient",
    ),
    Estimator(
        "effective_batch",
        "live groups of the uniform update",
        "how many of the uniform update's live prompt groups this update is worth",
        _SIZES,
        effective_batch,
        LOSS,
        nan_reason=_UNDEFINED,
    ),
    Estimator(
        "effective_batch_low",
        "live groups of the uniform update",
        "the smaller of evenness over prompts and signal to noise: the bracket's low end",
        _SIZES,
        _low,
        LOSS,
        nan_reason=_UNDEFINED,
    ),
    Estimator(
        "effective_batch_high",
        "live groups of the uniform update",
        "the larger of evenness over prompts and signal to noise: the bracket's high end",
        _SIZES,
        _high,
        LOSS,
        nan_reason=_UNDEFINED,
    ),
)
