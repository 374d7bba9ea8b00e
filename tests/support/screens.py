"""Traces, strategies and calls that the tests of ``dfsim screen`` share."""

from __future__ import annotations

import json
import textwrap

import pytest
from made import solved_trace
from said import printed

QUICK = ("--resamples", "2", "--quiet")
GROUPS = 8
EVEN = [[2] * GROUPS] * 60  # every group half solved, so that all groups are alike

OWN = """
    from dataclasses import dataclass
    import numpy as np
    from dfsim.strategies.base import Decision, param

    def of_groups(batch, weights):
        return np.asarray(weights, dtype=float)[batch.group_N]

    class Twice:
        def weights(self, batch):
            return np.full(batch.num_responses, 2.0)

    class Positive:
        def weights(self, batch):
            return (batch.reward_N > 0.5).astype(float)

    class Lopsided:
        def weights(self, batch):
            return of_groups(batch, np.where(np.arange(batch.num_groups) % 2, 3.0, 1.0))

    @dataclass(frozen=True)
    class Keep:
        groups: int = param(6, "groups kept", low=0)
        def weights(self, batch):
            return of_groups(batch, np.arange(batch.num_groups) < self.groups)

    class Copy(Keep):
        pass

    @dataclass(frozen=True)
    class Turned:
        groups: int = param(6, "groups kept; in small batches those left out", low=0)
        def weights(self, batch):
            small = batch.num_groups < 8
            kept = 5 - self.groups if small else self.groups
            return of_groups(batch, np.arange(batch.num_groups) < kept)
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    file = tmp_path_factory.mktemp("own") / "mine.py"
    file.write_text(textwrap.dedent(OWN))
    return file


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    return solved_trace(tmp_path_factory.mktemp("even"), EVEN, 4).path


def strict_json(text):
    def refuse(name):
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def screened(*args):
    return strict_json(printed("screen", *args, "--json", *QUICK))


def one_trace(*args):
    (trace,) = screened(*args)["traces"]
    return trace


def named(*names):
    return [part for name in names for part in ("-s", name)]


def words(text):
    return " ".join(text.split())


def two_sizes(tmp_path):
    sizes = {"large": [2] * 8, "little": [2] * 6}
    return [solved_trace(tmp_path / n, [s] * 3, 4).path for n, s in sizes.items()]
