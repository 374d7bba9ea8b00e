"""A mixer that follows a schedule, and logs whose domains come unevenly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from made import trace_of

from dfsim.sim.mix.log import LogReader
from dfsim.sim.replay.loop import columns_for
from dfsim.strategies.base import Scores
from dfsim.strategies.build import build
from dfsim.strategies.sample.base import SamplingStrategy
from dfsim.strategies.sample.mixer import MixRule
from dfsim.traces.synthetic import exact_step

DOMAINS = ("code", "math", "talk")


@dataclass(frozen=True)
class Scheduled(MixRule):
    """Proportions by the step they are for; its score is the reward it saw last."""

    floor: float = 0.0
    schedule: dict = field(default_factory=dict)
    at: list = field(default_factory=lambda: [1])

    def score(self, window, seen):
        self.at[0] = window[-1].step + 1
        return window[-1].reward_U

    def mix(self, score, prior):
        return np.array(self.schedule.get(self.at[0], prior), dtype=np.float64)

    def prior(self, name, units, prior):
        return np.array(self.schedule.get(1, prior), dtype=np.float64)


def scheduled(schedule, name="scheduled", **rule):
    return SamplingStrategy(name, Scheduled(schedule=schedule, **rule), {})


def sampler(name, params=None, then=None):
    """A built-in sampler and the very selector that its draw passes through."""
    return replace(build(name, params), then=then)


def read_log(trace, samplers):
    """What samplers need of a trace."""
    reader = LogReader(trace, samplers)
    for batch in trace.batches(columns_for(trace, samplers)):
        reader.add(batch, Scores(batch))
    return reader.log()


def uneven_trace(folder, seed, every_domain=False, steps=14, n=6):
    """Three domains whose share and reward change from step to step."""
    rng = np.random.default_rng(seed)
    made = []
    for step in range(1, steps + 1):
        least = 1 if every_domain else 0
        counts = rng.integers(least, 6, 3)
        counts[0] += 1
        names = [d for d, count in zip(DOMAINS, counts, strict=True) for _ in range(count)]
        solved = rng.binomial(n, rng.uniform(0.2, 0.8, len(names)))
        made.append(exact_step(solved.tolist(), n, step=2 * step, domains=names, num_tokens=1))
    return trace_of(folder, made)
