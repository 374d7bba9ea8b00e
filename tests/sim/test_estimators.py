"""Every estimator against an independent slow implementation, and facts derived by hand."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from rows import decision_of, rows_of

from dfsim.sim.estimators import CATALOG, estimate_step
from dfsim.sim.estimators.aggregation import LOSS_AGG_MODES
from dfsim.sim.estimators.step import StepSums
from dfsim.sim.replay.loop import replay
from dfsim.strategies.base import Decision
from dfsim.strategies.build import build
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.assemble import from_columns
from dfsim.traces.storage.manifest import Manifest
from dfsim.traces.storage.store import Trace, TraceWriter
from dfsim.traces.synthetic import exact_step, random_step
from reference import estimators_slow as slow

RUN_ONLY = {"refill_factor", "updates_per_step", "signal_scale_cv"}


def with_outputs(columns, rng, minis=2):
    """Split each response's tokens into one or two outputs and deal them to mini-batches."""
    outputs, minibatch, counts = [], [], []
    for tokens in columns["num_tokens"]:
        first = int(rng.integers(0, tokens + 1))
        parts = [int(tokens)] if rng.random() < 0.5 else [first, int(tokens) - first]
        outputs += parts
        minibatch += rng.integers(0, minis, len(parts)).tolist()
        counts.append(len(parts))
    return {**columns, "output_tokens": (outputs, counts), "mini_batch": (minibatch, counts)}


def assert_same(got, expected, where):
    for name, value in expected.items():
        if math.isnan(value):
            assert math.isnan(got[name]), (where, name, got[name])
        else:
            assert got[name] == pytest.approx(value, rel=1e-9, abs=1e-9), (where, name)


def undefined_energy(batch, decision):
    """A response with A = 0 and A′ ≠ 0: the reference drops it, dfsim counts its noise."""
    replaced = decision.advantage_N
    return replaced is not None and bool(((batch.advantage_N == 0) & (replaced != 0)).any())


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("outputs", [False, True])
def test_random_batches(mode, outputs):
    rng = np.random.default_rng(11)
    for trial in range(40):
        columns = random_step(rng)
        if outputs:
            columns = with_outputs(columns, rng)
        options = {
            "mini_batch_rows": 64 if trial % 2 else None,
            "loss_scale_factor": 512.0 if trial % 3 else None,
        }
        batch = from_columns(columns, **options)
        decisions = {name: build(name).decide(batch) for name in WEIGHING}
        got = estimate_step(batch, decisions, mode)
        for name, decision in decisions.items():
            expected = slow.estimates(
                rows_of(batch), decision_of(batch, decision), loss_agg_mode=mode, **options
            )
            if undefined_energy(batch, decision):
                expected = {k: v for k, v in expected.items() if not k.startswith("energy")}
            if mode == "seq-mean-token-sum-norm" and options["loss_scale_factor"] is None:
                expected["one_sided_frac"] = math.nan  # dfsim reports none of what rests on c
            assert_same(got[name], expected, (trial, name))


def test_per_domain_values_are_the_reference_restricted_to_the_domain():
    rng = np.random.default_rng(12)
    estimators = tuple(CATALOG.values())
    for _ in range(30):
        batch = from_columns(random_step(rng), domains=("d0", "d1", "d2"))
        decisions = {name: build(name).decide(batch) for name in ("none", "maxvar", "per", "ar")}
        values = StepSums(batch, decisions, estimators, "token-mean", 1e-6, 3).values()
        for d in range(3):
            inside = [batch.uid_G[g] for g in np.flatnonzero(batch.domain_G == d)]
            if not inside:
                continue
            for k, (name, decision) in enumerate(decisions.items()):
                got = {e.name: float(values[i, 1 + d, 0, k]) for i, e in enumerate(estimators)}
                expected = slow.estimates(
                    rows_of(batch), decision_of(batch, decision), groups=set(inside)
                )
                assert_same(got, expected, (d, name))


def test_token_advantages_as_reference():
    rng = np.random.default_rng(13)
    for _ in range(30):
        columns = random_step(rng)
        lengths = columns["num_tokens"]
        columns["advantages"] = (rng.normal(size=int(lengths.sum())), lengths)
        batch = from_columns(columns)
        for name in ("none", "maxvar", "softmax", "ar"):
            decision = build(name).decide(batch)
            got = estimate_step(batch, {name: decision})[name]
            assert_same(got, slow.estimates(rows_of(batch), decision_of(batch, decision)), name)


def test_reference_covers_the_catalog():
    batch = from_columns(exact_step([1, 2], 4))
    none = build("none").decide(batch)
    names = slow.estimates(rows_of(batch), decision_of(batch, none)).keys()
    assert set(names) | RUN_ONLY == set(CATALOG)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_binary_facts(n):
    for k in range(1, n):
        batch = from_columns(exact_step([k], n))
        p = k / n
        positive = math.sqrt((1 - p) / p * (n - 1) / n)
        assert batch.advantage_N.max() == pytest.approx(positive, rel=1e-5)
        assert np.square(batch.advantage_N).sum() == pytest.approx(n - 1, rel=1e-5)
        got = estimate_step(batch, {"none": build("none").decide(batch)})["none"]
        assert got["kish_responses"] == pytest.approx(4 * n * p * (1 - p), rel=1e-9)


def test_effective_batch_of_none_is_the_live_groups():
    batch = from_columns(exact_step([0, 1, 4, 8, 5, 8], 8))
    got = estimate_step(batch, {"none": build("none").decide(batch)})["none"]
    assert got["effective_batch"] == pytest.approx(3)
    assert got["effective_batch_low"] == pytest.approx(3)
    assert got["live_group_frac"] == 0.5
    assert got["wasted_token_frac"] == 0.5


def test_keeping_one_of_two_equal_groups_halves_the_batch():
    batch = from_columns(exact_step([4, 4], 8))
    got = estimate_step(batch, {"half": Decision(np.repeat([1.0, 0.0], 8))})["half"]
    assert got["effective_batch"] == pytest.approx(1)
    assert (got["effective_batch_low"], got["effective_batch_high"]) == pytest.approx((1, 1))
    assert got["signal_scale"] == got["loss_scale"] == 0.5


def test_thinning_every_group_is_invisible_to_kish_and_seen_by_the_headline():
    """Half of each group: Kish over groups stays 2, R halves; 2 / (.75/1 + .25/.5) = 1.6."""
    batch = from_columns(exact_step([4, 4], 8))
    kept = np.tile([1, 1, 0, 0, 1, 1, 0, 0], 2).astype(float)
    got = estimate_step(batch, {"thin": Decision(kept)})["thin"]
    assert got["kish_groups"] == pytest.approx(2)
    assert got["effective_batch"] == pytest.approx(1.6)
    assert got["effective_batch_low"] == pytest.approx(1)
    assert got["effective_batch_high"] == pytest.approx(2)


def test_dead_groups_dilute_the_gradient():
    """Four equal groups, three dead: token-mean divides by all tokens (TRL#6365)."""
    four = from_columns(exact_step([2, 0, 4, 0], 4))
    none = Decision(np.ones(16))
    got = estimate_step(four, {"none": none})["none"]
    assert got["live_group_frac"] == 0.25
    kept = estimate_step(four, {"dapo": build("dapo").decide(four)})["dapo"]
    assert kept["signal_scale"] == 1.0
    assert kept["loss_scale"] == 0.25


def test_nothing_kept_is_an_effective_batch_of_zero_not_nan():
    batch = from_columns(exact_step([4, 2], 8))
    got = estimate_step(batch, {"zero": Decision(np.zeros(16))})["zero"]
    assert got["effective_batch"] == got["effective_batch_high"] == got["kish_groups"] == 0.0
    assert math.isnan(got["group_bias"])


def test_singletons_are_not_live_and_their_signal_is_said():
    columns = {"step": 1, "group_uid": ["a", "b", "b"], "reward": [1.0, 1.0, 0.0]}
    batch = from_columns({**columns, "num_tokens": [1, 1, 1]})
    got = estimate_step(batch, {"none": build("none").decide(batch)})["none"]
    assert got["live_group_frac"] == 0.5
    half = math.sqrt(0.5)
    assert got["singleton_share"] == pytest.approx(1 / (1 + 2 * half), rel=1e-5)


def test_without_log_probs_or_lengths_numbers_are_nan():
    batch = from_columns({"step": 1, "group_uid": ["a", "a"], "reward": [1.0, 0.0]})
    got = estimate_step(batch, {"none": build("none").decide(batch)})["none"]
    assert math.isnan(got["energy_scale_low"])
    assert math.isnan(got["num_tokens"])
    assert got["effective_batch"] == pytest.approx(1)


def test_two_mini_batches_are_two_updates_and_halve_the_batch(tmp_path):
    rng = np.random.default_rng(3)
    columns = with_outputs(exact_step([2, 1, 3], 4), rng)
    frame = pl.DataFrame(
        {n: c for n, c in columns.items() if not isinstance(c, tuple)}
    ).with_columns(
        pl.Series(name, np.split(np.array(columns[name][0]), np.cumsum(columns[name][1])[:-1]))
        for name in ("output_tokens", "mini_batch", "old_log_probs")
    )
    TraceWriter(tmp_path, Manifest("test")).write_step(frame)
    none = replay(Trace(tmp_path), ["none"], resamples=2).strategies["none"]
    assert none.estimates["updates_per_step"].mean == 2
    assert none.per_update["effective_batch"] == pytest.approx(3 / 2)
