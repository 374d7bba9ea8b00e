"""The domain sampler under verl's data loader: rounds, repeats, state."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfsim.live.core.sampler import DomainRows, TrainingSet
from dfsim.strategies.build import build
from dfsim.strategies.sample.base import UnitStep
from dfsim.traces.errors import DfsimError

DOMAINS = ["a"] * 30 + ["b"] * 7 + ["c"] * 3


def sampler_of(shares=(0.6, 0.3, 0.1), domain_of=DOMAINS, size=10, seed=5, preset="static"):
    names = sorted(set(domain_of))
    params = {}
    if preset == "static":
        params = {"proportions": dict(zip(names, shares, strict=True))}
    training_set = TrainingSet.of(domain_of, len(domain_of))
    return DomainRows(build(preset, params), training_set, size, seed)


def domains_of(batch, domain_of=DOMAINS):
    return [domain_of[i] for i in batch]


def test_quotas_are_drawn_and_every_row_once_a_round():
    sampler = sampler_of()
    batches = [next(sampler) for _ in range(5)]
    for batch in batches:
        assert [domains_of(batch).count(d) for d in "abc"] == [6, 3, 1]
    rows = [i for batch in batches for i in batch if i < 30]
    assert sorted(rows) == list(range(30))  # five draws of six: one round of a


def test_no_row_twice_in_a_batch_across_the_end_of_a_round():
    sampler = sampler_of(shares=(0.5, 0.3, 0.2), size=10)
    seen = {d: [] for d in "abc"}
    for _ in range(60):
        batch = next(sampler)
        assert len(set(batch)) == 10
        for i in batch:
            seen[DOMAINS[i]].append(i)
    for domain, first, size in (("a", 0, 30), ("b", 30, 7), ("c", 37, 3)):
        counts = np.bincount(np.array(seen[domain]) - first, minlength=size)
        assert counts.max() - counts.min() <= 1 + (domain == "c")


def test_a_quota_above_the_domain_repeats_as_little_as_it_must():
    sampler = sampler_of(shares=(0.0, 0.0, 1.0), size=8)
    batch = next(sampler)
    assert sorted(np.bincount(batch, minlength=40)[37:]) == [2, 3, 3]


@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from(["reward_gap", "tscl@paper"]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_saved_state_goes_on_identically(seed, cut, preset):
    def played(sampler, rng, steps):
        batches = []
        for step in range(steps):
            batches.append(next(sampler))
            reward = rng.random(3)
            sampler.sampler.observe(UnitStep(step, reward, reward, np.array([4, 4, 2])))
        return batches

    straight = played(sampler_of(seed=seed, preset=preset), np.random.default_rng(seed), 50)
    rng = np.random.default_rng(seed)
    first = sampler_of(seed=seed, preset=preset)
    played(first, rng, cut)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    second = sampler_of(seed=seed, preset=preset)
    second.load_state_dict(state)
    rest = []
    for step in range(cut, 50):
        rest.append(next(second))
        reward = rng.random(3)
        second.sampler.observe(UnitStep(step, reward, reward, np.array([4, 4, 2])))
    assert rest == straight[cut:]


def test_seeds_differ_and_order_does_not_betray_domains():
    one, other = next(sampler_of(seed=1)), next(sampler_of(seed=2))
    assert one != other
    assert domains_of(one) != sorted(domains_of(one))


def test_a_domain_without_a_row_is_refused():
    domain_R = np.zeros(3, dtype=np.int64)
    with pytest.raises(DfsimError, match="the training set has no row of domain 'd'"):
        DomainRows(build("static"), TrainingSet(("a", "d"), domain_R), 10, 0)
