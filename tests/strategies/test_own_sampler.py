"""A sampler of a user's own: checked, built, refused."""

from __future__ import annotations

import numpy as np
import pytest
from pools import BROKEN, broken_file, pool_file

import dfsim
from dfsim.strategies.sample.base import UnitStep
from dfsim.strategies.sample.quota import draw_prompts
from dfsim.traces.errors import StrategyError


def step(number, rewards):
    rewards = np.array(rewards, dtype=float)
    return UnitStep(number, rewards, rewards, np.where(np.isnan(rewards), 0, 8))


def refused(act):
    with pytest.raises(StrategyError) as caught:
        act()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_worked_example_holds_every_invariant(tmp_path):
    name = f"{pool_file(tmp_path)}:HardPool"
    assert len(dfsim.check_strategy(name)) == 6
    assert len(dfsim.check_strategy(f"{name}+maxvar")) >= 6


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_invariant_is_named(name, tmp_path):
    invariant, _ = BROKEN[name]
    text = refused(lambda: dfsim.check_strategy(f"{broken_file(tmp_path)}:{name}"))
    assert invariant.replace("_", " ") in text


def test_a_pool_asks_for_what_its_formula_says(tmp_path):
    pool = dfsim.build(f"{pool_file(tmp_path)}:HardPool", {"memory": 0.75, "least": 0.25})
    assert (pool.kind, pool.level) == ("sample", "prompt")
    work = pool.start(["p1", "p2", "p3"])
    np.testing.assert_allclose(work.propose(), [1 / 3] * 3)
    work.observe(step(1, [1.0, 0.0, np.nan]))
    # rates .5 + .25·.5 and .5 − .25·.5; weights .25 + (1 − rate)
    weights = np.array([0.25 + 0.375, 0.25 + 0.625, 0.25 + 0.5])
    np.testing.assert_allclose(work.propose(), weights / weights.sum())
    assert work.unseen == ("p3",)


def test_two_runs_of_one_strategy_share_nothing(tmp_path):
    pool = dfsim.build(f"{pool_file(tmp_path)}:HardPool")
    first, second = pool.start(["p", "q"]), pool.start(["p", "q"])
    first.observe(step(1, [1.0, 0.0]))
    np.testing.assert_allclose(second.propose(), [0.5, 0.5])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def propose(self): return [1]", ["no method start", "load_state_dict"]),
        ("level = 'token'\n    def propose(self): ...", ["no method start"]),
    ],
)
def test_what_is_no_sampler_is_refused(body, words, tmp_path):
    path = tmp_path / "no.py"
    path.write_text(f"class No:\n    {body}\n")
    text = refused(lambda: dfsim.build(f"{path}:No"))
    for word in words:
        assert word in text


WHOLE = (
    "    def start(self, units, prior): self.n = len(units)\n"
    "    def observe(self, seen): {observe}\n"
    "    def propose(self): {propose}\n"
    "    def state_dict(self): return {state}\n"
    "    def load_state_dict(self, state): pass\n"
)


@pytest.mark.parametrize(
    ("parts", "act", "words"),
    [
        ({"head": "level = 'token'"}, "build", ["level='token'", "domain or prompt"]),
        ({"head": "kind = 'select'"}, "build", ["kind='select'", "sample"]),
        ({"propose": "raise ValueError('no')"}, "start", ["propose raised ValueError: no"]),
        ({"propose": "return 'much'"}, "start", ["not an array of numbers"]),
        ({"propose": "return [1.0, float('nan')]"}, "start", ["finite and ≥ 0"]),
        ({"observe": "1 / 0"}, "observe", ["observe raised ZeroDivisionError"]),
        ({"state": "{'a': __import__('numpy').ones(2)}"}, "state", ["plain values", ".tolist()"]),
    ],
)
def test_a_mistake_is_one_line_that_says_where(parts, act, words, tmp_path):
    filled = {"observe": "pass", "propose": "return [1.0] * self.n", "state": "{}", "head": "x = 1"}
    filled |= parts
    path = tmp_path / "own.py"
    path.write_text(f"class Own:\n    {filled['head']}\n" + WHOLE.format(**filled))

    def run():
        built = dfsim.build(f"{path}:Own")
        assert act != "build"
        work = built.start(["p", "q"])
        assert act != "start"
        work.observe(step(1, [0.0, 1.0]))
        work.state_dict()

    text = refused(run)
    for word in words:
        assert word in text


def test_a_sampler_before_a_selector_has_both_ones_parameters(tmp_path):
    name = f"{pool_file(tmp_path)}:HardPool+maxvar"
    built = dfsim.build(name, {"memory": 0.25, "maxvar.keep_frac": 0.75})
    assert {"memory": 0.25, "least": 0.1, "maxvar.keep_frac": 0.75}.items() <= built.params.items()
    assert built.then.params["keep_frac"] == 0.75


# Drawing prompts


@pytest.mark.parametrize("seed", range(20))
def test_prompts_come_once_before_any_comes_again(seed):
    rng = np.random.default_rng(seed)
    share = rng.random(7) * (rng.random(7) < 0.7)
    share[0] = 1.0
    count = int(rng.integers(1, 20))
    drawn = np.bincount(draw_prompts(share, count, rng), minlength=7)
    there = share > 0
    assert drawn.sum() == count
    assert not drawn[~there].any()
    assert drawn[there].max() - drawn[there].min() <= 1


def test_successive_draws_follow_the_shares():
    """Of 3 draw 2 with .5 .3 .2: by hand, P(first in) = .5 + .3·.5/.7 + .2·.5/.8 = .839."""
    rng = np.random.default_rng(0)
    share, runs = np.array([0.5, 0.3, 0.2]), 20_000
    drawn = [draw_prompts(share, 2, rng) for _ in range(runs)]
    inside = np.bincount(np.concatenate(drawn), minlength=3) / runs
    expected = [
        share[i] + sum(share[j] * share[i] / (1 - share[j]) for j in range(3) if j != i)
        for i in range(3)
    ]
    # 4 standard errors of a share of 20,000
    np.testing.assert_allclose(inside, expected, atol=4 * 0.5 / np.sqrt(runs))
    first = np.bincount([one[0] for one in drawn], minlength=3) / runs
    np.testing.assert_allclose(first, share, atol=4 * 0.5 / np.sqrt(runs))
