"""Quotas of whole prompts: exact sums, never negative, no drift, ties by name."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dfsim.strategies.sample.quota import Quotas
from reference import mixers_slow as slow


def shares_of(rng, size, kind):
    """Proportions of several sorts: even, lopsided, with zeros, one domain alone."""
    if kind == 0:
        return np.full(size, 1 / size)
    if kind == 1:
        return rng.dirichlet(np.full(size, 0.2))
    if kind == 2:
        return rng.dirichlet(np.ones(size))
    p = rng.dirichlet(np.ones(size)) * (rng.random(size) < 0.6)
    if p.sum() == 0:
        p[rng.integers(size)] = 1.0
    return p / p.sum()


def dyadic(rng, size):
    """Proportions whose products with whole numbers are exact in floats."""
    cuts = np.sort(rng.integers(0, 1025, size - 1))
    return np.diff(np.concatenate(([0], cuts, [1024]))) / 1024


def test_the_golden_run_of_three_domains():
    # The first draw ties .4 with .4: "code" comes before "math" by name.
    quotas = Quotas(["math", "code", "logic"])
    draws = [quotas.take(np.array([0.7, 0.2, 0.1]), 32).tolist() for _ in range(10)]
    assert draws[:3] == [[22, 7, 3], [23, 6, 3], [22, 6, 4]]
    assert np.sum(draws, axis=0).tolist() == [224, 64, 32]
    assert np.abs(quotas.carry).max() < 1e-12


def test_many_random_draws_are_whole_never_negative_and_exact():
    rng = np.random.default_rng(0)
    draws = 0
    while draws < 100_000:
        size = int(rng.integers(1, 9))
        quotas = Quotas([f"d{i}" for i in rng.permutation(size)])
        asked, given = np.zeros(size), np.zeros(size)
        steady = shares_of(rng, size, rng.integers(4))
        mode = rng.integers(3)
        for _ in range(100):
            p = steady if mode == 0 else shares_of(rng, size, rng.integers(4))
            count = int(rng.integers(0, 12) if mode < 2 else rng.integers(0, 600))
            n = quotas.take(p, count)
            assert n.min() >= 0
            assert n.sum() == count
            asked += count * p
            given += n
            # Adding one picks a positive want − n, so that a domain is ahead by less than 1; and
            # since all that is owed sums to 0, behind by less than the D − 1 others are ahead.
            owed = asked - given
            assert (owed > -1 - 1e-9).all()
            assert (owed < size - 1 + 1e-9).all()
            np.testing.assert_allclose(quotas.carry, owed, atol=1e-9)
        draws += 100


@pytest.mark.parametrize("seed", range(60))
def test_as_the_slow_reference_where_floats_are_exact(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 11))
    names = [f"d{i}" for i in rng.permutation(size)]
    quotas = Quotas(names)
    carry = [Fraction(0)] * size
    for _ in range(40):
        p, count = dyadic(rng, size), int(rng.integers(0, 70))
        expected, carry = slow.quota(names, [Fraction(x) for x in p], carry, count)
        assert quotas.take(p, count).tolist() == expected
        assert quotas.carry.tolist() == [float(left) for left in carry]


@pytest.mark.parametrize("seed", range(20))
def test_ten_draws_of_fixed_proportions_do_not_drift(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 6))
    # At least one of each a draw: no want is below 0, nothing is taken back, and |owed| < 1.
    p = 0.2 + rng.random(size)
    p = p / p.sum()
    count = int(np.ceil(1 / p.min())) + int(rng.integers(0, 300))
    quotas = Quotas([f"d{i}" for i in range(size)])
    given = sum(quotas.take(p, count) for _ in range(10))
    assert (np.abs(given - 10 * count * p) < 1 + 1e-9).all()


@pytest.mark.parametrize(
    ("names", "first"), [(["a", "b"], [1, 0]), (["b", "a"], [0, 1]), (["a10", "a2"], [1, 0])]
)
def test_a_tie_goes_to_the_first_name(names, first):
    quotas = Quotas(names)
    second = [1 - n for n in first]
    assert quotas.take(np.array([0.5, 0.5]), 1).tolist() == first
    assert quotas.take(np.array([0.5, 0.5]), 1).tolist() == second


def test_a_tie_in_what_is_taken_back_goes_to_the_first_name():
    quotas = Quotas(["b", "a", "x", "y"])
    quotas.carry = np.array([0.5, 0.5, -0.75, -0.25])
    # want = 1, 1, −.75, −.25: whole 1 and 1 are one too many, both with nothing over.
    assert quotas.take(np.array([0.5, 0.5, 0.0, 0.0]), 1).tolist() == [1, 0, 0, 0]
    assert quotas.carry.tolist() == [0.0, 1.0, -0.75, -0.25]


def test_nothing_to_draw_keeps_what_is_owed():
    quotas = Quotas(["a", "b", "c"])
    p = np.array([0.7, 0.2, 0.1])
    quotas.take(p, 32)
    before = quotas.carry.tolist()
    assert quotas.take(p, 0).tolist() == [0, 0, 0]
    assert quotas.carry.tolist() == before


def test_one_domain_gets_all():
    quotas = Quotas(["only"])
    assert [quotas.take(np.ones(1), count).tolist() for count in (5, 0, 1)] == [[5], [0], [1]]


def test_a_domain_of_share_zero_gets_nothing():
    quotas = Quotas(["a", "b", "c"])
    draws = [quotas.take(np.array([0.0, 0.5, 0.5]), 7).tolist() for _ in range(6)]
    assert np.sum(draws, axis=0).tolist() == [0, 21, 21]
    assert all(n[0] == 0 for n in draws)
