"""How strategies and parameters are named, and strategies of a user's own."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import dfsim
from dfsim.strategies.build import build
from dfsim.strategies.catalog import WEIGHING
from dfsim.strategies.grammar import assignments, strategies_from, yaml_value
from dfsim.traces.assemble import from_columns
from dfsim.traces.errors import DfsimError, StrategyError
from dfsim.traces.synthetic import exact_step


def params_of(names, params, **options):
    return {s.name: s.params for s in strategies_from(names, params, **options)}


def refused(names, params=(), **options):
    with pytest.raises(StrategyError) as caught:
        strategies_from(names, list(params), **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# Values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.25", 0.25),
        ("1e-6", 1e-6),
        ("1E+3", 1000.0),
        ("3", 3),
        ("true", True),
        ("short", "short"),
        ("'3'", 3.0),
        ("[0.25, 1e-6]", [0.25, 1e-6]),
        ("2024-01-01", "2024-01-01"),
        ("", None),
    ],
)
def test_values_are_yaml_with_scientific_numbers(text, value):
    got = yaml_value(text, "-p x")
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[1, 2", "YAML value"), (".inf", "finite"), ("nan", "finite"), ("[1, -.inf]", "finite")],
)
def test_what_is_no_value_is_refused(text, words):
    with pytest.raises(DfsimError, match=f"not a {words}") as caught:
        yaml_value(text, "-p x")
    assert str(caught.value).startswith(f"-p x: '{text}' is")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("item", ["keep_frac", "=0.5", "", " =1"])
def test_an_assignment_has_a_name_and_a_value(item):
    with pytest.raises(DfsimError, match="is not name=value"):
        list(assignments([item], "-p"))


def test_a_value_may_hold_an_equals_sign():
    assert list(assignments([" a = b=c "], "-p")) == [("a", "b=c")]


# Names and prefixes


def test_the_prefix_may_be_dropped_for_one_strategy():
    for text in ("keep_frac=0.25", "maxvar.keep_frac=0.25"):
        assert params_of(["maxvar"], [text])["maxvar"]["keep_frac"] == 0.25


def test_the_prefix_is_required_for_several():
    message = refused(["maxvar", "gfpo"], ["keep_frac=0.25"])
    assert "write STRATEGY.keep_frac=0.25" in message
    got = params_of(["maxvar", "gfpo"], ["maxvar.keep_frac=0.25", "gfpo.k=2"])
    assert (got["maxvar"]["keep_frac"], got["gfpo"]["k"]) == (0.25, 2)


def test_a_base_name_reaches_its_variants_and_a_full_name_only_itself():
    got = params_of(["gfpo", "gfpo@paper"], ["gfpo.k=2"])
    assert [p["k"] for p in got.values()] == [2, 2]
    got = params_of(["gfpo", "gfpo@paper"], ["gfpo@paper.k=2"])
    assert [p["k"] for p in got.values()] == [3, 2]
    got = params_of(["gfpo", "gfpo@paper"], ["gfpo.k=2", "gfpo@paper.k=1"])
    assert [p["k"] for p in got.values()] == [2, 1]


def test_a_parameter_is_given_once():
    assert "params['keep_frac'] is given twice" in refused(
        ["maxvar"], ["keep_frac=0.1", "keep_frac=0.2"]
    )


def test_a_prefix_names_a_strategy_that_was_named():
    message = refused(["maxvar", "dapo"], ["topk.fraction=0.5"])
    assert "'topk' is not among the strategies named (maxvar, dapo)" in message


@pytest.mark.parametrize(
    ("names", "params", "words"),
    [
        (["maxvr"], [], "did you mean 'maxvar'"),
        (["max_variance"], [], "dfsim calls it 'maxvar'"),
        (["threshold_band"], [], "dfsim calls it 'difffilter'"),
        (["maxvar"], ["keep_fraction=0.5"], "dfsim calls it 'keep_frac'"),
        (["maxvar"], ["kep_frac=0.5"], "did you mean 'keep_frac'"),
        (["none"], ["x=1"], "it has: none"),
        (["maxvar"], ["keep_frac=0"], "keep_frac=0 is not allowed; give a value in (0, 1]"),
        (["maxvar"], ["keep_frac=1.5"], "(0, 1]"),
        (["maxvar"], ["keep_frac=much"], "keep_frac='much' is not a number"),
        (["maxvar"], ["keep_frac="], "keep_frac=None is not a number"),
        (["gfpo"], ["k=2.5"], "k=2.5 is not a whole number"),
        (["gfpo"], ["k=true"], "k=True is not a whole number"),
        (["gfpo"], ["metric=long"], "efficiency | short"),
        (["difffilter"], ["low=0.9"], "must be below"),
        (["dapo"], ["low=0.1"], "dapo has no parameter 'low'"),
        ([], [], "name a strategy"),
        (["maxvar"], ["keep_frac=[]"], "sweeps nothing"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(names, params, words):
    assert words in refused(names, params)


# Sweeps, all, compositions


def test_a_list_is_a_sweep_named_by_its_values():
    got = params_of(["maxvar"], ["keep_frac=[0.25, 0.5]"])
    assert {n: p["keep_frac"] for n, p in got.items()} == {
        "maxvar[keep_frac=0.25]": 0.25,
        "maxvar[keep_frac=0.5]": 0.5,
    }


def test_two_lists_are_every_pair():
    got = params_of(["difffilter"], ["low=[0.1, 0.2]", "high=[0.8, 0.9]"])
    assert list(got) == [
        f"difffilter[low={low},high={high}]" for low in (0.1, 0.2) for high in (0.8, 0.9)
    ]


def test_all_is_the_catalog_less_what_is_skipped():
    assert list(params_of(["all"], [])) == list(WEIGHING)
    without = list(params_of(["all"], [], skip={"ar": "no log-probs"}))
    assert without == [n for n in WEIGHING if n != "ar"]
    assert list(params_of(["maxvar", "all"], [])).count("maxvar") == 1


def test_compositions_take_parameters_without_a_prefix():
    pair = {"scorer": "advantage_magnitude", "actuator": "softmax"}
    got = params_of([], ["temperature=0.5"], **pair)
    assert got["advantage_magnitude+softmax"]["temperature"] == 0.5
    by_part = params_of([], ["softmax.temperature=0.5"], **pair)
    assert by_part == got
    assert "not both" in refused(["maxvar"], **pair)
    assert "both a scorer and an actuator" in refused([], scorer="reward")
    assert "did you mean 'reward'" in refused([], scorer="rewrd", actuator="softmax")
    wrong_level = refused([], scorer="solve_rate", actuator="softmax")
    assert "needs a score per response" in wrong_level


def test_tie_seed_reaches_every_strategy():
    assert {s.tie_seed for s in strategies_from(["all"], [], tie_seed=7)} == {7}


# A user's own


GOOD = """
    from dataclasses import dataclass
    import numpy as np

    class Favour:
        alpha: float = 0.5
        def weights(self, batch):
            return np.where(batch.reward_N > 0.5, 1 + self.alpha, 1.0)

    @dataclass(frozen=True)
    class Selector:
        kind = "select"
        columns = ("num_tokens",)
        def weights(self, batch):
            return (batch.num_tokens_N < 100).astype(float)

    class Tokens:
        level = "token"
        columns = ("old_log_probs",)
        def weights(self, batch):
            return np.exp(batch.old_log_prob_T)

    class Raises:
        def weights(self, batch):
            return batch.reward_N[10**9]

    class Text:
        def weights(self, batch):
            return "abc"

    class Short:
        def weights(self, batch):
            return np.ones(3)

    class Negative:
        def weights(self, batch):
            return -np.ones(batch.num_responses)

    class ShortDecision:
        def weights(self, batch):
            from dfsim.strategies.base import Decision
            return Decision(np.ones(3))

    class Blind:
        level = "token"
        def weights(self, batch):
            return np.ones(1)

    class Init:
        def __init__(self, alpha=0.5):
            self.alpha = alpha
        def weights(self, batch):
            return np.ones(batch.num_responses)

    class Mutable:
        levels: list = []
        def weights(self, batch):
            return np.ones(batch.num_responses)

    class NoDefault:
        alpha: float
        def weights(self, batch):
            return np.ones(batch.num_responses)

    class OddKind:
        kind = "selekt"
        def weights(self, batch):
            return np.ones(batch.num_responses)

    class OneColumn:
        columns = "num_tokens"
        def weights(self, batch):
            return np.ones(batch.num_responses)

    class NoMethod:
        pass

    def function(batch):
        return None
"""


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(textwrap.dedent(GOOD))
    return file


@pytest.fixture
def batch():
    return from_columns(exact_step([1, 2], 4))


def test_own_fields_are_parameters(own, batch):
    name = f"{own}:Favour"
    for params in (["alpha=1.5"], [f"{name}.alpha=1.5"]):
        (strategy,) = strategies_from([name], params)
        assert strategy.params == {"alpha": 1.5}
        expected = np.where(batch.reward_N > 0.5, 2.5, 1.0)
        assert np.array_equal(strategy.decide(batch).weight_N, expected)
    assert "did you mean 'alpha'" in refused([name], ["alfa=1"])


def test_own_kind_columns_and_tokens(own, batch):
    selector, tokens = (build(f"{own}:{n}") for n in ("Selector", "Tokens"))
    assert (selector.kind, selector.columns) == ("select", ("num_tokens",))
    decision = tokens.decide(batch)
    assert decision.token_weight_T == pytest.approx(np.exp(batch.old_log_prob_T))
    assert decision.weight_N == pytest.approx(np.full(8, np.exp(-0.5)))


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        ("Raises", r"Raises.weights raised IndexError: .* \(mine.py:25\)"),
        ("Text", "Text.weights returned str, not an array of numbers"),
        ("Short", r"returned shape \(3,\), not \(8,\)"),
        ("Negative", "returned -1.0; weights are finite and ≥ 0"),
        ("ShortDecision", r"returned shape \(3,\), not \(8,\)"),
        ("Blind", "names no token column in 'columns'"),
    ],
)
def test_own_weights_are_checked(own, cls, words):
    columns = exact_step([1, 2], 4)
    if cls == "Blind":
        del columns["old_log_probs"]
    with pytest.raises(StrategyError, match=words) as caught:
        build(f"{own}:{cls}").decide(from_columns(columns))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        ("Favor", "has no class 'Favor' (did you mean 'Favour'?)"),
        ("NoMethod", "needs a method weights(self, batch)"),
        ("function", "needs a method weights(self, batch)"),
        ("Init", "defines __init__; write its parameters as fields"),
        ("Mutable", "mutable default"),
        ("NoDefault", "field 'alpha' needs a default"),
        ("OddKind", "kind='selekt' is not allowed; it is select or reweight"),
        ("OneColumn", "columns must be a tuple of names"),
    ],
)
def test_own_classes_are_checked(own, cls, words):
    assert words in refused([f"{own}:{cls}"])


def test_own_files_are_checked(own, tmp_path):
    assert "does not exist" in refused([f"{tmp_path / 'other.py'}:Mine"])
    assert f"write {own}:ClassName" in refused([str(own)])
    broken = tmp_path / "broken.py"
    for text, words in (
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
    ):
        broken.write_text(text)
        message = refused([f"{broken}:Mine"])
        assert "does not import" in message
        assert words in message


def test_own_strategies_replay_beside_presets(own, bundled):
    chosen = strategies_from(["dapo", f"{own}:Favour"], [])
    result = dfsim.replay(bundled, chosen, resamples=2)
    assert list(result.strategies) == ["none", "dapo", f"{own}:Favour"]
    assert result.strategies[f"{own}:Favour"].estimates["weight_max"].mean == 1.5


def test_a_strategy_is_built_by_name_or_as_it_is(bundled):
    built = build("maxvar", {"keep_frac": 0.25})
    result = dfsim.replay(bundled, [built, "dapo"], resamples=2)
    assert result.strategies["maxvar"].params["keep_frac"] == 0.25
    assert result.strategies["maxvar"].estimates["kept_frac"].mean == 0.25
