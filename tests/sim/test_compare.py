"""``dfsim compare`` as a user meets it: tables in, sentences, numbers and files out."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from runs_made import long_of, of, runs, written
from said import printed, run

import dfsim

SIX = ("math500", "aime24", "olympiadbench", "minerva_math", "gsm8k", "gpqa_diamond")
DOMAINS = {
    "math": ("math500", "aime24", "olympiadbench", "minerva_math", "gsm8k"),
    "logic": ("kk_hard", "bbh_logical_deduction", "bbh_tracking", "zebra_logic_mc"),
    "science": ("gpqa_diamond", "mmlu_pro_chemistry", "mmlu_pro_physics"),
}
MAIN = {"campaign": ["main"], "model": ["Qwen2.5-7B-Instruct"]}


@pytest.fixture(scope="module")
def published(shared):
    return shared / "dataflex_rl_all_runs_171.csv"


@pytest.fixture(scope="module")
def main(published):
    return dfsim.compare(published, where=MAIN)


def plain(text):
    return " ".join(text.split())


def test_published_means_are_the_files(published, main):
    frame = pl.read_csv(published).filter(
        (pl.col("campaign") == "main") & (pl.col("model") == "Qwen2.5-7B-Instruct")
    )
    slow = frame.group_by("method").agg(pl.col(pl.Float64).mean())
    assert len(main.cells[0].methods) == 9
    for row in slow.rows(named=True):
        found = of(main, row["method"])
        for metric in sum(DOMAINS.values(), ()):
            assert found.means[metric] == pytest.approx(row[metric])
        balanced = np.mean([np.mean([row[m] for m in d]) for d in DOMAINS.values()])
        assert found.mean == pytest.approx(balanced)


def test_published_separates_nothing(main):
    (cell,) = main.cells
    assert {m.verdict for m in cell.compared} == {"open"}
    assert all(m.overall.p_holm > 0.05 for m in cell.compared)
    assert {m.overall.p_sign_flip_min for m in cell.compared} == {0.25}
    assert not [c for c in cell.comparisons if c.p_holm <= 0.05]


def test_published_ranks_reverse_as_noise_does(main):
    """−1/3, .899 and 3.312, P .15 and .43 were first computed apart from this code."""
    rank = main.cells[0].ranks[0]
    assert (rank.first, rank.second) == ("DataFlex-RL's six", "the domain-balanced twelve")
    assert rank.correlation == pytest.approx(-1 / 3, abs=1e-9)
    assert (rank.spread_first, rank.spread_second) == pytest.approx((0.8986, 3.3124), abs=1e-4)
    assert (rank.p, rank.p_spread_second) == pytest.approx((0.15, 0.43), abs=0.02)


def test_published_sentences(published):
    said = plain(
        printed(
            "compare", published, "--where", "campaign=main", "--where", f"model={MAIN['model'][0]}"
        )
    )
    for part in (
        "27 of 171 rows, those with campaign=main, model=Qwen2.5-7B-Instruct",
        "Nothing is separated from baseline after correction (eight methods, Holm",
        "Three seeds could not have shown a difference without assuming normal differences: the "
        "smallest p a sign-flip can give is 0.25.",
        "correlates −0.33",
        "noise alone reverses them that often",
        "set aside: steps (settings",
    ):
        assert part in said


def test_the_whole_published_table(published):
    result = dfsim.compare(published, resamples=200)
    assert len(result.cells) == 12
    assert {m.verdict for c in result.cells for m in c.compared} <= {"open", "equivalent"}
    assert not [c for cell in result.cells for c in cell.comparisons if c.p_holm <= 0.05]
    baselines = {c.name["campaign"]: c.baseline for c in result.cells}
    assert baselines["mixer"] == "static"
    assert baselines["main"] == "baseline"


def test_a_rounded_step_is_no_precision(published):
    """−3.3, −3.4, −3.4 on aime24's 30 problems: one problem thrice, which t takes for a wonder."""
    result = dfsim.compare(
        published,
        where={"campaign": ["constrained"], "regime": ["sub25_25pct_data_subset"]},
        metrics=["aime24"],
    )
    found = of(result, "difffilter").overall
    assert found.test == "sign-flip"
    assert (found.p, found.difference) == (0.25, pytest.approx(-3.3667, abs=1e-4))


def test_wide_and_long_say_the_same(tmp_path):
    frame = runs({"baseline": 0, "a": 1, "b": 2}, seeds=4)
    long = long_of(frame, ["x0", "x1", "x2"]).with_columns(
        stderr=pl.int_range(pl.len()) * 0.1, domain=pl.col("benchmark") + "!"
    )
    results = [dfsim.compare(f, resamples=200) for f in (frame, long)]
    wide, other = (r.to_dict()["cells"] for r in results)
    assert wide == other
    assert "Long form: benchmarks in column 'benchmark', scores in 'score'" in results[1].notes[0]
    assert "domain, stderr" in results[1].notes[0]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_file_kinds(tmp_path, kind):
    frame = runs({"none": 0, "a": 1})
    path = tmp_path / f"runs.{kind}"
    {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[kind](
        path
    )
    found = dfsim.compare(path, resamples=200).to_dict()["cells"]
    assert found == dfsim.compare(frame, resamples=200).to_dict()["cells"]


def test_the_table_that_live_runs_write(tmp_path):
    gsm8k, aime = "val-core/openai/gsm8k/acc/mean@1", "val-core/aime24/acc/mean@32"
    frame = runs({"baseline": 0, "maxvar": 0.1}, metrics=2, noise=0.01, centre=0.5)
    frame = frame.rename({"x0": gsm8k, "x1": aime}).with_columns(steps=300, train_reward=0.7)
    result = dfsim.compare(written(tmp_path, frame))
    assert result.settings["metrics"] == [gsm8k, aime]
    assert result.settings["margin"] == 0.01
    assert result.settings["metrics"] == [gsm8k, aime]
    assert all(name in " ".join(result.notes) for name in ("steps", "train_reward"))


def test_a_difference_that_is_there_is_found():
    result = dfsim.compare(runs({"none": 0, "good": 2, "bad": -2, "same": 0}, seeds=20, noise=0.3))
    verdicts = {m.name: m.verdict for m in result.cells[0].methods}
    assert verdicts == {"none": "baseline", "good": "above", "bad": "below", "same": "equivalent"}
    said = " ".join(result.cells[0].sentences)
    assert "good is above none by" in said
    assert (
        "Within 1 point of none by two one-sided t-tests (Holm; if differences are normal): same."
        in said
    )


def test_few_seeds_separate_only_if_normal(tmp_path):
    path = written(tmp_path, runs({"none": 0, "good": 30}, noise=0.5))
    said = plain(printed("compare", path))
    assert "good is above none by" in said
    assert "Three seeds can't show that without assuming normal differences" in said
    assert "above*" in said
    assert "A star: separated if differences are normal" in said


def test_one_seed_says_nothing(tmp_path):
    said = plain(printed("compare", written(tmp_path, runs({"none": 0, "a": 1}, seeds=1))))
    assert "One pair of seeds gives a difference from none and nothing about its noise" in said
    assert "smallest found" not in said


def test_missing_seeds_are_paired_on_the_common_ones():
    frame = runs({"none": 0, "a": 1, "b": 1}, seeds=4)
    frame = frame.filter(~((pl.col("method") == "a") & (pl.col("seed") > 2)))
    frame = frame.with_columns(
        seed=pl.when(pl.col("method") == "b").then(pl.col("seed") + 10).otherwise(pl.col("seed"))
    )
    result = dfsim.compare(frame, resamples=200)
    a, b = of(result, "a"), of(result, "b")
    slow = frame.filter(pl.col("seed") <= 2).group_by("method").mean()
    of_method = {r["method"]: np.mean([r["x0"], r["x1"], r["x2"]]) for r in slow.to_dicts()}
    assert a.overall.seeds == 2
    assert a.overall.difference == pytest.approx(of_method["a"] - of_method["none"])
    assert b.verdict == "not compared"
    assert b.reason == "no seed in common with none"
    assert "a (2 in common, not 3, 4)" in " ".join(result.cells[0].cautions)


def test_missing_scores_are_named_and_dropped():
    frame = runs({"none": 0, "a": 1}, seeds=4)
    hole = (pl.col("method") == "a") & (pl.col("seed") == 2)
    frame = frame.with_columns(x1=pl.when(hole).then(None).otherwise(pl.col("x1")))
    result = dfsim.compare(frame, resamples=200)
    (cell,) = result.cells
    assert "1 score is missing" in cell.cautions[0]
    assert "x1 of a seed 2" in cell.cautions[0]
    pairs = {c.metric: c.seeds for c in cell.comparisons}
    assert pairs == {"x0": 4, "x1": 3, "x2": 4}
    assert of(result, "a").overall.seeds == 3


def test_settings_that_differ_are_named():
    frame = runs({"none": 0, "a": 1}).with_columns(
        steps=pl.when(pl.col("method") == "a").then(400).otherwise(300)
    )
    (caution,) = dfsim.compare(frame, resamples=200).cells[0].cautions
    assert "steps is '300' in 3 runs; '400' in a seed 1, a seed 2, a seed 3" in caution


def test_a_cell_without_a_baseline_is_not_tested():
    both = pl.concat(
        [runs({"none": 0, "a": 1}, model="m"), runs({"a": 0, "b": 1, "c": 1}, model="n")]
    )
    tested, untested = dfsim.compare(both, resamples=200).cells
    assert tested.baseline == "none"
    assert untested.baseline is None
    assert "baseline=" in untested.sentences[0]
    assert untested.compared == []


def test_a_reference_is_shown_and_never_tested(tmp_path):
    untrained = pl.DataFrame([{"method": "untrained", "x0": 10.0, "x1": 20.0, "x2": 30.0}])
    frame = pl.concat([runs({"none": 0, "a": 1}), untrained], how="diagonal_relaxed")
    result = dfsim.compare(frame, reference="untrained", resamples=200)
    (cell,) = result.cells
    assert [m.name for m in cell.methods] == ["none", "a"]
    assert cell.reference_mean == pytest.approx(20)
    gains = cell.to_dict()["reference"]["gains"]
    assert gains["a"] == pytest.approx(of(result, "a").mean - 20)
    assert "reference" in printed("compare", written(tmp_path, frame), "--reference", "untrained")


def test_domains_in_every_spelling(tmp_path):
    path = written(tmp_path, runs({"none": 0, "a": 1}))
    spellings = (
        ("--domains", "p=x0,x1", "--domains", "q=x2"),
        ("--domains", "p=x0,x1 q=x2"),
        ("--domains", "p=x0,x1", "q=x2"),
    )
    found = [json.loads(printed("compare", path, *s, "--json")) for s in spellings]
    assert found[0]["cells"] == found[1]["cells"] == found[2]["cells"]
    assert found[0]["cells"][0]["weights"] == {"x0": 0.25, "x1": 0.25, "x2": 0.5}


def test_where_and_by(tmp_path):
    frame = pl.concat([runs({"none": 0, "a": 1}, model=m, cap="x") for m in ("m", "n")])
    path = written(tmp_path, frame)
    one = json.loads(printed("compare", path, "--where", "model=m,n", "--by", "model", "--json"))
    assert [c["cell"] for c in one["cells"]] == [{"model": "m"}, {"model": "n"}]
    two = json.loads(printed("compare", path, "--where", "model=n", "--json"))
    assert [c["cell"] for c in two["cells"]] == [{}]


def test_the_folder(tmp_path):
    path, out = written(tmp_path, runs({"none": 0, "a": 1})), tmp_path / "out"
    assert f"Written: {out}" in printed("compare", path, "--out", out).replace("\n", "")
    names = {"compare.json", "methods.csv", "comparisons.csv", "means.csv"}
    assert names <= {p.name for p in out.iterdir()}
    assert {"differences_1.png", "differences_1.svg"} <= {p.name for p in out.iterdir()}
    assert json.loads((out / "compare.json").read_text())["cells"][0]["baseline"] == "none"
    assert run("compare", path, "--out", out).exit_code == 2
    assert run("compare", path, "--out", out, "--force").exit_code == 0


def test_json_is_standard_and_repeats(tmp_path):
    path = written(tmp_path, runs({"none": 0, "a": 1, "b": 0}, seeds=2))
    first, again = (printed("compare", path, "--json") for _ in range(2))
    assert first == again
    assert "NaN" not in first
    record = json.loads(first)
    assert set(record) == {
        *("dfsim", "version", "provenance", "runs", "settings", "notes", "cells")
    }


def test_the_table_has_a_row_a_comparison():
    table = dfsim.compare(runs({"none": 0, "a": 1, "b": 2}), resamples=200).table()
    assert table.height == 2 * (1 + 3)
    assert table.filter(pl.col("metric").is_null())["method"].to_list() == ["b", "a"]


def test_a_cell_without_a_score_is_left_out():
    full, empty = runs({"none": 0, "a": 1}, model="m"), runs({"none": 0, "a": 1}, model="n")
    nothing = {f"x{i}": pl.lit(None, pl.Float64) for i in range(3)}
    result = dfsim.compare(pl.concat([full, empty.with_columns(**nothing)]), resamples=200)
    assert [c.name for c in result.cells] == [{"model": "m"}]
    assert "No run has a score in model=n" in " ".join(result.notes)


def test_equal_differences_are_said():
    result = dfsim.compare(runs({"none": 0, "a": 1}, noise=0), resamples=200)
    assert of(result, "a").overall.p == 0.25
    assert "Equal differences at every seed" in " ".join(result.cells[0].cautions)
