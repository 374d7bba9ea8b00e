"""Names of strategies, taken apart and put together again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfsim.strategies.spec import Spec

WORD = st.text("abcxyz_019", min_size=1, max_size=6)
POINT = st.lists(st.tuples(WORD, st.sampled_from(["0.5", "1e-3", "first"])), max_size=2).map(
    lambda pairs: ",".join(f"{name}={value}" for name, value in pairs)
)
NAMED = st.builds(Spec, WORD, variant=st.one_of(st.just(""), WORD), point=POINT)
FILED = st.builds(
    Spec,
    WORD,
    file=st.sampled_from(["a.py", "./rules/a b.py", "/x+y/my.py", "../[old]/q.py"]),
    point=POINT,
)


@st.composite
def chains(draw):
    parts = draw(st.lists(st.one_of(NAMED, FILED), min_size=1, max_size=3))
    chain = None
    for part in reversed(parts):
        chain = replace(part, then=chain)
    return parts, chain


@settings(max_examples=500, deadline=None, derandomize=True)
@given(chains())
def test_a_printed_chain_reads_back_part_by_part(case):
    parts, chain = case
    assert Spec.parse(str(chain)) == chain
    assert list(Spec.parse(str(chain))) == parts


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text("ab+@:[]=.py/ ", max_size=14))
def test_any_text_is_taken_and_given_back(text):
    assert str(Spec.parse(text)) == text


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("maxvar", [Spec("maxvar")]),
        ("gfpo@paper", [Spec("gfpo", "paper")]),
        ("maxvar[keep_frac=0.5]", [Spec("maxvar", point="keep_frac=0.5")]),
        ("dump_ucb+maxvar", [Spec("dump_ucb"), Spec("maxvar")]),
        ("rules/my.py:Mine", [Spec("Mine", file="rules/my.py")]),
        ("/a+b/my.py:Mine+topk", [Spec("Mine", file="/a+b/my.py"), Spec("topk")]),
        ("tscl+my.py:Mine[k=1]", [Spec("tscl"), Spec("Mine", file="my.py", point="k=1")]),
        ("my.py", [Spec("", file="my.py")]),
        ("a@b@c", [Spec("a@b@c")]),  # no name of any strategy
    ],
)
def test_goldens(name, parts):
    assert list(Spec.parse(name)) == parts


def test_what_is_equal_on_every_machine():
    spec = Spec.parse("/home/me/pool.py:Pool[k=2]+rules/my.py:Mine")
    assert str(spec.short) == "pool.py:Pool[k=2]+my.py:Mine"
    assert str(spec.unswept.short) == "pool.py:Pool+my.py:Mine"
    assert spec.files == (Path("/home/me/pool.py"), Path("rules/my.py"))
    assert str(spec.inside(Path("/to"))) == "/home/me/pool.py:Pool[k=2]+/to/rules/my.py:Mine"


@pytest.mark.parametrize(
    ("prefix", "owner"),
    [
        ("gfpo", 0), ("gfpo@paper", 0), ("gfpo@asrun", None), ("Mine", 1), ("my.py:Mine", 1),
        ("/x/my.py:Mine", 1), ("my.py", None), ("", None),
    ],
)  # fmt: skip
def test_a_parameter_belongs_to_the_part_that_its_prefix_names(prefix, owner):
    parts = list(Spec.parse("gfpo@paper+/x/my.py:Mine"))
    assert [part.owns(prefix) for part in parts] == [owner == 0, owner == 1]
