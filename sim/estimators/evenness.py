"""The headline: how large the batch is as the gradient sees it, and the sizes it is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...traces.ragged import Float, ratio
from .base import LIVE, LOSS, SIGNAL, Estimator, Part, kish
from .terms import Weighted

PHI = 0.25
"""Weight of the response part of the noise. It belongs to the network and can't be told from logs;
fitted on a tiny model, and on a pretrained language model's chat prompts no other fits better."""
ERROR_SMALL, ERROR_LANGUAGE = 1.25, 1.5
"""Factor by which ``effective_batch`` typically misses exact gradients (e to the log-RMSE over
presets): at most on each of five small trained policies, and on a pretrained language model."""
MODEL_ERROR = (
    "effective_batch is a model of the gradient's noise, and its error belongs to the network: "
    f"against exact gradients it missed by a factor of up to {ERROR_SMALL:g} on five small "
    f"policies trained from scratch (brackets held 47 of 50 truths), and of {ERROR_LANGUAGE:g} on "
    "a pretrained 135M-parameter language model, where softmax, maxvar, topk, gfpo and per were "
    "worth less than their brackets say (3 of 8 held)."
)
"""What users are told beside the number; ``tests/test_effective_batch_truth.py`` measures it."""


EXTREMES = 0.5
"""How much less than its advantages say a one-sided group may push along the mean gradient: the
power of its rewards' evenness, 4p(1 − p) for a solve rate p, that the bracket allows for."""


def _squared_signal(w: Weighted) -> Float:
    return np.square(w.signal_KG)


def _energy(w: Weighted) -> Float:
    return w.group_sum(w.energy_KN)


def _even_energy(w: Weighted) -> Float:
    return w.group_sum(w.even_energy_KN)


def _alike_energy(w: Weighted) -> Float:
    """As if the responses of a group that are pushed the same way were one and the same."""
    root = np.sqrt(w.energy_KN)
    up = w.group_sum(np.where(w.signed_KN > 0, root, 0.0))
    down = w.group_sum(np.where(w.signed_KN < 0, root, 0.0))
    return up * up + down * down


def _signal_of(power: float, projected: bool) -> Callable[[Weighted], Float]:
    def of(w: Weighted) -> Float:
        own = w.projection_KG if projected else w.signal_KG
        return own * w.terms.evenness_G**power if power else own

    return of


PROJECTION = Part(_signal_of(0.0, True), across=True)
ENERGY = Part(_energy)
SIGNAL_SQ = Part(_squared_signal)

_MODELS = [(power, across) for power in (0.0, EXTREMES) for across in (True, False)]
"""How signals of groups may add up: the first is the point's, the others widen the bracket."""


def _sizes(models: Sequence[tuple[float, bool]]) -> tuple[Part, ...]:
    """Parts of the decision and of ``none``: noise of prompts and responses, signals by model."""
    own = [SIGNAL_SQ, ENERGY, Part(_even_energy), Part(_alike_energy)]
    for power, across in models:
        for projected in (False, True):
            own.append(Part(_signal_of(power, projected), across=across))
    base = [replace(part, baseline=True) for part in own]
    return (LIVE, SIGNAL, *own, *base)


_NOISES = 4
_POINT, _BRACKET = _sizes(_MODELS[:1]), _sizes(_MODELS)


def _relative(sums: Sequence[Any]) -> tuple[Float, list[tuple[Float, ...]]]:
    """Live groups L, and by model the sizes γ, ρ, ρ₁ and ρ₂: squared signal over noise.

    The noise of prompts; of responses, tokens counting by (1−π)²; of responses, tokens counting
    alike; of responses, those of a group that are pushed the same way being one and the same. All
    relative to ``none``; 0 where nothing is left.
    """
    live, signal, *rest = sums
    half = len(rest) // 2
    own, base = rest[:half], rest[half:]
    dead = ((np.asarray(live) == 0) | (np.asarray(signal) == 0)) & ~np.isnan(signal)

    def size(place: int, noise: int) -> Float:
        mine, none = (ratio(np.square(side[place]), side[noise]) for side in (own, base))
        return np.where(dead, 0.0, ratio(mine, none))

    models = range(_NOISES, half, 2)
    noises = range(1, _NOISES)
    return np.asarray(live), [(size(p, 0), *(size(p + 1, k) for k in noises)) for p in models]


def effective_batch(*sums: Any, phi: float = PHI) -> Float:
    """L / ((1−φ)/γ + φ/ρ): the weighted harmonic mean of the two relative sizes, in live groups."""
    live, [(gamma, rho, *_)] = _relative(sums)
    noise = np.zeros(np.shape(gamma))
    with np.errstate(divide="ignore"):
        for share, size in ((1 - phi, gamma), (phi, rho)):
            if share > 0:
                noise = noise + share / size
        return live / noise


def _low(*sums: Any) -> Float:
    live, sizes = _relative(sums)
    return live * np.minimum.reduce([size for model in sizes for size in model])


def _high(*sums: Any) -> Float:
    live, sizes = _relative(sums)
    return live * np.maximum.reduce([size for model in sizes for size in model])


_UNDEFINED = "no token carries a gradient, so noise can't be compared"

ESTIMATORS = (
    Estimator(
        name="kish_groups",
        unit="groups",
        formula="(Σs)²/Σs², s = Σ c w|A| of a group",
        help="evenness of the signal over prompts; blind to thinning inside a group",
        parts=(SIGNAL, SIGNAL_SQ),
        value=kish,
        needs=LOSS,
        better="more",
        grows=True,
    ),
    Estimator(
        name="kish_responses",
        unit="responses",
        formula="(Σs)²/Σs², s = c w|A| of a response",
        help="evenness of the signal over responses",
        parts=(SIGNAL, Part(lambda w: w.group_sum(np.square(w.signal_KN)))),
        value=kish,
        needs=LOSS,
        better="more",
        grows=True,
    ),
    Estimator(
        name="signal_to_noise",
        unit="groups",
        formula=(
            "S² / Σ c²w²A²u; S_g = Σ c w A (r − group mean) of a group, S their sum "
            "inside a domain and the root of squares across domains"
        ),
        help=(
            "squared signal, added up inside domains and squared across, over the "
            "responses' noise; compare with none's only"
        ),
        parts=(PROJECTION, ENERGY),
        value=lambda big, q: ratio(np.square(big), q),
        needs=LOSS,
        nan_reason="nothing carries a gradient",
        better="more",
        grows=True,
    ),
    Estimator(
        name="effective_batch",
        unit="live groups of the uniform update",
        formula=(
            "L / ((1−φ)/γ + φ/ρ); L live groups, γ evenness over prompts, ρ signal to "
            "noise, both over none's"
        ),
        help=(
            "How many live prompt groups of the uniform update this one is worth: a model, "
            f"typically off by a factor of up to {ERROR_SMALL:g} on small trained policies and "
            f"{ERROR_LANGUAGE:g} on a pretrained language model. Read it with its bracket."
        ),
        heading="effective\nbatch",
        parts=_POINT,
        value=effective_batch,
        needs=LOSS,
        nan_reason=_UNDEFINED,
        better="more",
        headline=True,
        grows=True,
    ),
    Estimator(
        name="effective_batch_low",
        unit="live groups of the uniform update",
        formula="L times the smallest size of 16 models",
        help=(
            "Both ends of what the noise model leaves open. Least sure for rules that "
            "favour one reward class or short answers (gfpo) and for token weights "
            "(ar)."
        ),
        heading="\nbracket",
        parts=_BRACKET,
        value=_low,
        needs=LOSS,
        nan_reason=_UNDEFINED,
        better="more",
        headline=True,
        grows=True,
    ),
    Estimator(
        name="effective_batch_high",
        unit="live groups of the uniform update",
        formula="L times the largest size of 16 models",
        help=("the largest size that the noise model leaves open: the bracket's high end"),
        parts=_BRACKET,
        value=_high,
        needs=LOSS,
        nan_reason=_UNDEFINED,
        better="more",
        headline=True,
        grows=True,
    ),
)
