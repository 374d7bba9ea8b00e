"""One suite over the whole catalog, and what it says of strategies that break it."""

from __future__ import annotations

import numpy as np
import pytest

import dfsim
from dfsim.strategies.build import build
from dfsim.strategies.catalog import ACTUATORS, PRESETS, SCORERS
from dfsim.traces.errors import StrategyError


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    assert len(dfsim.check_strategy(name)) == (6 if PRESETS[name].samples else 10)


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("actuator", ACTUATORS)
def test_compositions(scorer, actuator):
    if SCORERS[scorer].level != ACTUATORS[actuator].level:
        with pytest.raises(StrategyError, match="needs a score per"):
            build(scorer=scorer, actuator=actuator)
    elif actuator != "unchanged":
        dfsim.check_strategy(build(scorer=scorer, actuator=actuator))


class Negative:
    def weights(self, batch):
        return -np.ones(batch.num_responses)


class Fickle:
    def weights(self, batch):
        return np.random.rand(batch.num_responses)  # noqa: NPY002


class FirstRow:
    """Depends on the names of groups: the first group of the canonical order is favoured."""

    def weights(self, batch):
        return np.where(batch.group_N == 0, 2.0, 1.0)


class Fussy:
    def weights(self, batch):
        return batch.reward_N / batch.reward_N.max()


class Selector:
    kind = "select"

    def weights(self, batch):
        return np.full(batch.num_responses, 0.5)


class Short:
    def weights(self, batch):
        return np.ones(3)


class NoMethod:
    pass


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (Negative, "finite and ≥ 0"),
        (Fickle, "same batch same weights"),
        (FirstRow, "group names do not matter"),
        (Fussy, "reward"),
        (Selector, "weight 0.5"),
        (Short, r"shape \(3,\)"),
        (NoMethod, "needs a method weights"),
    ],
)
def test_broken_strategies_are_named(cls, words):
    with pytest.raises(StrategyError, match=words) as caught:
        dfsim.check_strategy(cls)
    assert cls.__name__ in str(caught.value)


def test_the_example_is_small():
    with pytest.raises(StrategyError) as caught:
        dfsim.check_strategy(Negative)
    assert str(caught.value).count("reward") <= 3
