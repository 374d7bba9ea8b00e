"""The Pareto front, against its definition and by its properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfsim.sim.screen.front import beaten_by, scores

NAN = math.nan


def front(rows, eligible=None):
    """Rows of (low, high, tokens, bias)."""
    columns = np.array(rows, dtype=float).reshape(-1, 4).T
    allowed = np.ones(columns.shape[1], dtype=bool) if eligible is None else np.array(eligible)
    return beaten_by(scores(*columns), allowed)


# Slow


def gains(one, other):
    """What one has over the other, in units of 1 % of the batch, a point of tokens, .05 of bias."""

    def more(a, b):
        return 0.0 if a == b else math.log(max(a, 1e-12) / max(b, 1e-12)) / 0.01

    found = [more(one[0], other[0]), more(one[1], other[1]), (other[3] - one[3]) / 0.05]
    return [*found, (other[2] - one[2]) / 0.01]


def beats(one, other):
    """No worse in any by more than a unit, better in one by more, and on the whole."""
    found = gains(one, other)
    if any(math.isnan(g) for g in found):
        return False
    return min(found) >= -1 and max(found) > 1 and sum(found) > 0


def near_an_edge(rows):
    """Whether rounding could decide a comparison."""
    found = [gains(a, b) for a in rows for b in rows if a is not b]
    sums = [abs(sum(g)) for g in found]
    return any(abs(abs(x) - 1) < 1e-6 for g in found for x in g) or any(0 < s < 1e-6 for s in sums)


batch = st.one_of(
    st.floats(5, 5.3), st.floats(0, 40), st.just(0.0), st.just(NAN), st.sampled_from([5.0, 5.02])
)
share = st.one_of(st.floats(0.5, 0.54), st.floats(0, 1), st.just(NAN), st.sampled_from([0.5, 0.52]))
rows_of = st.lists(st.tuples(batch, batch, share, share), min_size=1, max_size=7)


@given(rows_of, st.data())
@settings(max_examples=400, deadline=None, derandomize=True)
def test_the_definition(rows, data):
    eligible = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    if near_an_edge(rows):
        return
    found = front(rows, eligible)
    assert len(found) == len(rows)
    for k, winner in enumerate(found):
        winners = [j for j in range(len(rows)) if eligible[j] and beats(rows[j], rows[k])]
        if winner is None:
            assert winners == []
        else:
            assert winner in winners
            assert rows[winner][0] == max(rows[j][0] for j in winners)


close = st.floats(0, 4).map(lambda x: 10 * math.exp(0.01 * x))
near = st.tuples(close, close, st.floats(0.5, 0.54), st.floats(0.1, 0.3))


@given(st.lists(near, min_size=1, max_size=8))
@settings(max_examples=400, deadline=None, derandomize=True)
def test_somebody_is_always_on_the_front(rows):
    """Small differences count as none, but they don't let strategies beat each other in a ring."""
    found = front(rows)
    assert None in found
    for k in range(len(rows)):  # whoever follows the winners ends at one that nothing beats
        seen = set()
        while found[k] is not None:
            assert k not in seen
            seen.add(k)
            k = found[k]


def test_no_ring_of_small_differences():
    """Each is 1.5 units better in one number than the one before, .75 worse in two others."""
    unit = np.array([0.01, 0.01, 0.05])
    step = [np.array(s) for s in ([1.5, -0.75, -0.75], [-0.75, 1.5, -0.75])]
    places = [np.zeros(3), step[0], step[0] + step[1]]
    rows = [
        (10 * math.exp(low), 10 * math.exp(low), 0.5 - tokens, 0.4 - bias)
        for low, tokens, bias in (place * unit for place in places)
    ]
    assert None in front(rows)


# By hand


def test_more_batch_fewer_tokens_less_bias_each_beat():
    base = (10.0, 12.0, 0.5, 0.2)
    for better in ((11, 12, 0.5, 0.2), (10, 13, 0.5, 0.2), (10, 12, 0.4, 0.2), (10, 12, 0.5, 0.1)):
        assert front([base, better]) == [1, None]
        assert front([better, base]) == [None, 0]


def test_what_is_worse_in_one_does_not_beat():
    assert front([(10, 12, 0.5, 0.2), (12, 14, 0.6, 0.2)]) == [None, None]
    assert front([(10, 12, 0.5, 0.2), (12, 11, 0.5, 0.2)]) == [None, None]


@pytest.mark.parametrize(
    "other", [(10.09, 12.1, 0.5, 0.2), (10, 12, 0.491, 0.2), (10, 12, 0.5, 0.151)]
)
def test_a_small_difference_is_none(other):
    assert front([(10, 12, 0.5, 0.2), other]) == [None, None]


def test_a_small_loss_does_not_save():
    """Half the tokens for .5 % of the batch."""
    assert front([(10, 12, 0.8, 0.2), (9.95, 12, 0.4, 0.2)]) == [1, None]


def test_the_winner_with_the_largest_lower_end_is_named():
    rows = [(5, 12, 0.5, 0.2), (8, 12, 0.5, 0.2), (9, 12, 0.5, 0.2), (7, 12, 0.5, 0.2)]
    assert front(rows) == [2, 2, None, 2]


def test_only_the_eligible_beat():
    rows = [(5, 12, 0.5, 0.2), (8, 12, 0.5, 0.2), (9, 12, 0.5, 0.2)]
    assert front(rows, [True, True, False]) == [1, None, None]
    assert front(rows, [False, False, False]) == [None, None, None]


@given(near, st.integers(1, 9))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_equals_are_all_on_the_front(row, count):
    assert front([row] * count) == [None] * count


@pytest.mark.parametrize("column", range(4))
def test_nan_neither_beats_nor_is_beaten(column):
    worst, best = [5.0, 5.0, 0.9, 0.9], [20.0, 20.0, 0.1, 0.0]
    middle = [10.0, 10.0, 0.5, 0.5]
    blank = list(worst)
    blank[column] = NAN
    assert front([middle, blank, best]) == [2, None, None]
    blank = list(best)
    blank[column] = NAN
    assert front([middle, blank, worst]) == [None, None, 0]


def test_nothing_kept_is_beaten_by_anything_kept():
    assert front([(0, 0, 0.5, 0.2), (1, 1, 0.5, 0.2)]) == [1, None]
    assert front([(0, 0, 0.5, 0.2), (0, 0, 0.5, 0.2)]) == [None, None]
