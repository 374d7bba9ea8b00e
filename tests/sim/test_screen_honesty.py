"""Screens of random selectors: claims only where something differs, and then they find it.

Every candidate keeps a random half of the prompts, and often the same half again, so that its
effective batch is correlated over steps as an AR(1) process of .6 is. Candidates that are
exchangeable differ by luck alone; a claim that two of them differ is false.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import ROOT
from made import trace_of
from random_half import LIVE, PROMPTS, STEPS
from scipy.stats import norm

from dfsim.sim.screen.screen import screen, step_values
from dfsim.strategies.build import build
from dfsim.traces.storage.compact import compact
from dfsim.traces.storage.store import open_trace
from dfsim.traces.synthetic import exact_step

RUNS = 200
# Live prompts in a random half are hypergeometric; two of their sd more of them need this lift.
SPREAD = np.sqrt(LIVE * 0.5 * 0.5 * (PROMPTS - LIVE) / (PROMPTS - 1))
LIFT = 2 * norm.ppf(0.5 + 2 * SPREAD / LIVE)


pytestmark = pytest.mark.evidence


def candidate(name, seed, lift=0.0):
    own = f"{ROOT / 'tests' / 'support' / 'random_half.py'}:RandomHalf"
    return replace(build(own, {"seed": seed, "lift": lift}), name=name)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Prompts below ``LIVE`` always have mixed rewards, the others never."""
    solved = [2] * LIVE + [0] * (PROMPTS - LIVE)
    steps = [exact_step(solved, 4, step=t, num_tokens=1) for t in range(1, STEPS + 1)]
    folder = tmp_path_factory.mktemp("screen")
    compact(trace_of(folder / "trace", steps), folder / "compact")
    return open_trace(folder / "compact")


def screened(trace, run, lift=0.0):
    base = 1000 * run
    chosen = [candidate("a", base, lift)]
    chosen += [candidate(name, base + k) for k, name in enumerate("bcde", start=1)]
    return screen(trace, chosen, resamples=2).traces[0]


def claims(found, one):
    """Other candidates that this one is claimed to differ from."""
    row = next(row for row in found.rows if row.name == one)
    return {n for n in (*row.difference.above, *row.difference.below) if n != "none"}


def test_exchangeable_candidates_are_rarely_told_apart(trace):
    false, correlation = 0, []
    for run in range(RUNS):
        found = screened(trace, run)
        false += any(claims(found, name) for name in "abcde")
        gap = step_values(found.replay, "effective_batch_low")
        gap = gap[:, 1] - gap[:, 2]
        correlation.append(np.corrcoef(gap[1:], gap[:-1])[0, 1])
    assert 0.45 < np.mean(correlation) < 0.65  # .6 less what 60 steps hide
    print(f"{false} of {RUNS} screens claim a difference")
    assert false <= 18


def test_a_true_shift_of_two_standard_deviations_is_found(trace):
    found_it, shift = 0, []
    for run in range(RUNS):
        found = screened(trace, RUNS + run, LIFT)
        found_it += bool(claims(found, "a"))
        values = step_values(found.replay, "effective_batch_low")
        shift.append((values[:, 1].mean() - values[:, 2:].mean()) / values[:, 2:].std())
    assert 1.8 < np.mean(shift) < 2.2
    print(f"{found_it} of {RUNS} screens find the shift")
    assert found_it >= 0.8 * RUNS
