"""What sentences of a comparison may claim, and tables as people really write them."""

from __future__ import annotations

import polars as pl
import pytest
from runs_made import long_of, of, runs, written
from said import printed, refused

import dfsim
from dfsim.sim.compare.judge import Standard
from dfsim.sim.compare.result import CellResult
from dfsim.sim.compare.verdict import _ranks
from dfsim.sim.stats.ranks import RankStability

GOOD = runs({"none": 0, "a": 1}, seeds=4)


def said(frame, **options):
    return " ".join(dfsim.compare(frame, resamples=200, **options).cells[0].sentences)


def fewer(frame, method, seeds):
    return frame.filter((pl.col("method") != method) | (pl.col("seed") <= seeds))


def test_the_smallest_p_is_that_of_the_seeds_named():
    """2^(1−5) = .0625 belongs to five seeds, though another method has three."""
    text = said(fewer(runs({"none": 0, "a": 0, "b": 0}, seeds=5), "b", 3))
    assert "Five seeds could not have shown a difference" in text
    assert "is 0.062" in text


def test_a_claim_that_sign_flips_do_not_share_rests_on_normality():
    """3, 3.1, 2.9, 3, 3.05, −.05: t = 4.9 and p .0045, but flipping −.05 makes 4 of 64 as far."""
    gains = [3.0, 3.1, 2.9, 3.0, 3.05, -0.05]
    rows = [
        {"method": method, "seed": s, "x": 50.0 + s + (gain if method == "a" else 0.0)}
        for s, gain in enumerate(gains)
        for method in ("none", "a")
    ]
    result = dfsim.compare(pl.DataFrame(rows), resamples=200)
    a = of(result, "a")
    assert a.overall.p == pytest.approx(0.0045, abs=0.0005)
    assert a.overall.p_sign_flip == pytest.approx(4 / 64)
    assert (a.verdict, a.reason) == ("above", "if differences are normal")
    text = " ".join(result.cells[0].sentences)
    assert "rests on normal differences for a: sign flips" in text
    assert "give p 0.062." in text


def test_a_claim_from_few_seeds_says_so_beside_one_from_many():
    frame = fewer(runs({"none": 0, "few": 30, "many": 30}, seeds=8, noise=0.3), "few", 3)
    text = said(frame)
    assert "Three seeds can't show that of few without assuming normal" in text
    assert "if differences are normal" in text.split("Benchmark by benchmark")[1]


@pytest.mark.parametrize(("alpha", "covers"), [(0.001, "99.9%"), (0.05, "95%"), (0.5, "50%")])
def test_an_interval_says_what_it_covers(alpha, covers):
    assert f"({covers} " in said(runs({"none": 0, "a": 30}, seeds=9, noise=0.2), alpha=alpha)


def test_seeds_needed_are_said_to_be_uncorrected():
    more = "Correction for so many methods takes more."
    assert more not in said(GOOD)
    assert more in said(runs({"none": 0, "a": 1, "b": 1}, seeds=4))


def cell_of(*found):
    return CellResult({}, "none", (), (), {}, (), (), found, None, None)


def test_the_weakest_of_three_orders_is_judged_as_the_weakest_of_three():
    """Three looks at level .05 each take .05/3: p .04 is no finding, .01 is."""
    by = Standard(1.0, 0.05, 0.8, 100, 0)
    other = RankStability("d", "the overall without d", 0.5, 0.5, 1, 0.5, 1, 0.5, left_out="d")
    for p, rare in ((0.04, False), (0.01, True)):
        weak = RankStability("e", "the overall without e", -0.5, p, 1, 0.5, 1, 0.5, left_out="e")
        (text,) = _ranks(cell_of(other, weak, other), by)
        assert ("rarely" in text) is rare


def test_the_order_that_is_not_defined_is_the_equal_one():
    nan = float("nan")
    rank = RankStability("six", "the mean of all", nan, nan, 3, 0.5, 0, 1)
    (text,) = _ranks(cell_of(rank), Standard(1.0, 0.05, 0.8, 100, 0))
    assert text == "The order of methods by the mean of all is not defined: all are equal."


@pytest.mark.parametrize(
    "column",
    ["_step", "_timestamp", "Unnamed: 0", "column_0", "x0_std", "x0 stderr", "val/x0/acc/std@16"],
)
def test_what_is_no_score_is_set_aside(column):
    result = dfsim.compare(GOOD.with_columns(pl.lit(7.0).alias(column)), resamples=200)
    assert result.settings["metrics"] == ["x0", "x1", "x2"]
    assert column in " ".join(result.notes)
    both = dfsim.compare(
        GOOD.with_columns(pl.lit(7.0).alias(column)), metrics=["x0", column], resamples=200
    )
    assert both.settings["metrics"] == ["x0", column]


@pytest.mark.parametrize("form", ["{}%", "{} ± 0.3", "1,{}", "{} (0.2)"])
def test_scores_written_for_people_are_refused(tmp_path, form):
    values = [form.format(round(v, 2)) for v in GOOD["x1"].to_list()]
    line = refused("compare", written(tmp_path, GOOD.with_columns(pl.Series("x1", values))))
    for part in ("runs.csv:2", "'x1' holds", "no plain number", "--by x1"):
        assert part in line


def test_a_setting_in_percent_still_separates_cells():
    both = [GOOD.with_columns(share=pl.lit(s)) for s in ("25%", "50%")]
    assert dfsim.compare(pl.concat(both), resamples=200).settings["by"] == ["share"]


def test_a_row_of_means_is_no_seed(tmp_path):
    text = GOOD.with_columns(pl.col("seed").cast(pl.String))
    means = text.filter(pl.col("seed") == "1").with_columns(seed=pl.lit("mean"))
    line = refused("compare", written(tmp_path, pl.concat([text, means])))
    assert "seed=mean is no run" in line


def test_blank_lines_are_no_rows(tmp_path):
    path = written(tmp_path, GOOD)
    path.write_text(path.read_text() + "\n\n")
    assert dfsim.compare(path, resamples=100).runs["rows"] == 8


@pytest.mark.parametrize("name", ["seed", "method", "__run"])
def test_a_benchmark_called_as_a_column_is_refused(tmp_path, name):
    long = long_of(GOOD, ["x0", "x1"]).with_columns(pl.col("benchmark").replace("x1", name))
    assert f"holds '{name}'" in refused("compare", written(tmp_path, long))


def test_equal_differences_never_pass_as_equivalent():
    same = dfsim.compare(runs({"none": 0, "a": 0}, noise=0), resamples=200)
    assert of(same, "a").verdict == "open"


def test_control_characters_stay_off_the_terminal(tmp_path):
    """A method, a benchmark and a cell that would colour the terminal or break the line."""
    evil = "x\x1b[31m\ny\u202e"
    frame = GOOD.rename({"x0": evil}).with_columns(
        method=pl.col("method").replace("a", evil), cell=pl.lit(evil)
    )
    two = pl.concat([frame, frame.with_columns(cell=pl.lit("other"))])
    long = long_of(GOOD, ["x1", "x2"]).with_columns(pl.col("benchmark").replace("x1", evil))
    for table in (two, long):
        shown = printed("compare", written(tmp_path, table), "--resamples", "100")
        assert not [c for c in shown if not c.isprintable() and c != "\n"]
        assert r"x␛[31m y\u202e" in shown


def test_a_long_name_gives_way_to_numbers(tmp_path):
    name = "a_method_with_a_name_" * 5
    frame = GOOD.with_columns(method=pl.col("method").replace("a", name))
    shown = printed("compare", written(tmp_path, frame), "--resamples", "100")
    c = of(dfsim.compare(frame, resamples=100), name).overall
    assert "verdict" in shown
    ends = f"{c.low:+.2f} … {c.high:+.2f}", f"{c.boot_low:+.2f} … {c.boot_high:+.2f}"
    for end in ends:
        assert end.replace("-", "−") in shown


def test_a_narrow_line_drops_the_bootstrap_and_cuts_no_number(tmp_path):
    from rich.console import Console

    from dfsim.reports.compare.tables import print_compare

    result = dfsim.compare(GOOD, resamples=100)
    lines = {}
    for width in (80, 100):
        out = Console(width=width, record=True, file=(tmp_path / "o").open("w"))
        print_compare(result, out)
        lines[width] = out.export_text()
    table = lines[80].split("\nmethod ")[1].split("mean score")[0]
    assert "verdict" in table
    assert "open" in table
    assert table.count("…") == 1  # of the interval
    assert "bootstrap" in lines[100]
