"""Replay: the shape of its result, and numbers whose truth is known without it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made import ESTIMATORS, frame_of, solved_trace, trace_of

import dfsim
from dfsim.sim.estimators import CATALOG
from dfsim.sim.estimators.aggregation import LOSS_AGG_MODES
from dfsim.strategies.build import build
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.errors import DfsimError, StrategyError, TraceError
from dfsim.traces.storage.files import sha256_of
from dfsim.traces.storage.manifest import FileEntry, read_manifest, write_manifest
from dfsim.traces.storage.store import open_trace
from dfsim.traces.synthetic import binary_steps, expected_live_frac

NUMBERS = ("mean", "low", "high", "future_low", "future_high")
WITH_LENGTHS = {
    "num_tokens",
    "kept_token_frac",
    "ess_tokens",
    "trained_token_frac",
    "wasted_token_frac",
}


def estimates_of(trace, strategy="none", **options):
    options.setdefault("resamples", 2)
    return dfsim.replay(trace, [strategy], **options).strategies[strategy].estimates


def findings(result, name):
    return {d.name: d for d in result.strategies[name].diagnosis}


@pytest.fixture(scope="module")
def all_presets(bundled):
    return dfsim.replay(bundled, list(WEIGHING), resamples=20)


@pytest.fixture(scope="module")
def rates():
    return {"hard": 0.1, "middling": 0.5, "easy": 0.9}


@pytest.fixture(scope="module")
def binary(tmp_path_factory, rates):
    steps = binary_steps(rates, steps=40, groups_per_domain=25, n=6, seed=3)
    return trace_of(tmp_path_factory.mktemp("binary"), steps)


# The record


def test_json_has_the_shape_of_the_issue(all_presets, bundled):
    record = json.loads(json.dumps(all_presets.to_dict(), allow_nan=False))
    assert {"dfsim", "trace", "loss_agg_mode", "strategies"} <= set(record)
    assert set(record) - {"dfsim", "trace", "loss_agg_mode", "strategies"} == {
        "settings",
        "findings",
        "notes",
    }
    assert record["dfsim"] == dfsim.__version__
    counted = {"steps": 60, "responses": 11520, "groups": 1440, "domains": 3}
    named = {"path", "fingerprint", "steps", "responses", "groups", "tokens", "domains"}
    assert set(record["trace"]) == named | {"label"}
    for name, count in counted.items():
        value = record["trace"][name]
        assert (len(value) if isinstance(value, list) else value) == count
    assert list(record["strategies"]) == list(WEIGHING)
    for name, strategy in record["strategies"].items():
        assert {*strategy} == {"kind", "params", "estimates", "by_domain", "by_phase", "diagnosis"}
        assert set(strategy["by_domain"]) == set(bundled.manifest.domains)
        assert set(strategy["by_phase"]) == {"early", "middle", "late"}
        assert strategy["params"] == build(name).params
        tables = [strategy["estimates"]]
        tables += [*strategy["by_domain"].values(), *strategy["by_phase"].values()]
        for table in tables:
            assert list(table) == ESTIMATORS
            for estimate in table.values():
                assert set(estimate) == {*NUMBERS, "steps", "nan_steps", "reason"}
                missing = [n for n in NUMBERS if estimate[n] is None]
                assert bool(missing) == bool(estimate["reason"])
        for finding in strategy["diagnosis"]:
            assert set(finding) - {"remedy"} == {"name", "message", "evidence"}
            assert "nan" not in finding["message"].lower().split()


def test_estimators_are_those_of_the_design():
    assert list(CATALOG) == ESTIMATORS


def test_none_comes_first_and_once(bundled):
    for asked in (["dapo", "none"], ["none", "dapo"], ["dapo"]):
        assert list(dfsim.replay(bundled, asked, resamples=2).strategies) == ["none", "dapo"]


def test_tables_hold_what_json_holds(all_presets):
    table = all_presets.table()
    assert table.shape[0] == len(WEIGHING) * len(ESTIMATORS)
    row = table.filter(strategy="maxvar", estimator="signal_scale").row(0, named=True)
    assert row["mean"] == all_presets.strategies["maxvar"].estimates["signal_scale"].mean
    steps = all_presets.steps()
    assert steps.height == 60 * (1 + 3) * len(WEIGHING)
    assert steps["effective_batch"].is_nan().sum() == 0


# Known truth


def test_effective_batch_of_none_is_the_number_of_mixed_groups(tmp_path):
    trace = solved_trace(tmp_path, [[0, 1, 4, 8, 5, 8], [1, 1, 1, 0, 2, 8]], 8)
    got = estimates_of(trace)
    assert got["effective_batch"].mean == pytest.approx((3 + 4) / 2)
    assert got["live_group_frac"].mean == pytest.approx((3 + 4) / 12)
    assert got["wasted_token_frac"].mean == pytest.approx(1 - 7 / 12)
    assert got["kish_responses"].mean != pytest.approx(got["kish_groups"].mean)


def test_live_groups_are_as_frequent_as_bernoulli_rewards_say(binary, rates):
    result = dfsim.replay(binary, ["none"], resamples=2).strategies["none"]
    expected = {d: 1 - p**6 - (1 - p) ** 6 for d, p in rates.items()}
    for domain, share in expected.items():
        assert expected_live_frac(rates[domain], 6) == pytest.approx(share)
        error = math.sqrt(share * (1 - share) / (40 * 25))
        assert abs(result.by_domain[domain]["live_group_frac"].mean - share) < 4 * error
    variance = sum(s * (1 - s) for s in expected.values()) / 9 / (40 * 25)
    mean = sum(expected.values()) / 3
    assert abs(result.estimates["live_group_frac"].mean - mean) < 4 * math.sqrt(variance)


def test_a_run_is_the_mean_of_its_steps(all_presets):
    whole = all_presets.steps().filter(pl.col("domain").is_null())
    for name, strategy in all_presets.strategies.items():
        steps = whole.filter(strategy=name)
        for estimator in ESTIMATORS:
            if estimator in ("refill_factor", "signal_scale_cv"):
                continue
            mean = steps[estimator].cast(pl.Float64).mean()
            got = strategy.estimates[estimator].mean
            assert got == pytest.approx(mean, rel=1e-12), (name, estimator)


def test_domains_add_up_to_the_step(all_presets):
    steps = all_presets.steps().filter(strategy="maxvar")
    whole = steps.filter(pl.col("domain").is_null()).sort("step")
    parts = steps.filter(pl.col("domain").is_not_null())
    for estimator, per in (("num_groups", None), ("live_group_frac", "num_groups")):
        weighted = pl.col(estimator) * (pl.col(per) if per else 1)
        added = parts.group_by("step").agg(weighted.sum().alias("sum")).sort("step")["sum"]
        expected = whole.select(weighted)[estimator]
        assert np.allclose(added.to_numpy(), expected.to_numpy(), rtol=1e-12)


def test_phases_are_thirds_in_order(tmp_path):
    solved = [[1, 0, 0, 0]] * 3 + [[1, 1, 0, 0]] * 3 + [[1, 1, 1, 0]] * 3
    two = dfsim.replay(solved_trace(tmp_path / "two", solved[:2], 4), ["none"], resamples=2)
    assert two.strategies["none"].by_phase == {}
    result = dfsim.replay(solved_trace(tmp_path / "nine", solved, 4), ["none"], resamples=2)
    phases = result.strategies["none"].by_phase
    got = {name: phase["live_group_frac"].mean for name, phase in phases.items()}
    assert got == {"early": 0.25, "middle": 0.5, "late": 0.75}
    assert [phase["live_group_frac"].steps for phase in phases.values()] == [3, 3, 3]


def test_refill_is_a_ratio_of_sums(tmp_path):
    """1 of 4 kept, then 3 of 4: 8 groups for 4 kept is 2; the mean of 4 and 4/3 would be 2.67."""
    trace = solved_trace(tmp_path / "a", [[1, 0, 0, 0], [1, 2, 3, 0]], 4)
    assert estimates_of(trace, "dapo")["refill_factor"].mean == 2.0
    empty = solved_trace(tmp_path / "b", [[0, 4], [0, 4]], 4)
    refill = estimates_of(empty, "dapo")["refill_factor"]
    assert math.isnan(refill.mean)
    assert "nothing was kept" in refill.reason
    assert math.isnan(estimates_of(trace, "maxvar")["refill_factor"].mean)


def test_steps_without_a_value_are_counted_not_averaged_as_zero(tmp_path):
    trace = solved_trace(tmp_path, [[2, 2], [0, 4], [1, 0]], 4)
    got = estimates_of(trace, "maxvar")
    assert got["signal_scale"].nan_steps == 1
    assert got["signal_scale"].steps == 3
    assert got["signal_scale"].mean == pytest.approx((0.5 + _maxvar_scale_of_one_in_four()) / 2)
    assert got["num_groups"].nan_steps == 0


def _maxvar_scale_of_one_in_four():
    """One of four solved: keeps one of each, |A| = 3a and a, of 6a in all."""
    return 4 / 6


@pytest.mark.parametrize("phi", [0.0, 0.25, 1.0])
def test_a_run_without_any_signal_is_zero_live_groups_not_an_error(tmp_path, phi):
    trace = solved_trace(tmp_path, [[0, 4, 4]] * 3, 4)
    result = dfsim.replay(trace, list(WEIGHING), resamples=5, phi=phi)
    for name, strategy in result.strategies.items():
        got = strategy.estimates
        assert got["effective_batch"].mean == got["effective_batch_high"].mean == 0.0, name
        assert got["live_group_frac"].mean == 0.0
        assert math.isnan(got["signal_scale"].mean)
        assert got["signal_scale"].reason == "every advantage of the step is 0"
    json.dumps(result.to_dict(), allow_nan=False)


def test_phi_moves_the_point_between_the_ends_of_its_bracket(tmp_path):
    trace = solved_trace(tmp_path, [[4, 4, 3], [2, 4, 5]], 8)
    none = estimates_of(trace)
    for phi in (0.0, 1.0):
        got = estimates_of(trace, "gfpo", phi=phi)
        wanted = "kish_groups" if phi == 0 else "signal_to_noise"
        steps = dfsim.replay(trace, ["gfpo"], resamples=2, phi=phi).steps()
        whole = steps.filter(pl.col("domain").is_null())
        own, base = whole.filter(strategy="gfpo"), whole.filter(strategy="none")
        expected = (3 * own[wanted] / base[wanted]).mean()
        assert got["effective_batch"].mean == pytest.approx(expected)
    assert none["effective_batch"].mean == pytest.approx(3)


# Aggregation


def test_modes_agree_where_every_token_counts_alike(tmp_path):
    """Equal lengths, one mini-batch: the five coefficients differ by a factor only."""
    trace = solved_trace(tmp_path, [[1, 2, 3, 0], [4, 2, 1, 1]], 8, config={"loss_scale_factor": 9})
    relative = ("effective_batch", "signal_scale", "loss_scale", "group_bias", "kish_groups")
    results = [estimates_of(trace, "maxvar", loss_agg_mode=mode) for mode in LOSS_AGG_MODES]
    assert len(results) == 5
    for name in relative:
        values = [r[name].mean for r in results]
        assert values == pytest.approx([values[0]] * 5), name


def test_modes_weigh_lengths_differently(tmp_path):
    """One token and three, equal |A|; gfpo keeps the short one: 1 of 4 tokens, 1 of 2 responses."""
    step = {"step": 1, "group_uid": ["a", "a"], "reward": [1.0, 0.0], "num_tokens": [1, 3]}
    trace = trace_of(tmp_path, [step])
    one = replace(build("gfpo", {"k": 1}), name="one")
    for mode, scale in (("token-mean", 0.25), ("token-sum", 0.25), ("seq-mean-token-mean", 0.5)):
        result = dfsim.replay(trace, [one], resamples=2, loss_agg_mode=mode)
        assert result.strategies["one"].estimates["signal_scale"].mean == pytest.approx(scale), mode


def test_the_run_s_own_mode_is_the_default(tmp_path):
    trace = solved_trace(tmp_path, [[1]], 4, config={"loss_agg_mode": "token-sum"})
    assert dfsim.replay(trace, ["none"], resamples=2).loss_agg_mode == "token-sum"
    asked = dfsim.replay(trace, ["none"], resamples=2, loss_agg_mode="token-mean")
    assert asked.loss_agg_mode == "token-mean"


def test_without_loss_scale_factor_what_rests_on_the_loss_is_null_and_says_why(bundled):
    mode = "seq-mean-token-sum-norm"
    got = estimates_of(bundled, "maxvar", loss_agg_mode=mode)
    null = {n for n, e in got.items() if math.isnan(e.mean)} - {"refill_factor"}
    assert null == {n for n in ESTIMATORS if n.startswith(("kish", "signal_to", "effective"))} | {
        "loss_scale",
        "signal_scale",
        "signal_scale_cv",
        "energy_scale_low",
        "energy_scale_high",
        "group_bias",
        "one_sided_frac",
        "positive_share",
    }
    assert all("loss_scale_factor is unset" in got[n].reason for n in null)
    notes = dfsim.replay(bundled, ["none"], resamples=2, loss_agg_mode=mode).notes
    assert any("loss_scale_factor is unset" in note for note in notes)


# What a trace lacks


def test_what_is_not_estimable_is_null_with_a_reason(tmp_path):
    drop = ("num_tokens", "old_log_probs")
    got = estimates_of(solved_trace(tmp_path, [[1, 2]], 4, drop=drop), "topk")
    null = {n: e.reason for n, e in got.items() if math.isnan(e.mean)}
    assert WITH_LENGTHS | {"energy_scale_low", "energy_scale_high"} < set(null)
    assert set(null) - WITH_LENGTHS - {"energy_scale_low", "energy_scale_high"} == {
        "refill_factor",
        "updates_per_step",
        "signal_scale_cv",
    }
    assert all("num_tokens" in null[n] for n in WITH_LENGTHS)
    assert "old_log_probs" in null["energy_scale_high"]
    assert all(got[n].to_dict()["mean"] is None for n in null)


@pytest.mark.parametrize(("strategy", "column"), [("gfpo", "num_tokens"), ("ar", "old_log_probs")])
def test_a_missing_column_is_refused_with_its_remedy(tmp_path, strategy, column):
    trace = solved_trace(tmp_path, [[1, 2]], 4, drop=("num_tokens", "old_log_probs"))
    with pytest.raises(TraceError, match=f"{strategy} needs column '{column}'") as caught:
        dfsim.replay(trace, [strategy])
    assert "--map" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resamples": 1}, "resamples=1"),
        ({"phi": 1.5}, "phi=1.5"),
        ({"phi": math.nan}, "phi=nan"),
        ({"seed": -1}, "seed=-1"),
        ({"reward_tol": -1.0}, "reward_tol=-1"),
        ({"loss_agg_mode": "token_mean"}, "did you mean 'token-mean'"),
    ],
)
def test_settings_out_of_range_are_refused(bundled, options, words):
    with pytest.raises(DfsimError, match=words):
        dfsim.replay(bundled, ["none"], **options)


def test_a_strategy_is_named_once_and_known(bundled):
    with pytest.raises(DfsimError, match="'dapo' is given twice"):
        dfsim.replay(bundled, ["dapo", build("dapo")])
    with pytest.raises(StrategyError, match="did you mean 'maxvar'"):
        dfsim.replay(bundled, ["maxvr"])


# The bundled trace


def test_diffband_is_a_no_op_where_the_mean_reward_lies_between_the_quantiles(all_presets, bundled):
    means = {
        int(frame["step"][0]): frame["reward"].mean()
        for frame in map(pl.read_parquet, sorted(Path(bundled.path).glob("step_*.parquet")))
    }
    between = {step for step, mean in means.items() if 0.25 < mean < 0.75}
    assert len(between) > 40
    steps = all_presets.steps().filter(pl.col("domain").is_null(), pl.col("strategy") == "diffband")
    assert between <= set(steps.filter(pl.col("no_op") == 1)["step"])
    assert between <= set(findings(all_presets, "diffband")["no_op"].evidence["steps"])


def test_findings_on_the_bundled_trace(all_presets):
    assert "biased_groups" in findings(all_presets, "maxvar")
    assert "biased_groups" in findings(all_presets, "gfpo")
    assert "scale_shift" in findings(all_presets, "per")
    assert "scale_shift" in findings(all_presets, "softmax")
    assert "splits_nothing" in findings(all_presets, "dapo")
    assert all_presets.strategies["none"].diagnosis == []
    assert "AdamW" in findings(all_presets, "per")["scale_shift"].message


# Layout, pairing, hooks


def test_file_layout_and_row_order_do_not_matter(tmp_path):
    rng = np.random.default_rng(5)
    steps = list(binary_steps({"a": 0.4, "b": 0.7}, steps=13, groups_per_domain=5, n=4, seed=1))
    plain = trace_of(tmp_path / "plain", steps)
    one_file = _compacted(tmp_path / "one", plain)
    frames = [
        frame_of(s).sample(fraction=1, shuffle=True, seed=int(rng.integers(99))) for s in steps
    ]
    shuffled = trace_of(tmp_path / "shuffled", [f.to_dict(as_series=False) for f in frames])
    want = dfsim.replay(plain, ["maxvar", "ar", "topk"], resamples=10).to_dict()
    for other in (one_file, shuffled):
        got = dfsim.replay(other, ["maxvar", "ar", "topk"], resamples=10).to_dict()
        assert got["trace"]["fingerprint"] == want["trace"]["fingerprint"]
        assert got["strategies"] == want["strategies"]


def _compacted(folder, trace):
    """The same steps in one file."""
    folder.mkdir()
    frames = [pl.read_parquet(trace.path / s.file) for s in trace.manifest.steps]
    pl.concat(frames).write_parquet(folder / "all.parquet")
    starts = np.cumsum([0] + [f.height for f in frames])[:-1].tolist()
    old = read_manifest(trace.path)
    entries = zip(old.steps, starts, strict=True)
    steps = tuple(
        type(s)(**{**vars(s), "file": "all.parquet", "first_row": start}) for s, start in entries
    )
    file = folder / "all.parquet"
    files = {"all.parquet": FileEntry(sha256_of(file), file.stat().st_size)}
    write_manifest(folder, type(old)(**{**vars(old), "steps": steps, "files": files}))
    return open_trace(folder)


def test_identical_strategies_differ_by_exactly_nothing(bundled):
    twin = build(scorer="reward", actuator="max_variance")
    result = dfsim.replay(bundled, ["topk", "maxvar", twin], resamples=15)
    maxvar, other = result.strategies["maxvar"], result.strategies[twin.name]
    assert maxvar.to_dict()["estimates"] == other.to_dict()["estimates"]
    assert maxvar.to_dict()["by_domain"] == other.to_dict()["by_domain"]


def test_hooks_see_every_step(binary):
    seen, ticks = [], []
    dfsim.replay(
        binary,
        ["dapo"],
        resamples=2,
        progress=lambda done, total: ticks.append((done, total)),
        on_decision=lambda batch, decisions: seen.append((batch.step, sorted(decisions))),
    )
    assert ticks == [(i, 40) for i in range(1, 41)]
    assert seen == [(i, ["dapo", "none"]) for i in range(1, 41)]
