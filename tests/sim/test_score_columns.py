"""compare averages scores only: what is set aside, by name and by behaviour."""

from __future__ import annotations

import polars as pl
import pytest

from dfsim.sim.compare.score_columns import check_scales, is_counter, score_columns
from dfsim.traces.errors import DfsimError


def table(**columns):
    """Two methods by three seeds, and columns of six values."""
    return pl.DataFrame({"method": list("aaabbb"), "seed": [0, 1, 2] * 2, **columns})


def scores(frame):
    notes: list[str] = []
    found = score_columns(frame, ["method", "seed"], ["method"], notes)
    (note,) = notes
    return found, note


ACC = [0.41, 0.44, 0.39, 0.47, 0.45, 0.48]


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("step", [100] * 6, "settings and counters"),
        ("ckpt_step", [1, 2, 3, 4, 5, 6], "settings and counters"),
        ("run_id", [9, 8, 7, 6, 5, 4], "settings and counters"),
        ("acc_std", [0.01, 0.02, 0.01, 0.03, 0.02, 0.01], "spread"),
        ("train_reward", [0.6, 0.7, 0.6, 0.7, 0.8, 0.7], "training"),
        ("num_correct", [41, 44, 39, 47, 45, 48], "counts"),
        ("eval_loss", [1.2, 1.1, 1.3, 1.0, 0.9, 1.1], "better when low, or no quality"),
        ("truncation_rate", [0.2, 0.1, 0.3, 0.2, 0.1, 0.2], "better when low, or no quality"),
        ("response_tokens", [900, 800, 700, 950, 870, 910], "better when low, or no quality"),
        ("format_rate", [0.9, 0.8, 0.9, 0.95, 0.9, 0.85], "how answers are written"),
        ("baseline_acc", [0.3] * 6, "constant"),
        ("points", [4.1, 4.4, 3.9, 47.0, 45.0, 4.8], "another scale"),
        ("never", [None] * 6, "empty"),
    ],
)
def test_what_is_no_score_is_set_aside_and_said(name, values, why):
    found, note = scores(table(acc=ACC, **{name: pl.Series(values, dtype=pl.Float64)}))
    assert found == ("acc",)
    assert f"{name} ({why})" in note


def test_a_count_under_another_name_is_a_fixed_multiple_of_a_score():
    counts = [26, 28, 25, 30, 29, 31]
    found, note = scores(table(solved=counts, acc=[count / 64 for count in counts]))
    assert found == ("acc",)
    assert "solved (counts)" in note


def test_a_rate_that_names_a_quality_is_a_score():
    found, _ = scores(table(success_rate=ACC, solve_rate=ACC[::-1], win_rate=[0.5, *ACC[1:]]))
    assert found == ("success_rate", "solve_rate", "win_rate")


def test_benchmarks_that_are_known_stay_though_their_scales_differ():
    found, _ = scores(table(aime24=[2.0, 3, 2, 3, 4, 3], math500=[80.0, 81, 79, 84, 83, 85]))
    assert found == ("aime24", "math500")


def test_a_table_of_losses_alone_is_compared_by_them():
    found, _ = scores(table(eval_loss=[1.2, 1.1, 1.3, 1.0, 0.9, 1.1]))
    assert found == ("eval_loss",)


def test_a_table_without_a_score_is_one_line():
    with pytest.raises(DfsimError, match="metrics"):
        scores(table(step=[1] * 6))


def test_scores_that_a_user_names_must_share_a_scale():
    frame = table(acc=ACC, points=[41.0, 44, 39, 47, 45, 48])
    with pytest.raises(DfsimError, match="another scale"):
        check_scales(frame, ["acc", "points"])
    check_scales(frame, ["acc"])


@pytest.mark.parametrize("name", ["global_step", "epoch", "_runtime", "Unnamed: 0", "wandb_id"])
def test_counters_go_by_their_names(name):
    assert is_counter(name)


@pytest.mark.parametrize("name", ["acc", "gsm8k", "pass_at_1", "update_quality"])
def test_scores_are_no_counters(name):
    assert not is_counter(name)
