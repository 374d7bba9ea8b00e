"""A selector that keeps a random half of the prompts, and often the same as before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from dfsim.strategies.base import param

PROMPTS, LIVE, STEPS = 24, 12, 60
KEPT_ON = 0.6


@cache
def halves(seed, lift):
    """Which prompts are kept at each step (S, P): with chance .6 the last step's, else new ones.

    So any function of the kept set is correlated .6ᵏ over k steps, as an AR(1) process is.
    """
    rng = np.random.default_rng(seed)
    kept = []
    for _ in range(STEPS):
        if not kept or rng.random() > KEPT_ON:
            score = rng.normal(size=PROMPTS) + lift * (np.arange(PROMPTS) < LIVE)
            kept.append(score >= np.sort(score)[PROMPTS // 2])
        else:
            kept.append(kept[-1])
    return np.array(kept)


@dataclass(frozen=True)
class RandomHalf:
    """Keeps half of the prompts."""

    seed: int = param(0, "of the scores", low=0)
    lift: float = param(0.0, "how much larger the scores of live prompts are, in sd", low=0)

    columns = ("prompt_id",)

    def weights(self, batch):
        prompt = np.array([int(name[1:]) for name in batch.prompt_id_G])
        return halves(self.seed, self.lift)[batch.step - 1][prompt][batch.group_N].astype(float)
