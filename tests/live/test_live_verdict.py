"""Verdicts of delivery: what was written against what the loss says it saw."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dfsim.live.core.proof import Seen, as_metrics, expected, judge, pg_loss_witness, whole
from dfsim.live.verl.loss import METRIC, take_seen


def seen_of(weight, advantage, mask, seen=1.0):
    one = np.zeros(len(mask), dtype=np.int64)
    made = whole(expected(np.array(weight), np.array(advantage), np.array(mask, bool), one))
    return Seen(**{**made.to_dict(), "seen": seen})


WANT = seen_of([1.0, 0.5, 9.0, 2.0], [1.0, -2.0, 5.0, 0.25], [1, 1, 0, 1])


def verdict(got, *, dynamic=False, shuffled=False, want=WANT):
    return judge([want] if want.mask else [], got, dynamic=dynamic, shuffled=shuffled)


def changed(**factors):
    return Seen(**{k: v * factors.get(k, 1.0) for k, v in WANT.to_dict().items()})


def test_expected_sums_by_hand():
    assert Seen(1.0, 3.0, 3.5, 5.25, 2.5) == WANT
    assert WANT.ratios == pytest.approx((3.5 / 3, 5.25 / 3, 2.5 / 3))


@pytest.mark.parametrize("scale", [1.0, 0.25, 3.0])  # verl averages over micro-batches
def test_what_was_written_and_seen_is_delivered(scale):
    got = changed(mask=scale, weight=scale, weight_sq=scale, signal=scale)
    found = verdict(got)
    assert (found.delivered, found.reason) == (1, "")
    assert as_metrics(found) == {"dfsim/delivered": 1.0}


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("weight", "mean weight written"),
        ("weight_sq", "mean squared weight written"),
        ("signal", "mean of weight·|advantage|"),
    ],
)
def test_a_sum_that_is_off_is_named_with_both_values(field, words):
    assert verdict(changed(**{field: 1 + 1e-6})).delivered == 1
    found = verdict(changed(**{field: 1 + 1e-4}))
    assert found.delivered == 0
    if field != "signal":
        assert words in found.reason
    assert "seen by the loss" in found.reason
    assert as_metrics(found) == {"dfsim/delivered": 0.0}


@pytest.mark.parametrize("seen", [0.0, 0.5])  # half of the micro-batches had none
def test_missing_weights_are_not_delivered(seen):
    found = verdict(changed(seen=seen))
    assert (found.delivered, found.reason) == (0, "the loss got no rollout_is_weights")


def test_missing_weights_are_seen_even_where_an_advantage_is_nan():
    got = changed(seen=0.0, signal=math.nan)
    assert verdict(got).delivered == 0


def test_zeros_that_were_ignored_are_not_delivered():
    zero = seen_of([0.0, 0.0], [1.0, -1.0], [1, 1])
    assert verdict(zero, want=zero).delivered == 1
    ones = seen_of([1.0, 1.0], [1.0, -1.0], [1, 1])
    assert verdict(ones, want=zero).delivered == 0


def as_verl_averages(parts, pieces):
    """Each mini-batch's sums over its number of micro-batches, then the mean over mini-batches."""
    rows = [{k: v / n for k, v in p.to_dict().items()} for p, n in zip(parts, pieces, strict=True)]
    mean = {k: float(np.mean([row[k] for row in rows])) for k in rows[0]}
    return Seen(**{**mean, "seen": 1.0})


def mini_batches_of(rng):
    """Three mini-batches in which a group filter keeps very different shares."""
    code = np.repeat([0, 1, 2], 40)
    weight = (rng.random(120) < np.array([0.05, 0.5, 0.95])[code]).astype(np.float32)
    return expected(weight, rng.normal(size=120), rng.random(120) < 0.9, code)


@pytest.mark.parametrize("seed", range(20))
def test_unequal_micro_batches_leave_a_ratio_between_the_mini_batches(seed):
    rng = np.random.default_rng(seed)
    parts = mini_batches_of(rng)
    got = as_verl_averages(parts, rng.integers(1, 9, 3))
    assert judge(parts, got, dynamic=True, shuffled=False).delivered == 1
    assert judge(parts, got, dynamic=True, shuffled=True).delivered is None
    ones = expected(
        *(np.ones(120), rng.normal(size=120)), np.ones(120, bool), np.repeat([0, 1], 60)
    )
    assert judge(parts, as_verl_averages(ones, (1, 2)), dynamic=True, shuffled=False).delivered == 0


def test_equal_micro_batches_must_give_the_whole_steps_ratio():
    parts = mini_batches_of(np.random.default_rng(3))
    assert judge(parts, as_verl_averages(parts, (4, 4, 4)), dynamic=False, shuffled=True).delivered
    off = as_verl_averages(parts, (1, 4, 4))
    assert judge(parts, off, dynamic=False, shuffled=False).delivered == 0


@pytest.mark.parametrize("field", ["weight", "weight_sq", "signal"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_cannot_be_checked(field, value):
    for want, got in ((WANT, changed(**{field: value})), (changed(**{field: value}), WANT)):
        found = verdict(got, want=want)
        assert found.delivered is None
        assert "not finite" in found.reason
        assert as_metrics(found) == {}


def test_a_step_without_a_trained_token_cannot_be_checked():
    # Rejection sampling may mask every token.
    nothing = seen_of([1.0, 1.0], [1.0, 1.0], [0, 0])
    assert nothing.mask == 0
    found = verdict(nothing, want=nothing)
    assert found.delivered is None
    assert found.reason


def test_a_loss_that_did_not_run_cannot_be_checked():
    found = verdict(None)
    assert found.delivered is None
    assert "did not run" in found.reason


def test_the_report_is_taken_out_of_the_metrics():
    metrics = {f"actor/{METRIC}/{n}": v for n, v in WANT.to_dict().items()}
    metrics["actor/pg_loss"] = 0.5
    assert take_seen(metrics) == WANT
    assert metrics == {"actor/pg_loss": 0.5}
    assert take_seen(metrics) is None
    assert take_seen({f"actor/{METRIC}/mask": 1.0}) is None


@pytest.mark.parametrize(
    ("pg_loss", "weighted", "unweighted", "says"),
    [
        (-0.25, -0.25, 0.0, "agrees"),
        (-0.25001, -0.25, 0.0, "agrees"),
        (0.0, -0.25, 0.0, "differs"),
        (-0.3, -0.25, 0.0, "differs"),
        (None, -0.25, 0.0, "no power"),
        (0.7, 1e-9, 2e-9, "no power"),  # both sums nearly cancel
        (0.7, -0.25, -0.25, "no power"),  # only responses with advantage 0 were dropped
        (math.nan, -0.25, 0.0, "differs"),
        (math.nan, math.nan, math.nan, "no power"),  # one NaN advantage
    ],
)
def test_pg_loss_speaks_only_where_it_has_power(pg_loss, weighted, unweighted, says):
    assert pg_loss_witness(pg_loss, weighted, unweighted) == says
