"""Mixers driven by hand-made observations."""

from __future__ import annotations

import numpy as np

from dfsim.strategies.mix.base import DomainStep
from dfsim.strategies.mix.presets import build_mix
from reference.mixers_slow import NAN, Seen, Step

ABC = ("a", "b", "c")


def observation(step: Step, domains) -> DomainStep:
    nothing = Seen(NAN, NAN, 0)
    parts = [step.domains.get(d, nothing) for d in domains]
    return DomainStep(
        step.step,
        np.array([part.reward for part in parts]),
        np.array([part.advantage for part in parts]),
        np.array([part.count for part in parts], dtype=np.int64),
    )


def asked_for(name, params, domains, steps, prior=None):
    """Proposals after each step."""
    mixer = build_mix(name, params).start(domains, prior)
    out = []
    for step in steps:
        mixer.observe(observation(step, domains))
        out.append(mixer.propose().tolist())
    return out


def rewards_step(number, **rewards):
    return Step(number, {d: Seen(r, 0.0, 8) for d, r in rewards.items()})
