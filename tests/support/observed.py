"""Mixers driven by hand-made observations."""

from __future__ import annotations

import numpy as np

from dfsim.strategies.build import build
from dfsim.strategies.catalog import PRESETS
from dfsim.strategies.sample.base import UnitStep, observe_batch, unit_names
from reference.mixers_slow import NAN, Seen, Step

ABC = ("a", "b", "c")
MIXERS = tuple(name for name, preset in PRESETS.items() if preset.samples)


def step_of(batch, sampler, decision=None) -> UnitStep:
    """What a batch shows a sampler of domains."""
    codes = sampler.codes(unit_names(batch, "domain"))
    return observe_batch(batch, codes, len(sampler.units), decision)


def observation(step: Step, domains) -> UnitStep:
    nothing = Seen(NAN, NAN, 0)
    parts = [step.domains.get(d, nothing) for d in domains]
    return UnitStep(
        step.step,
        np.array([part.reward for part in parts]),
        np.array([part.advantage for part in parts]),
        np.array([part.count for part in parts], dtype=np.int64),
    )


def asked_for(name, params, domains, steps, prior=None):
    """Proposals after each step."""
    mixer = build(name, params).start(domains, prior)
    out = []
    for step in steps:
        mixer.observe(observation(step, domains))
        out.append(mixer.propose().tolist())
    return out


def rewards_step(number, **rewards):
    return Step(number, {d: Seen(r, 0.0, 8) for d, r in rewards.items()})
