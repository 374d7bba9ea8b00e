"""``dfsim verify``: what a live run did, recomputed, and every way to have done something else."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import polars as pl
import pytest
from made import solved_trace
from said import refused, run

from dfsim.live.core.log import LIVE_LOG
from dfsim.live.core.promotion import read_promotion, sealed
from dfsim.live.core.verification.verify import Verification
from dfsim.strategies.build import build
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.errors import DfsimError
from dfsim.traces.storage.manifest import write_manifest
from dfsim.traces.storage.store import TraceWriter, open_trace

pytestmark = pytest.mark.live
pytest.importorskip("pyarrow")

from live_trace import live_trace, responses_of  # noqa: E402
from promoted import checked, promotion_of  # noqa: E402


def gates(found: Verification):
    return {g.name: g for g in found.gates}


def rewritten(path, step, change):
    """The capture with one step's frame changed, and written again with checksums that fit."""
    trace = open_trace(path)
    frames = {e.step: f for e, f in trace.frames(trace.columns)}
    TraceWriter(path, trace.manifest).write_step(change(frames[step]))


def flip(name, row, bit=0, token=None):
    """One bit of one float32 of a column."""

    def change(frame):
        values = frame[name].to_list()
        if token is None:
            held = np.array([values[row]], np.float32)
        else:
            held = np.array([values[row][token]], np.float32)
        held.view(np.uint32)[0] ^= np.uint32(1 << bit)
        if token is None:
            values[row] = float(held[0])
        else:
            values[row][token] = float(held[0])
        return frame.with_columns(pl.Series(name, values, dtype=frame.schema[name]))

    return change


# A run that did what it said


RUNS = [(n, t) for n in WEIGHING for t in (True, False) if t or not n.startswith("ar")]


@pytest.mark.parametrize(("name", "tokens"), RUNS)  # ar reads token lists
def test_an_honest_run_of_every_preset_is_verified(tmp_path, name, tokens):
    strategy = build(name)
    path = live_trace(tmp_path / "live", strategy, tokens=tokens)
    found = gates(checked(path))
    assert found[f"decisions of {name}"].passed is True
    assert "3 of 3 steps recomputed" in found[f"decisions of {name}"].message
    assert found["delivery"].passed is True
    assert "proven in 3 of 3 steps" in found["delivery"].message
    assert "pg_loss agrees in the 3" in found["delivery"].message


def test_a_run_that_shadowed_the_catalog_is_verified(tmp_path):
    shadows = tuple(build(name) for name in WEIGHING)
    found = checked(live_trace(tmp_path / "live", None, shadows))
    assert found.passed
    assert set(gates(found)) == {f"decisions of {name}" for name in WEIGHING}
    assert all(g.passed is True for g in found.gates)


@pytest.mark.parametrize("rescale", ["none", "kept", "mean_one"])
@pytest.mark.parametrize("on_empty", ["skip_update", "keep_all", "deliver"])
def test_the_delivery_settings_are_recomputed_too(tmp_path, rescale, on_empty):
    # A band that no group of these steps is in: nothing is kept.
    for name, params in (("topk", {}), ("difffilter", {"low": 0.01, "high": 0.02})):
        settings = {"rescale": rescale, "on_empty": on_empty}
        path = live_trace(tmp_path / name, build(name, params), **settings)
        assert checked(path).passed


def test_a_promoted_run_is_verified_beside_its_forecast(tmp_path):
    strategy = build("maxvar", {"keep_frac": 0.25}, tie_seed=2)
    path = live_trace(tmp_path / "live", strategy, steps=14)
    out = promotion_of(tmp_path, strategy)
    found = checked(path, read_promotion(out))
    assert found.passed
    assert gates(found)["strategy"].passed is True
    for c in found.comparisons:  # the same trace: what was forecast is what is seen
        assert (c.observed is None) == (c.forecast is None)
        assert c.observed is None or c.observed == pytest.approx(c.forecast, rel=1e-12)
    assert {c.inside for c in found.comparisons} <= {True, None}
    assert any(c.inside for c in found.comparisons)
    text = run("verify", path, "--promotion", out).stdout
    assert text.rstrip().endswith("Verified.")
    assert "outside" not in text.split("·")[0]
    assert "kept_frac" in text

    page = tmp_path / "page"
    run("verify", path, "--promotion", out, "--out", page)
    shown = (page / "index.html").read_text(encoding="utf-8")
    assert all(gate.name in shown for gate in found.gates)
    assert "effective_batch" in shown
    (page / "index.html").unlink()
    run("report", page)
    assert (page / "index.html").read_text(encoding="utf-8") == shown
    assert "exists" in refused("verify", path, "--out", page)


def test_an_own_strategy_is_verified_from_its_promotion(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "import numpy as np\n"
        "class Mine:\n"
        "    def weights(self, batch): return 1 / (1 + np.abs(batch.advantage_N))\n"
    )
    strategy = build(f"{file}:Mine")
    path = live_trace(tmp_path / "live", strategy)
    out = promotion_of(tmp_path, strategy)
    assert checked(path).passed
    file.unlink()
    assert checked(path, read_promotion(out)).passed


# A run that did something else


def flippable():
    frame = responses_of(2).batch()
    return [i for i, n in enumerate(frame.num_tokens_N) if n > 0][-1]


@pytest.mark.parametrize("bit", [0, 31])
def test_a_flipped_bit_of_a_weight_is_found_and_named(tmp_path, bit):
    path = live_trace(tmp_path / "live", build("softmax"))
    row = flippable()
    rewritten(path, 2, flip("weight", row, bit))
    (frame,) = [f for e, f in open_trace(path).frames(["weight"]) if e.step == 2]
    found = checked(path)
    assert not found.passed
    message = gates(found)["decisions of softmax"].message
    uid, index = frame["group_uid"][row], frame["rollout_idx"][row]
    assert message.startswith(f"step 2: group '{uid}' rollout_idx={index}: weight applied ")
    assert f"(1 of {frame.height} responses differ)" in message
    result = run("verify", path)
    assert result.exit_code == 1
    assert "FAIL" in result.stdout
    assert result.stdout.rstrip().endswith("NOT verified: a gate failed.")


def test_a_flipped_bit_of_a_replaced_advantage_is_found(tmp_path):
    path = live_trace(tmp_path / "live", build("maxvar@paper"))
    rewritten(path, 1, flip("advantage_applied", 0))
    message = gates(checked(path))["decisions of maxvar@paper"].message
    assert "step 1: group '" in message
    assert "advantage_applied applied" in message


def test_a_flipped_bit_of_a_token_weight_is_found_and_named(tmp_path):
    path = live_trace(tmp_path / "live", build("ar"))
    row = flippable()
    rewritten(path, 2, flip("token_weight", row, token=0))
    (frame,) = [f for e, f in open_trace(path).frames([]) if e.step == 2]
    gate = gates(checked(path))["decisions of ar"]
    assert gate.passed is False
    assert gate.message.startswith("step 2: ")
    uid, index = frame["group_uid"][row], frame["rollout_idx"][row]
    assert f"group '{uid}' rollout_idx={index}" in gate.message


@pytest.mark.parametrize("name", ["topk", "per", "ar", "maxvar@paper"])
def test_a_signal_that_was_changed_later_is_found(tmp_path, name):
    # The captured advantage is what decides, not one recomputed from rewards.
    path = live_trace(tmp_path / "live", build(name))
    column = {"ar": "old_log_probs", "maxvar@paper": "reward"}.get(name, "advantage")

    def change(frame):
        if column == "old_log_probs":
            return frame.with_columns(pl.col(column).list.eval(pl.element() - 1.0))
        return frame.with_columns(pl.col(column).reverse())

    rewritten(path, 2, change)
    gate = gates(checked(path))[f"decisions of {name}"]
    assert gate.passed is False
    assert gate.message.startswith("step 2: ")


def test_a_shadow_whose_digest_differs_is_found(tmp_path):
    digests = {"topk": "0" * 32}
    path = live_trace(
        tmp_path / "live", None, (build("topk"), build("per")), records={3: {"digests": digests}}
    )
    found = gates(checked(path))
    assert found["decisions of topk"].message.startswith("step 3: the digest")
    assert found["decisions of topk"].passed is False
    assert found["decisions of per"].passed is True
    assert "2 of 3 steps" in found["decisions of per"].message


def test_a_step_without_weights_is_found(tmp_path):
    path = live_trace(tmp_path / "live", build("maxvar"))
    rewritten(path, 2, lambda frame: frame.drop("weight"))
    gate = gates(checked(path))["decisions of maxvar"]
    assert gate.passed is False
    assert "step 2: the step holds no weight" in gate.message


@pytest.mark.parametrize(
    ("live", "wanted", "words"),
    [
        (build("maxvar"), build("maxvar", {"keep_frac": 0.25}), "the run's params is"),
        (build("maxvar"), build("topk"), "the run's name is maxvar, promoted was topk"),
        (build("maxvar", tie_seed=1), build("maxvar"), "the run's tie_seed is 1, promoted was 0"),
        (None, build("maxvar"), "delivered no strategy; maxvar was promoted"),
    ],
)
def test_another_strategy_than_the_promoted_one_fails(tmp_path, live, wanted, words):
    path = live_trace(tmp_path / "live", live, (build("per"),))
    out = promotion_of(tmp_path, wanted)
    gate = gates(checked(path, read_promotion(out)))["strategy"]
    assert gate.passed is False
    assert words in gate.message
    assert run("verify", path, "--promotion", out).exit_code == 1


@pytest.mark.parametrize("setting", [{"rescale": "kept"}, {"on_empty": "keep_all"}])
def test_another_delivery_than_the_promoted_one_fails(tmp_path, setting):
    path = live_trace(tmp_path / "live", build("maxvar"), **setting)
    out = promotion_of(tmp_path, build("maxvar"))
    found = checked(path, read_promotion(out))
    assert not found.passed
    assert next(iter(setting)) in gates(found)["strategy"].message


# Delivery


def test_an_undelivered_step_fails(tmp_path):
    lost = {"delivered": 0, "reason": "the loss got no rollout_is_weights"}
    path = live_trace(tmp_path / "live", build("maxvar"), records={2: lost, 3: lost})
    gate = gates(checked(path))["delivery"]
    assert gate.passed is False
    assert "in 2 of 3 steps the weights did not reach the loss; first step 2" in gate.message
    assert lost["reason"] in gate.message
    assert run("verify", path).exit_code == 1


def test_what_could_not_be_checked_is_counted_with_its_reason(tmp_path):
    records = {
        1: {"delivered": None, "reason": "the update was skipped", "pg_loss": "no power"},
        2: {"pg_loss": "differs"},
    }
    path = live_trace(tmp_path / "live", build("maxvar"), records=records)
    gate = gates(checked(path))["delivery"]
    assert gate.passed is True
    assert "proven in 2 of 3 steps; 1 not checkable (the update was skipped)" in gate.message
    assert "pg_loss differs in step 2" in gate.message


def test_a_missing_log_proves_nothing(tmp_path):
    path = live_trace(tmp_path / "live", build("maxvar"))
    (path / LIVE_LOG).unlink()
    found = gates(checked(path))
    assert found["decisions of maxvar"].passed is True  # by the weights themselves
    assert found["delivery"].passed is None
    assert "3 steps without a record" in found["delivery"].message


def test_a_log_that_lost_a_field_or_its_text_is_no_traceback(tmp_path):
    path = live_trace(tmp_path / "live", build("maxvar"))
    (path / LIVE_LOG).write_bytes(b'{"step": 1}\n\xff\xfe\n')
    result = run("verify", path)
    assert isinstance(result.exception, SystemExit | None)
    assert result.exit_code in (0, 2)


def test_a_strategy_whose_columns_were_not_kept_cannot_be_checked(tmp_path):
    path = live_trace(tmp_path / "live", build("ar"), tokens=False)
    found = gates(checked(path))
    assert found["decisions of ar"].passed is None
    assert "old_log_probs" in found["decisions of ar"].message
    assert found["delivery"].passed is True


def test_a_promotion_whose_columns_were_not_kept_is_checked_as_far_as_it_goes(tmp_path):
    source = live_trace(tmp_path / "live", build("ar"))
    out = promotion_of(tmp_path, build("ar"), source=source)
    path = live_trace(tmp_path / "bare", build("ar"), tokens=False)
    found = checked(path, read_promotion(out))
    assert gates(found)["strategy"].passed is True
    assert gates(found)["decisions of ar"].passed is None


# The command line


def test_json_is_one_object_and_the_exit_code_stays(tmp_path):
    strategy = build("per")
    path = live_trace(tmp_path / "live", strategy)
    out = promotion_of(tmp_path, strategy)
    good = run("verify", path, "--promotion", out, "--json")
    record = json.loads(good.stdout)
    assert (good.exit_code, record["passed"], good.stderr) == (0, True, "")
    assert record["trace"]["fingerprint"] == open_trace(path).manifest.fingerprint
    assert {g["name"] for g in record["gates"]} == {"strategy", "decisions of per", "delivery"}
    fields = {"name", "headline", "forecast", "low", "high", "observed", "inside"}
    assert fields == set(record["estimates"][0])
    assert "NaN" not in good.stdout
    rewritten(path, 1, flip("weight", 0))
    bad = run("verify", path, "--json")
    assert (bad.exit_code, json.loads(bad.stdout)["passed"]) == (1, False)


def test_what_is_no_live_trace_is_refused(tmp_path):
    plain = solved_trace(tmp_path / "plain", [[1, 2]], 4).path
    line = refused("verify", plain)
    assert f"{plain} was not captured by a live run" in line
    assert "+dfsim.capture.dir=FOLDER" in line
    assert "nowhere" in refused("verify", tmp_path / "nowhere")


def test_a_promotion_that_cannot_be_read_or_built_is_refused(tmp_path):
    path = live_trace(tmp_path / "live", build("maxvar"))
    assert "dfsim promote" in refused("verify", path, "--promotion", tmp_path / "none.json")
    out = promotion_of(tmp_path, build("maxvar"))
    record = read_promotion(out).record()
    (out / "promotion.json").write_text(sealed({**record, "code": "other"}))
    assert "other deciding code" in refused("verify", path, "--promotion", out)


def test_a_run_of_a_strategy_that_is_unknown_here_is_refused(tmp_path):
    path = live_trace(tmp_path / "live", build("maxvar"))
    manifest = open_trace(path).manifest
    config = json.loads(json.dumps(dict(manifest.config)))
    config["dfsim"]["strategy"]["name"] = "maxvar2"
    write_manifest(path, dataclasses.replace(manifest, config=config))
    with pytest.raises(DfsimError, match="no strategy is called 'maxvar2'"):
        checked(path)
