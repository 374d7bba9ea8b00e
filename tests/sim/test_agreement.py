"""Which strategies decide alike: weights, weights of tokens, and replaced advantages."""

from __future__ import annotations

import numpy as np
import pytest
from made import solved_trace, trace_of

import dfsim
from dfsim.sim.screen.agreement import Agreement
from dfsim.strategies.base import Decision
from dfsim.traces.batch import RolloutBatch
from dfsim.traces.synthetic import exact_step


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """Two groups of two, two tokens a response; the second group is constant, its advantages 0."""
    steps = [exact_step([1, 0], 2, num_tokens=2)]
    trace = trace_of(tmp_path_factory.mktemp("t"), steps)
    (found,) = trace.batches(["advantage", "num_tokens", "old_log_probs"])
    assert isinstance(found, RolloutBatch)
    return found


def shares(batch, **decisions):
    agreement = Agreement(list(decisions))
    agreement.add(batch, decisions)
    found = agreement.shares_KK()
    assert np.array_equal(found, found.T)
    assert (np.diag(found) == 1).all()
    return found


def weights(*values):
    return Decision(np.array(values, dtype=float))


def test_weights_are_compared_one_by_one(batch):
    found = shares(
        batch, a=weights(1, 1, 1, 1), b=weights(1, 0, 1, 0), c=weights(0, 0, 1, 2 / 3 + 1 / 3)
    )
    assert found.tolist() == [[1, 0.5, 0.5], [0.5, 1, 0.5], [0.5, 0.5, 1]]


def test_rounding_is_alike_and_more_is_not(batch):
    found = shares(batch, a=weights(1, 1, 1, 1), b=weights(1 + 1e-12, 1 + 1e-6, 1, 1 - 1e-12))
    assert found[0, 1] == 0.75


def test_twice_the_weight_is_another_decision(batch):
    assert shares(batch, a=weights(1, 1, 1, 1), b=weights(2, 2, 2, 2))[0, 1] == 0


def test_token_weights_are_compared_with_those_of_their_response(batch):
    """Equal means are not enough: .5 and 1.5 are not 1 and 1."""
    tokens = Decision.of_tokens(batch, np.array([1.0, 1, 0.5, 1.5, 2, 2, 0, 0]))
    assert tokens.weight_N.tolist() == [1, 1, 2, 0]
    found = shares(batch, tokens=tokens, one=weights(1, 1, 1, 1), mean=weights(1, 1, 2, 0))
    assert found[0].tolist() == [1, 0.25, 0.75]


def test_two_token_rules(batch):
    one = Decision.of_tokens(batch, np.array([1.0, 1, 0.5, 1.5, 2, 2, 0, 0]))
    other = Decision.of_tokens(batch, np.array([1.0, 1, 1.5, 0.5, 2, 2, 0, 1e-12]))
    assert shares(batch, one=one, other=other)[0, 1] == 0.75


def test_replaced_advantages_count(batch):
    """A kept response whose advantage was replaced is decided otherwise; by its own, alike."""
    same = Decision(np.ones(4), advantage_N=batch.advantage_N.copy())
    other = Decision(np.ones(4), advantage_N=batch.advantage_N + np.array([0, 0.5, 0, 0]))
    found = shares(batch, plain=weights(1, 1, 1, 1), same=same, other=other)
    assert found.tolist() == [[1, 1, 0.75], [1, 1, 0.75], [0.75, 0.75, 1]]


def test_responses_are_summed_over_steps_of_any_size(tmp_path):
    trace = solved_trace(tmp_path, [[1, 0], [1, 0, 2, 1]], 2)
    agreement = Agreement(["none", "dapo"])
    dfsim.replay(trace, ["dapo"], resamples=2, on_decision=agreement.add)
    # dapo drops the constant groups: one of two, then two of four.
    assert agreement.shares_KK()[0, 1] == 0.5


def test_nothing_seen_agrees_on_nothing():
    assert Agreement(["a", "b"]).shares_KK().tolist() == [[0, 0], [0, 0]]


def test_a_response_without_tokens_has_only_its_weight(tmp_path):
    columns = exact_step([1], 2)
    columns["num_tokens"] = np.array([2, 0])
    columns["old_log_probs"] = (np.full(2, -0.5, dtype=np.float32), np.array([2, 0]))
    (batch,) = trace_of(tmp_path, [columns]).batches(["num_tokens", "old_log_probs"])
    tokens = Decision.of_tokens(batch, np.array([0.5, 1.5]))
    assert shares(batch, tokens=tokens, one=weights(1, 1))[0, 1] == 0.5
