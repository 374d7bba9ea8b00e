"""From a decision to what the loss gets, and whether the loss got it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfsim.live.core.delivery import ON_EMPTY, RESCALE, Applied, apply
from dfsim.live.verl.loss import METRIC, SUMS, proof_name, register_proofs, reporting
from dfsim.strategies.base import Decision
from dfsim.traces.assemble import from_columns

SOME = settings(max_examples=60, deadline=None, derandomize=True)


def batch_of(num_tokens, log_probs=True):
    count = len(num_tokens)
    columns = {
        "step": 1,
        "group_uid": np.array(["g"] * count, object),
        "rollout_idx": np.arange(count),
        "reward": np.arange(count) % 2 * 1.0,
        "num_tokens": np.array(num_tokens),
    }
    if log_probs:
        columns["old_log_probs"] = (np.zeros(sum(num_tokens), np.float32), np.array(num_tokens))
    return from_columns(columns)


def applied_of(weights, num_tokens, **options):
    return apply(Decision(np.array(weights, float)), batch_of(num_tokens), **options)


# apply


def test_weights_are_cast_to_float32():
    third = 1 / 3
    applied = applied_of([third, 1 + 1e-12, 0.0], [1, 2, 3])
    assert applied.weight_N.dtype == np.float32
    assert float(applied.weight_N[0]) == float(np.float32(third)) != third
    assert applied.weight_N.tolist()[1:] == [1.0, 0.0]
    assert applied.token_weight_T is None
    assert applied.advantage_N is None
    assert not applied.empty
    assert applied.scale == 1.0


@pytest.mark.parametrize(
    ("rescale", "scale"),
    [
        ("none", 1.0),
        ("kept", 10 / 4),  # tokens 1 + 3 of 10 have weight
        ("mean_one", 10 / (2 * 1 + 0.5 * 3)),
    ],
)
def test_rescaling_by_hand(rescale, scale):
    applied = applied_of([2.0, 0.0, 0.5], [1, 6, 3], rescale=rescale)
    assert applied.scale == pytest.approx(scale, rel=1e-15)
    wanted = np.array([2.0 * applied.scale, 0.0, 0.5 * applied.scale]).astype(np.float32)
    assert applied.weight_N.tolist() == wanted.tolist()


def test_a_response_without_a_token_weighs_nothing_in_a_scale():
    applied = applied_of([1.0, 1.0, 0.0], [0, 2, 2], rescale="kept")
    assert applied.scale == 2.0
    assert applied_of([1.0, 0.0], [0, 4]).empty


def test_token_weights_are_scaled_with_their_means():
    batch = batch_of([2, 0, 2])
    decision = Decision.of_tokens(batch, np.array([0.5, 1.0, 0.0, 0.5]))
    applied = apply(decision, batch, rescale="mean_one")
    assert applied.scale == 2.0
    assert applied.token_weight_T.dtype == np.float32
    assert applied.token_weight_T.tolist() == [1.0, 2.0, 0.0, 1.0]
    assert applied.weight_N.tolist() == [1.5, 2.0, 0.5]
    assert applied.weights_T(batch).tolist() == [1.0, 2.0, 0.0, 1.0]
    kept = apply(decision, batch, rescale="kept")
    assert kept.scale == pytest.approx(4 / 3)


def test_weights_of_tokens_repeat_those_of_responses():
    batch = batch_of([2, 0, 3])
    applied = apply(Decision(np.array([0.5, 7.0, 2.0])), batch)
    assert applied.weights_T(batch).tolist() == [0.5, 0.5, 2.0, 2.0, 2.0]


def test_replaced_advantages_are_not_rescaled():
    decision = Decision(np.array([1.0, 0.0]), advantage_N=np.array([0.1, -0.2]))
    applied = apply(decision, batch_of([2, 2]), rescale="kept")
    assert applied.weight_N.tolist() == [2.0, 0.0]
    assert applied.advantage_N.tolist() == [float(np.float32(0.1)), float(np.float32(-0.2))]


@pytest.mark.parametrize("on_empty", ON_EMPTY)
@pytest.mark.parametrize("rescale", RESCALE)
@pytest.mark.parametrize("tokens", [False, True])
def test_a_step_that_keeps_nothing(on_empty, rescale, tokens):
    batch = batch_of([2, 1])
    zeros = Decision(np.zeros(2), advantage_N=np.array([3.0, 4.0]))
    if tokens:
        zeros = Decision.of_tokens(batch, np.zeros(3))
    applied = apply(zeros, batch, rescale, on_empty)
    assert applied.empty
    assert applied.scale == 1.0
    wanted = 1.0 if on_empty == "keep_all" else 0.0
    assert applied.weights_T(batch).tolist() == [wanted] * 3
    if on_empty == "keep_all":
        assert applied.advantage_N is None


def test_weights_that_vanish_in_float32_keep_nothing():
    applied = applied_of([1e-60, 0.0], [2, 2])
    assert applied.weight_N.tolist() == [0.0, 0.0]
    assert applied.empty


weights = st.lists(st.floats(1e-6, 100) | st.just(0.0), min_size=1, max_size=8)


@given(weights, st.data(), st.sampled_from(RESCALE))
@SOME
def test_a_scale_is_what_its_name_says(values, data, rescale):
    size = len(values)
    tokens = data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
    applied = applied_of(values, tokens, rescale=rescale)
    total = sum(tokens)
    kept = sum(n for n, w in zip(tokens, values, strict=True) if w > 0)
    mass = math.fsum(n * w for n, w in zip(tokens, values, strict=True))
    assert applied.empty == (kept == 0)
    scale = {"none": 1.0, "kept": total / kept if kept else 1.0}
    scale["mean_one"] = total / mass if kept else 1.0
    assert applied.scale == pytest.approx(scale[rescale], rel=1e-12)
    wanted = (np.array(values) * applied.scale).astype(np.float32)
    assert applied.weight_N.tobytes() == wanted.tobytes()


# Digest

bits = st.binary(min_size=4, max_size=4).map(lambda b: np.frombuffer(b, np.float32)[0])


@given(st.lists(bits, min_size=1, max_size=4), st.integers(0, 2), st.data())
@SOME
def test_a_digest_changes_with_any_bit(values, place, data):
    def digest(arrays):
        return Applied(arrays[0], arrays[1], arrays[2], False, 1.0).digest()

    arrays = [np.array(values, np.float32) for _ in range(3)]
    before = digest(arrays)
    assert digest([a.copy() for a in arrays]) == before
    bit = data.draw(st.integers(0, 32 * len(values) - 1))
    raw = arrays[place].view(np.uint8)
    raw[bit // 8] ^= 1 << bit % 8
    assert digest(arrays) != before


def test_a_digest_tells_tokens_from_advantages_and_absent_from_empty():
    one, none = np.ones(2, np.float32), np.zeros(0, np.float32)
    made = [
        Applied(one, one, None, False, 1.0),
        Applied(one, None, one, False, 1.0),
        Applied(one, None, None, False, 1.0),
        Applied(one, none, None, False, 1.0),
        Applied(one, None, none, False, 1.0),
    ]
    assert len({a.digest() for a in made}) == 5


# The loss that reports


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def plain_loss(old_log_prob, log_prob, advantages, response_mask, **given):
    weight = given["rollout_is_weights"]
    ratio = (log_prob - old_log_prob).exp()
    loss = -(ratio * advantages * response_mask * (1 if weight is None else weight)).sum()
    return loss / response_mask.sum(), {"actor/mine": 7.0}


def loss_inputs(torch, seed=0):
    draw = torch.Generator().manual_seed(seed)
    old, new, advantage = (torch.randn(3, 5, generator=draw) for _ in range(3))
    mask = (torch.rand(3, 5, generator=draw) > 0.4).float()
    return {
        "old_log_prob": old,
        "log_prob": new.requires_grad_(),
        "advantages": advantage,
        "response_mask": mask,
    }


@pytest.mark.torch
@pytest.mark.parametrize("weighted", [False, True])
def test_the_reporting_loss_is_the_loss_and_sums_what_it_saw(torch, weighted):
    given = loss_inputs(torch)
    weight = torch.rand(3, 5, generator=torch.Generator().manual_seed(1)) if weighted else None
    bare, own = plain_loss(**given, rollout_is_weights=weight)
    loss, metrics = reporting(plain_loss)(**given, rollout_is_weights=weight)
    assert torch.equal(loss, bare)
    grads = [torch.autograd.grad(x, given["log_prob"])[0] for x in (bare, loss)]
    assert torch.equal(*grads)
    assert {k: v for k, v in metrics.items() if METRIC not in k} == own
    rows = zip(
        given["response_mask"].flatten().tolist(),
        given["advantages"].flatten().tolist(),
        [1.0] * 15 if weight is None else weight.flatten().tolist(),
        strict=True,
    )
    kept = [(a, w) for m, a, w in rows if m]
    assert metrics[f"{METRIC}/seen"] == float(weighted)
    assert metrics[f"{METRIC}/mask"] == len(kept)
    assert metrics[f"{METRIC}/weight"] == pytest.approx(sum(w for _, w in kept), rel=1e-12)
    assert metrics[f"{METRIC}/weight_sq"] == pytest.approx(sum(w * w for _, w in kept), rel=1e-12)
    assert metrics[f"{METRIC}/signal"] == pytest.approx(sum(w * abs(a) for a, w in kept), rel=1e-12)


@pytest.mark.torch
def test_the_loss_gets_every_argument_as_it_was_given(torch):
    seen = {}

    def loss(**given):
        seen.update(given)
        return torch.zeros(()), {}

    config = object()
    given = {**loss_inputs(torch), "loss_agg_mode": "seq-mean-token-sum", "config": config}
    reporting(loss)(**given, rollout_is_weights=None)
    assert seen.pop("rollout_is_weights") is None
    assert all(seen[name] is value for name, value in given.items())
    assert set(seen) == set(given)
    reporting(loss)(*[given[n] for n in list(given)[:4]])  # by position, with verl's defaults
    assert seen["loss_agg_mode"] == "token-mean"


@pytest.mark.torch
def test_registering_twice_is_harmless(torch):
    registry = {"vanilla": plain_loss, "mine": plain_loss}
    register_proofs(registry)
    names = set(registry)
    assert names == {"vanilla", "mine", proof_name("vanilla"), proof_name("mine")}
    register_proofs(registry)
    assert set(registry) == names
    assert registry["vanilla"] is plain_loss
    _, metrics = registry[proof_name("mine")](**loss_inputs(torch))
    assert len([k for k in metrics if METRIC in k]) == len(SUMS)
