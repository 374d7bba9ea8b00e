"""Parameters chosen on one half of a run and judged on the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfsim.sim.screen.choice import choose, gap_of, halves
from dfsim.strategies.build import build

# Halves


@pytest.mark.parametrize(
    ("steps", "gap", "first", "second"),
    [
        (60, 5, (1, 27), (34, 60)),
        (61, 5, (1, 28), (34, 61)),
        (15, 5, (1, 5), (11, 15)),
        (100, 40, (1, 30), (71, 100)),
    ],
)
def test_halves_by_hand(steps, gap, first, second):
    numbers = list(range(1, steps + 1))
    one, other = halves(steps, gap)
    assert (numbers[one][0], numbers[one][-1]) == first
    assert (numbers[other][0], numbers[other][-1]) == second


@pytest.mark.parametrize(("steps", "gap"), [(0, 5), (1, 5), (14, 5), (60, 51), (5, 500)])
def test_too_short_for_halves(steps, gap):
    assert halves(steps, gap) is None


@given(st.integers(0, 400), st.integers(5, 80))
def test_halves_are_equal_apart_and_inside(steps, gap):
    found = halves(steps, gap)
    if found is None:
        assert (steps - gap) < 10
        return
    one, other = (range(steps)[part] for part in found)
    assert len(one) == len(other) >= 5
    assert other[0] - one[-1] - 1 >= gap
    assert (one[0], other[-1]) == (0, steps - 1)


class _Windowed:
    def __init__(self, **params):
        self.params = params


def test_the_gap_holds_the_longest_window():
    assert gap_of([]) == 5
    assert gap_of([build("maxvar")]) == 5
    assert gap_of([_Windowed(window=3)]) == 5
    assert gap_of([_Windowed(window=3), _Windowed(window=12), _Windowed()]) == 12
    assert gap_of([_Windowed(window=7.5)]) >= 8  # part of a step is a step
    assert gap_of([_Windowed(window=None), _Windowed(window="auto")]) == 5


# Choices

STEPS = list(range(101, 161))


def halved(early, late, between=1e6):
    """27 steps of one value and 27 of another; what lies between must not count."""
    return np.r_[np.full(27, early), np.full(6, between), np.full(27, late)].astype(float)


def chosen(sign=1, **series):
    named = {"none": halved(5, 7), **{f"r[k={k[1:]}]": v for k, v in series.items()}}
    (choice,) = choose(STEPS, named, sign, "none", 5)
    return choice


def test_chosen_on_the_first_half_and_judged_on_the_second():
    choice = chosen(p1=halved(3, 9), p2=halved(4, 1), p3=halved(2, 2))
    assert (choice.base, choice.chosen) == ("r", "r[k=2]")
    assert list(choice.points) == ["r[k=1]", "r[k=2]", "r[k=3]"]
    assert (choice.first_steps, choice.second_steps) == ((101, 127), (134, 160))
    assert (choice.chosen_on, choice.judged, choice.judged_baseline) == (4, 1, 7)
    assert choice.judged_rank == 3
    assert choice.reason is None


def test_less_is_better_where_the_sign_says_so():
    choice = chosen(sign=-1, p1=halved(3, 9), p2=halved(4, 1), p3=halved(2, 2))
    assert choice.chosen == "r[k=3]"
    assert choice.judged_rank == 2


def test_of_equals_the_first_is_chosen_and_shares_its_place():
    choice = chosen(p1=halved(3, 4), p2=halved(3, 4), p3=halved(1, 4))
    assert choice.chosen == "r[k=1]"
    assert choice.judged_rank == 1


def test_missing_steps_are_left_out():
    gappy = halved(4, 2)
    gappy[[0, 5, 40]] = math.nan
    choice = chosen(p1=gappy, p2=halved(3, 1))
    assert (choice.chosen, choice.chosen_on, choice.judged) == ("r[k=1]", 4, 2)


def test_a_point_that_one_half_says_nothing_of_is_not_chosen():
    choice = chosen(p1=halved(9, math.nan), p2=halved(3, 1), p3=halved(math.nan, 9))
    assert (choice.chosen, choice.judged_rank) == ("r[k=2]", 1)


def test_nothing_known_chooses_nothing():
    choice = chosen(p1=halved(math.nan, 1), p2=halved(3, math.nan))
    assert choice.chosen is None
    assert "no point" in choice.reason


def test_too_short_a_run_chooses_nothing():
    series = {"none": np.ones(14), "r[k=1]": np.ones(14), "r[k=2]": np.ones(14)}
    (choice,) = choose(range(14), series, 1, "none", 5)
    assert choice.chosen is None
    assert "14 steps; 15 are needed" in choice.reason


def test_only_sweeps_are_chosen_from():
    names = ["none", "maxvar", "topk[fraction=0.5]", "r@paper[k=1,j=2]", "r@paper[k=2,j=2]"]
    series = {name: np.ones(60) for name in names}
    (choice,) = choose(STEPS, series, 1, "none", 5)
    assert choice.base == "r@paper"  # one point alone is no sweep


def test_a_preset_and_its_paper_s_variant_are_two_sweeps():
    names = ["none", "r[k=1]", "r[k=2]", "r@paper[k=1]", "r@paper[k=2]"]
    found = choose(STEPS, {n: np.ones(60) for n in names}, 1, "none", 5)
    assert [c.base for c in found] == ["r", "r@paper"]
