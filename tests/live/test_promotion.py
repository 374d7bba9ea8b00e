"""What ``dfsim promote`` writes, what it refuses, and what refuses its file later."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT
from made import solved_trace
from said import printed, refused, run

import dfsim
from dfsim.live.core import promotion as promotion_module
from dfsim.live.core.promotion import deciding_code, read_promotion, sealed
from dfsim.live.verl.settings import read_settings
from dfsim.strategies import own
from dfsim.strategies.build import build
from dfsim.strategies.spec import Spec
from dfsim.traces.errors import DfsimError
from dfsim.traces.importers import IMPORTERS

QUICK = ("--resamples", "2")
MINE = """
import numpy as np
class Mine:
    scale: float = 1.0
    def weights(self, batch): return np.full(batch.num_responses, self.scale)
"""


def refusal(call, *args):
    with pytest.raises(DfsimError) as caught:
        call(*args)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def small(tmp_path):
    return solved_trace(tmp_path / "small", [[1, 2, 0], [3, 1, 4]], 4).path


@pytest.fixture
def made(small, tmp_path):
    out = tmp_path / "promotion"
    printed("promote", small, "-s", "maxvar", "--out", out, *QUICK)
    return out


def edited(folder, drop=(), by_hand=False, **changes):
    """The promotion file with other values, and without some keys; its digest anew, or stale."""
    path = folder / "promotion.json"
    record = {**json.loads(path.read_text()), **changes}
    record = {k: v for k, v in record.items() if k not in drop}
    digest = record.pop("digest")
    path.write_text(json.dumps({**record, "digest": digest}) if by_hand else sealed(record))
    return path


def snapshot(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# Writing and reading back


def test_the_bundled_trace_is_promoted_with_the_forecast_of_its_replay(bundled, tmp_path):
    out = tmp_path / "p"
    options = ("-p", "keep_frac=0.25", "--tie-seed", "4", "--rescale", "kept", "--seed", "9")
    text = printed(
        *("promote", ROOT / "traces", "-s", "maxvar", *options, "--on-empty", "keep_all"),
        *("--out", out, "--resamples", "50"),
    )
    strategy = build("maxvar", {"keep_frac": 0.25}, tie_seed=4)
    found = read_promotion(out)
    assert found == read_promotion(out / "promotion.json")
    assert found.build() == strategy
    assert (found.rescale, found.on_empty, found.tie_seed) == ("kept", "keep_all", 4)
    assert found.trace["fingerprint"] == bundled.manifest.fingerprint
    assert found.own_files == {}
    result = dfsim.replay(bundled, [strategy], resamples=50, seed=9)
    for wanted, name in ((found.forecast, "maxvar"), (found.baseline, "none")):
        estimates = result.strategies[name].estimates
        assert set(wanted) == set(estimates)
        for estimator, one in wanted.items():
            mean = estimates[estimator].mean
            assert one["mean"] == mean or (one["mean"] is None and np.isnan(mean))
    assert "not evidence about LLMs" in text
    assert "steps like these [" in text
    assert f"dfsim verify {out / 'live'} --promotion {out}" in text
    assert {p.name for p in out.iterdir()} == {"promotion.json", "launch.sh"}


def test_json_is_one_object_with_the_files_written(small, tmp_path):
    out = tmp_path / "p"
    record = json.loads(
        printed("promote", small, "-s", "maxvar", "--seeds", "1", "--out", out, "--json", *QUICK)
    )
    written = json.loads((out / "promotion.json").read_text())
    assert {**record["promotion"], "digest": written["digest"]} == written
    files = {str(p) for p in out.rglob("*") if p.is_file()}
    assert set(record["written"]) == files


def test_a_short_trace_has_no_interval_and_says_none(made):
    # Under 12 steps no interval for future steps is estimated; the means are there.
    found = read_promotion(made)
    assert found.forecast["effective_batch"]["future_low"] is None
    # maxvar keeps half of each group of four.
    assert found.forecast["kept_frac"]["mean"] == 0.5
    assert found.baseline["kept_frac"]["mean"] == 1.0


def test_the_digest_is_of_the_content_not_the_place(made, tmp_path):
    shutil.copytree(made, tmp_path / "moved")
    before = read_promotion(made)
    assert read_promotion(tmp_path / "moved").digest == before.digest
    edited(made, tie_seed=1)
    assert read_promotion(made).digest != before.digest


# The code that decides


def test_other_deciding_code_is_refused_everywhere(made, small):
    edited(made, code="0" * 32)
    text = refusal(read_promotion(made).build)
    assert f"{made / 'promotion.json'} was written by other deciding code" in text
    assert "Promote again" in text
    assert dfsim.__version__ in text
    assert refusal(read_settings, {"promotion": str(made)}) == text


@pytest.mark.parametrize(
    "name",
    [
        *("strategies/select/max_variance.py", "strategies/base.py", "strategies/catalog.py"),
        *("traces/batch.py", "traces/advantage.py", "traces/ragged.py", "traces/assemble.py"),
    ],
)
def test_the_code_digest_follows_every_file_that_decides(name, tmp_path, monkeypatch):
    for folder in ("strategies", "traces"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("samples", "__py*")
        )
        stand_in = SimpleNamespace(__file__=str(tmp_path / folder / "__init__.py"))
        monkeypatch.setattr(promotion_module, folder, stand_in)
    digest = deciding_code.__wrapped__
    assert digest() == deciding_code()
    (tmp_path / "traces" / "store.py").write_text("# reads, decides nothing\n")
    assert digest() == deciding_code()
    path = tmp_path / name
    path.write_text(path.read_text() + "\n")
    assert digest() != deciding_code()


# A user's own strategy


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "src" / "mine.py"
    file.parent.mkdir()
    file.write_text(MINE)
    return file


@pytest.mark.parametrize("name", ["promotion", "a b", "it's", "v[2]"])
def test_an_own_file_travels_with_the_promotion(small, mine, tmp_path, name):
    out = tmp_path / name
    printed("promote", small, "-s", f"{mine}:Mine", "-p", "scale=0.5", "--out", out, *QUICK)
    assert (out / "mine.py").read_bytes() == mine.read_bytes()
    mine.unlink()
    found = read_promotion(out)
    assert found.strategy == "mine.py:Mine"
    strategy = found.build()
    assert strategy.params == {"scale": 0.5}
    assert strategy.name == f"{out.resolve()}/mine.py:Mine"
    assert read_settings({"promotion": str(out)}).strategy.params == {"scale": 0.5}


def test_a_changed_or_missing_own_file_is_refused(small, mine, tmp_path):
    out = tmp_path / "p"
    printed("promote", small, "-s", f"{mine}:Mine", "--out", out, *QUICK)
    copy = out / "mine.py"
    copy.write_text(MINE + "# changed\n")
    assert f"{copy} was changed since it was promoted" in refusal(read_promotion(out).build)
    copy.unlink()
    assert f"{copy} is missing" in refusal(read_promotion(out).build)


def test_an_installed_strategy_is_promoted_by_its_name(small, mine, tmp_path, monkeypatch):
    entry = SimpleNamespace(load=lambda: own.load_class(Spec.parse(f"{mine}:Mine")))
    monkeypatch.setattr(own, "_entry_points", lambda: frozenset({"installed"}))
    monkeypatch.setattr(own, "entry_points", lambda **_: (entry,))
    out = tmp_path / "p"
    printed("promote", small, "-s", "installed", "-p", "scale=0.5", "--out", out, *QUICK)
    strategy = read_promotion(out).build()
    assert (strategy.name, strategy.params) == ("installed", {"scale": 0.5})


# --force


def test_an_earlier_promotion_is_replaced_only_with_force(made, small):
    again = ("promote", small, "-s", "topk", "--out", made, *QUICK)
    before = snapshot(made)
    assert "exists" in refused(*again)
    assert snapshot(made) == before
    printed(*again, "--force")
    assert read_promotion(made).strategy == "topk"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("live/manifest.json", "{}"),
        ("live/live.jsonl", ""),
        ("seeds/baseline_1.jsonl", ""),
        ("seeds/baseline_1/manifest.json", "{}"),
        ("runs.csv", "method,seed,train_reward\nbaseline,1,0.5\n"),
    ],
)
def test_results_of_live_runs_are_never_deleted(made, small, file, text):
    path = made / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    before = snapshot(made)
    line = refused("promote", small, "-s", "topk", "--out", made, "--force", *QUICK)
    assert str(path) in line
    assert "choose another --out" in line
    assert snapshot(made) == before


def test_a_table_without_a_run_is_no_result(small, tmp_path):
    args = ("promote", small, "-s", "topk", "--out", tmp_path / "p", "--seeds", "1", *QUICK)
    printed(*args)
    printed(*args, "--force")


def test_a_folder_of_something_else_is_left_alone(small, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a.tex").touch()
    args = ("promote", small, "-s", "topk", "--out", tmp_path / "thesis", *QUICK)
    for force in ((), ("--force",)):
        assert "choose another --out" in refused(*args, *force)
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["a.tex"]


def test_the_current_folder_is_not_replaced_under_the_shell(small, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "is the current folder" in refused("promote", small, "-s", "topk", "--out", ".", *QUICK)


# Refusals


FOREIGN = [name for name in IMPORTERS if name not in ("flat", "verl", "verl-v0")]


@pytest.mark.parametrize("format", FOREIGN)
def test_another_trainers_trace_is_refused_with_the_way_out(tmp_path, format):
    trainer = IMPORTERS[format].trainer
    trace = solved_trace(tmp_path / "t", [[1, 2]], 4, source="whatever", trainer=trainer)
    out = tmp_path / "p"
    line = refused("promote", trace.path, "-s", "maxvar", "--out", out, *QUICK)
    assert "verl only" in line
    assert "dfsim replay TRACE --strategy maxvar --decisions weights.parquet" in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-s", "maxvr"], "did you mean 'maxvar'"),
        (["-s", "maxvar", "-p", "keep_frac=[0.25, 0.5]"], "one strategy is promoted at a time"),
        (["-s", "maxvar", "-p", "keep_frac=9"], "keep_frac=9"),
        (["-s", "maxvar", "-p", "keep"], "-p keep is not name=value"),
        (["-s", "maxvar", "--rescale", "kpt"], "did you mean 'kept'"),
        (["-s", "maxvar", "--on-empty", "skip"], "--on-empty skip is not known"),
        (["-s", "all"], "one strategy is promoted at a time"),
        (["-s", "nosuch.py:X"], "nosuch.py does not exist"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(small, tmp_path, args, words):
    out = tmp_path / "p"
    assert words in refused("promote", small, *args, "--out", out, *QUICK)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small"]


def test_numbers_below_their_bound_and_missing_traces(small, tmp_path):
    assert run("promote", small, "-s", "maxvar", "--seeds", "-1").exit_code == 2
    assert run("promote", small).exit_code == 2
    assert "nowhere" in refused("promote", tmp_path / "nowhere", "-s", "maxvar")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no promotion file; dfsim promote writes one"),
        ("[]", "is no promotion file"),
        ("{}", "is no promotion file"),
        ('{"version": 99}', "promotion format 99; this dfsim reads 1"),
        ('{"version": 1, "strategy": "maxvar"}', "was changed by hand"),
        ("\xff", "no promotion file"),
    ],
)
def test_what_is_no_promotion_file_is_refused(tmp_path, text, words):
    path = tmp_path / "promotion.json"
    path.write_bytes(text.encode("latin-1"))
    line = refusal(read_promotion, path)
    assert words in line
    assert str(path) in line


@pytest.mark.parametrize(
    "change",
    [
        {"rescale": "men_one"},
        {"on_empty": "keep"},
        {"tie_seed": "x"},
        {"params": {"keep_frac": 0.25, "renormalise": False}},
        {"params": ["keep_frac"]},
        {"drop": ["code"]},
        {"unknown": 1},
    ],
)
def test_a_file_changed_by_hand_is_refused(made, change):
    edited(made, by_hand=True, **change)
    text = refusal(read_promotion, made)
    assert str(made / "promotion.json") in text


def test_a_missing_file_says_what_writes_one(tmp_path):
    text = refusal(read_promotion, tmp_path / "p.json")
    assert f"{tmp_path / 'p.json'} can't be read" in text
    assert "dfsim promote" in text
