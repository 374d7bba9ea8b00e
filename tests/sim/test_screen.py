"""``dfsim screen``: verdicts, claims and agreement on traces made by hand."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest
from conftest import ROOT
from made import solved_trace, trace_of
from said import printed, refused
from scipy import stats
from screens import EVEN, QUICK, named, one_trace, screened, two_sizes, words
from screens import even as even
from screens import own as own

from dfsim.sim.screen.screen import ORDERS
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.synthetic import binary_steps

# Verdicts


def verdicts(trace):
    return {name: row["verdict"] for name, row in trace["strategies"].items()}


def test_verdicts_by_hand(even, own):
    """Eight alike groups: what is kept of them, and how evenly, follows by counting."""
    names = ("Twice", "Positive", "Lopsided", "Keep", "Copy")
    trace = one_trace(
        even, *named("maxvar", *(f"{own}:{n}" for n in names)), "-p", "maxvar.keep_frac=1"
    )
    found = verdicts(trace)
    assert found == {
        "none": "baseline",
        "maxvar": "no_op",
        f"{own}:Twice": "no_op",
        f"{own}:Positive": "care",
        f"{own}:Lopsided": "beaten",
        f"{own}:Keep": "promote",
        f"{own}:Copy": "same",
    }
    rows = trace["strategies"]
    lopsided = rows[f"{own}:Lopsided"]
    # Weights 1 and 3: (Σw)²/Σw² = 32²/80 = ⅘·16, so ⅘ of eight groups; all tokens still train.
    assert lopsided["estimates"]["effective_batch"]["mean"] == pytest.approx(6.4)
    assert lopsided["beaten_by"] == "none"
    assert lopsided["on_front"] is False
    assert lopsided["told_apart"] is True
    assert "by none: [6.4, 6.4] against [8.0, 8.0]" in lopsided["sentence"]
    keep = rows[f"{own}:Keep"]
    assert keep["estimates"]["effective_batch"]["mean"] == pytest.approx(6)
    assert "75% [75%, 75%], from 75% of its tokens; group bias 0.00." in keep["sentence"]
    assert keep["difference"]["mean"] == pytest.approx(-2)
    assert keep["difference"]["claimed"] == -1
    assert f"decides every response as {own}:Keep does" in rows[f"{own}:Copy"]["sentence"]
    assert "one sign only in 100%" in rows[f"{own}:Positive"]["sentence"]
    headings = [part["heading"] for part in trace["shortlist"]]
    assert headings[0] == "Worth a live run"
    assert headings[-1] == "Differences"


def test_a_thin_batch_and_an_empty_one(even, own):
    trace = one_trace(even, *named(f"{own}:Keep"), "-p", "groups=[0, 1, 3, 4, 8]")
    found = {name[-2:-1]: v for name, v in verdicts(trace).items() if name != "none"}
    # Half of eight is four: less is thin, and the sweep's choice does not matter to that.
    assert found == {"0": "thin", "1": "thin", "3": "thin", "4": "not_chosen", "8": "no_op"}


def test_dropping_constant_groups_splits_nothing(tmp_path):
    path = solved_trace(tmp_path, [[1, 2, 0, 4, 3]] * 60, 4).path
    trace = one_trace(path, *named("dapo", "difffilter"), "-p", "difffilter.low=0", "-p",
                      "difffilter.high=1")  # fmt: skip
    assert verdicts(trace)["dapo"] == "splits_nothing"
    assert verdicts(trace)["difffilter"] == "same"
    assert trace["comparison"]["comparisons"] == 0
    assert "no strategy differs anywhere" in trace["shortlist"][-1]["sentences"][0]


def test_a_copy_of_the_baseline_is_the_same_whichever_comes_first(even, own):
    keep, copy = (f"{own}:{n}" for n in ("Keep", "Copy"))
    for names in ((keep, copy), (copy, keep)):
        trace = one_trace(even, *named(*names), "--baseline", copy)
        assert verdicts(trace)[copy] == "baseline"
        assert verdicts(trace)[keep] == "same"


def test_the_chosen_point_is_judged_and_the_others_are_left_out(tmp_path, own):
    path = solved_trace(tmp_path, EVEN, 4).path
    trace = one_trace(path, *named(f"{own}:Keep"), "-p", "groups=[5, 7, 6]")
    (choice,) = trace["choices"]
    assert choice["chosen"].endswith("[groups=7]")
    assert (choice["first_steps"], choice["second_steps"]) == ([1, 27], [34, 60])
    assert (choice["judged"], choice["judged_baseline"]) == pytest.approx((7, 8))
    assert choice["judged_rank"] == 1
    found = {name[-2:-1]: v for name, v in verdicts(trace).items() if name != "none"}
    assert found == {"5": "not_chosen", "7": "promote", "6": "not_chosen"}


def test_a_sweep_of_the_baseline(even, own):
    base = f"{own}:Keep[groups=5]"
    trace = one_trace(even, *named(f"{own}:Keep"), "-p", "groups=[5, 7]", "--baseline", base)
    assert verdicts(trace) == {
        "none": "baseline",
        f"{own}:Keep[groups=7]": "promote",
        base: "baseline",
    }
    assert trace["strategies"][f"{own}:Keep[groups=7]"]["difference"]["mean"] == pytest.approx(2)
    assert trace["choices"][0]["judged_baseline"] == pytest.approx(5)


def test_a_sweep_of_two_parameters_has_every_pair(even):
    params = ("-p", "low=[0, 0.3]", "-p", "high=[0.6, 0.9, 1]")
    trace = one_trace(even, *named("difffilter"), *params)
    (choice,) = trace["choices"]
    pairs = [f"difffilter[low={a},high={b}]" for a in ("0", "0.3") for b in ("0.6", "0.9", "1")]
    assert choice["points"] == pairs
    assert set(trace["strategies"]) == {"none", *pairs}


# Claims


@pytest.mark.parametrize(("steps", "claim"), [(59, False), (60, True)])
def test_no_claim_under_sixty_steps(steps, claim, tmp_path, own):
    path = solved_trace(tmp_path, EVEN[:steps], 4).path
    args = (path, *named(f"{own}:Keep"))
    trace = one_trace(*args)
    assert trace["comparison"]["steps"] == steps
    difference = trace["strategies"][f"{own}:Keep"]["difference"]
    assert (difference["claimed"] != 0) is claim
    assert (difference["low"] is not None) is claim
    assert difference["mean"] == pytest.approx(-2)
    text = words(printed("screen", *args, *QUICK))
    assert ("No claim that any two differ" in text) is not claim
    assert (f"{steps} steps where all have a value, 60 are needed" in text) is not claim
    assert ("-2.00*" in text or "±0.00*" in text) is claim


def test_above_and_below_mirror_each_other():
    rows = one_trace(ROOT / "traces")["strategies"]
    claims = [(a, b) for a, row in rows.items() for b in row["difference"]["above"]]
    assert claims
    assert sorted(claims) == sorted(
        (a, b) for b, row in rows.items() for a in row["difference"]["below"]
    )


@pytest.mark.parametrize("by", ORDERS)
def test_rows_are_ordered_by_any_estimator(by):
    trace = one_trace(ROOT / "traces", *named("maxvar", "softmax", "gfpo", "ar"), "--by", by)
    values = [row["estimates"][by]["mean"] for row in trace["strategies"].values()]
    known = [v for v in values if v is not None]
    least_first = by in ("group_bias", "one_sided_frac", "trained_token_frac", "weight_max")
    assert known == sorted(known, reverse=not least_first)
    assert values[: len(known)] == known  # what can't be estimated comes last
    assert [row["rank"] for row in trace["strategies"].values()] == [1, 2, 3, 4, 5]
    assert by in trace["shortlist"][-1]["sentences"][0]


# What a trace lacks


def test_what_cannot_run_is_listed_with_its_reason(tmp_path):
    path = solved_trace(tmp_path, [[1, 2, 0]], 4, drop=("old_log_probs",)).path
    trace = one_trace(path)
    assert set(trace["cannot_run"]) == {"ar", "ar@paper"}
    assert "old_log_probs" in trace["cannot_run"]["ar"]
    assert set(trace["strategies"]) == set(WEIGHING) - {"ar", "ar@paper"}
    text = printed("screen", path, *QUICK)
    assert "Can't run here" in text
    assert "ar, ar@paper: needs column 'old_log_probs'" in words(text)
    line = refused("screen", path, "-s", "ar")
    assert "--map old_log_probs=" in line
    line = refused("screen", path, *named("ar", "maxvar"), "--baseline", "ar")
    assert "--baseline ar can't run" in line


def test_unknown_lengths_count_responses(tmp_path, own):
    drop = ("num_tokens", "old_log_probs")
    path = solved_trace(tmp_path, EVEN[:3], 4, drop=drop).path
    trace = one_trace(path, *named(f"{own}:Keep", f"{own}:Lopsided"))
    assert verdicts(trace) == {
        "none": "baseline",
        f"{own}:Keep": "promote",  # six of eight groups
        f"{own}:Lopsided": "unclear",  # fewer effective groups from all responses, in three steps
    }
    assert "from 75% of its responses" in trace["strategies"][f"{own}:Keep"]["sentence"]
    sentence = trace["strategies"][f"{own}:Lopsided"]["sentence"]
    assert "[6.4, 6.4] against [8.0, 8.0], responses 100% against 100%" in sentence
    headings = [part["heading"] for part in trace["shortlist"]]
    assert headings[0] == "On the front of these few steps, too few for a claim"
    assert "No better than another, but not told apart from it" in headings
    assert "Lengths are unknown" in words(printed("screen", path, "-s", "topk", *QUICK))


@pytest.mark.parametrize(
    "solved", [[[0, 4, 0]] * 60, [[4]] * 60, [[0]]], ids=["constant", "one_group", "one_step"]
)
def test_rewards_that_never_differ_recommend_nothing(solved, tmp_path):
    path = solved_trace(tmp_path, solved, 4).path
    trace = one_trace(path)
    assert set(verdicts(trace).values()) <= {
        "baseline",
        "no_op",
        "splits_nothing",
        "same",
        "no_signal",
    }
    text = printed("screen", path, *QUICK)
    assert "nan" not in text
    assert "dfsim promote" not in text
    assert "leads" not in text


def test_an_effective_batch_that_cannot_be_estimated_is_no_advice(tmp_path):
    """verl then divides by what no trace holds."""
    config = {"loss_agg_mode": "seq-mean-token-sum-norm"}
    path = solved_trace(tmp_path, [[1, 2, 3, 0]] * 60, 4, config=config).path
    trace = one_trace(path, *named("maxvar", "softmax"))
    assert set(verdicts(trace).values()) == {"baseline", "no_signal"}
    assert trace["comparison"]["no_claim"] is not None
    text = words(printed("screen", path, *named("maxvar", "softmax"), *QUICK))
    assert "no strategy differs" not in text
    assert "nan" not in text
    assert "can be estimated" in text


def test_a_table_of_pass_rates_is_screened(tmp_path):
    """One step, groups of several sizes, no lengths."""
    table = tmp_path / "rates.csv"
    table.write_text("prompt_id,domain,num_correct,num_samples\na,x,1,4\nb,x,4,4\nc,y,2,8\n")
    printed("import", table, "--out", tmp_path / "t")
    text = words(printed("screen", tmp_path / "t", *QUICK))
    assert "No claim" in text
    assert "1 steps where all have a value" in text
    assert "lengths unknown" in text


def test_one_mixed_group_a_step(tmp_path):
    trace = one_trace(solved_trace(tmp_path, [[1]] * 60, 4).path)
    assert trace["strategies"]["none"]["estimates"]["effective_batch"]["mean"] == pytest.approx(1)
    assert "nan" not in words(printed("screen", tmp_path, *QUICK))


# Several traces


def test_orders_of_two_traces_by_hand(tmp_path, own):
    """Four points turn round, none stays first: d = 0, 3, 1, 1, 3, so ρ = 1 − 6·20/(5·24) = 0."""
    paths = two_sizes(tmp_path)
    record = screened(*paths, *named(f"{own}:Turned"), "-p", "groups=[1, 2, 3, 4]")
    (pair,) = record["agreement"]
    assert pair["traces"] == [str(p) for p in paths]
    assert pair["strategies"] == 5
    assert pair["spearman"] == pytest.approx(0, abs=1e-12)
    assert pair["p"] == pytest.approx(1)


def test_rank_agreement_is_spearman_s_with_an_exact_p(tmp_path, own):
    """Three in the same order: one of six orders agrees so, one is reversed, hence p = ⅓."""
    paths = two_sizes(tmp_path)
    args = (*paths, *named(f"{own}:Keep"), "-p", "groups=[2, 4]")
    (pair,) = screened(*args)["agreement"]
    assert (pair["strategies"], pair["spearman"]) == (3, pytest.approx(1))
    assert pair["p"] == pytest.approx(1 / 3)
    text = words(printed("screen", *args, *QUICK))
    assert "rank 3 strategies with a correlation of 1.00" in text


def test_rank_agreement_against_scipy(tmp_path):
    rates = ({"a": 0.2, "b": 0.6}, {"a": 0.85})
    paths = [
        trace_of(tmp_path / str(i), binary_steps(r, steps=4, groups_per_domain=6, n=6, seed=i)).path
        for i, r in enumerate(rates)
    ]
    names = ("maxvar", "topk", "softmax", "per", "difffilter", "gfpo")
    record = screened(*paths, *named(*names))
    values = [
        [t["strategies"][n]["estimates"]["effective_batch_low"]["mean"] for n in ("none", *names)]
        for t in record["traces"]
    ]
    rounded = [[round(v, 9) for v in side] for side in values]
    (pair,) = record["agreement"]
    expected = stats.spearmanr(*rounded).statistic
    assert pair["spearman"] == pytest.approx(expected)
    ranks = [stats.rankdata(side) for side in rounded]
    every = [
        np.corrcoef(order, ranks[1])[0, 1] for order in itertools.permutations(ranks[0].tolist())
    ]
    above, below = (
        np.mean([sign * r >= sign * expected - 1e-9 for r in every]) for sign in (1, -1)
    )
    assert pair["p"] == pytest.approx(min(1, 2 * min(above, below)))


def test_two_shared_strategies_say_nothing_of_order(tmp_path):
    paths = two_sizes(tmp_path)
    record = screened(*paths, "-s", "topk")
    (pair,) = record["agreement"]
    assert (pair["strategies"], pair["spearman"], pair["p"]) == (2, None, None)
    assert "too few to compare their orders" in words(
        printed("screen", *paths, "-s", "topk", *QUICK)
    )


def test_three_traces_make_three_pairs(tmp_path, even):
    paths = [*two_sizes(tmp_path), even]
    record = screened(*paths, *named("topk", "maxvar", "per"))
    assert len(record["traces"]) == len(record["agreement"]) == 3
    assert len({tuple(pair["traces"]) for pair in record["agreement"]}) == 3


def test_a_trace_does_not_agree_with_itself(even, tmp_path):
    shutil.copytree(even, tmp_path / "copy")
    for other in (even, tmp_path / "copy"):
        assert "hold the same run" in refused("screen", even, other, "-s", "topk")
