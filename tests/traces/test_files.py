"""Files appear whole or not at all; folders of others are never replaced; settings are checked."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dfsim.traces.advantage import AdvantageConfig
from dfsim.traces.errors import DfsimError, TraceError, nearest
from dfsim.traces.importers.importing import import_trace
from dfsim.traces.storage import files
from dfsim.traces.storage.files import check_new_folder, replacing_file, replacing_folder
from dfsim.traces.storage.manifest import (
    MANIFEST,
    Manifest,
    checked_config,
    read_manifest,
    write_manifest,
)
from dfsim.traces.storage.store import TraceWriter, open_trace

MARKER = "mark.json"
OURS = '{"dfsim": "0.1.0"}'


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def make(folder: Path, **content: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in content.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def refused(call: Any, *args: Any) -> str:
    with pytest.raises(DfsimError) as caught:
        call(*args)
    text = str(caught.value)
    assert "\n" not in text
    return text


def enter(context: Any) -> None:
    with context:
        pytest.fail("the context must refuse before its body runs")


# One file


def test_a_file_is_not_there_until_it_is_whole(tmp_path):
    target = tmp_path / "table.csv"
    with replacing_file(target) as scratch:
        scratch.write_text("a,b")
        assert not target.exists()
        assert scratch.parent == tmp_path  # same file system, so that the rename is one step
        assert scratch.name.startswith(".")
    assert target.read_text() == "a,b"
    assert names(tmp_path) == ["table.csv"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("old", [None, "old"])
def test_a_failed_file_leaves_what_was_there(tmp_path, error, old):
    target = tmp_path / "table.csv"
    if old is not None:
        target.write_text(old)
    with pytest.raises(error), replacing_file(target) as scratch:  # noqa: PT012
        scratch.write_text("half")
        raise error
    assert (target.read_text() if target.exists() else None) == old
    assert names(tmp_path) == ([] if old is None else ["table.csv"])


def test_a_body_that_writes_nothing_is_not_a_success(tmp_path):
    with pytest.raises(FileNotFoundError), replacing_file(tmp_path / "table.csv"):
        pass
    assert names(tmp_path) == []


def test_a_file_needs_a_folder_and_a_name(tmp_path):
    make(tmp_path / "folder")
    assert "is a folder" in refused(enter, replacing_file(tmp_path / "folder"))
    text = refused(enter, replacing_file(tmp_path / "nowhere" / "table.csv"))
    assert f"{tmp_path / 'nowhere'} is not a folder" in text


# A folder


@pytest.mark.parametrize("exists", [False, True])
def test_a_new_or_empty_folder_needs_no_force(tmp_path, exists):
    target = tmp_path / "deep" / "out"
    if exists:
        target.mkdir(parents=True)
    with replacing_folder(target, MARKER, force=False) as scratch:
        (scratch / MARKER).write_text(OURS)
        assert not (target / MARKER).exists()
    assert names(tmp_path) == ["deep", "deep/out", f"deep/out/{MARKER}"]


def test_the_folder_one_stands_in_can_be_the_target(tmp_path, monkeypatch):
    monkeypatch.chdir(make(tmp_path / "here"))
    with replacing_folder(Path("."), MARKER, force=False) as scratch:
        (scratch / MARKER).write_text(OURS)
    assert names(tmp_path) == ["here", f"here/{MARKER}"]


def test_an_own_folder_is_replaced_whole_but_only_with_force(tmp_path):
    target = make(tmp_path / "out", mark_json=OURS, stale_txt="old")
    text = refused(enter, replacing_folder(target, MARKER, False))
    assert f"{target} exists" in text
    assert "--force" in text
    with replacing_folder(target, MARKER, force=True) as scratch:
        (scratch / MARKER).write_text(OURS)
        assert (target / "stale.txt").read_text() == "old"  # there until the new one is whole
    assert names(tmp_path) == ["out", f"out/{MARKER}"]


def test_force_follows_a_link_and_keeps_it(tmp_path):
    real = make(tmp_path / "real", mark_json=OURS, stale_txt="old")
    link = tmp_path / "out"
    link.symlink_to(real)
    with replacing_folder(link, MARKER, force=True) as scratch:
        (scratch / MARKER).write_text(OURS)
    assert link.is_symlink()
    assert names(real) == [MARKER]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "real"]


@pytest.mark.parametrize(
    "content",
    [
        {"notes_txt": "mine"},
        {"mark_json": '{"name": "my browser extension"}', "code_js": "…"},
        {"mark_json": ""},
    ],
)
def test_force_never_replaces_the_folder_of_another(tmp_path, content):
    target = make(tmp_path / "out", **content)
    before = names(tmp_path)
    for force in (False, True):
        assert str(target) in refused(check_new_folder, target, MARKER, force)
        assert str(target) in refused(enter, replacing_folder(target, MARKER, force))
    assert "--force will not replace it" in refused(check_new_folder, target, MARKER, True)
    assert names(tmp_path) == before


def test_a_file_in_the_way_is_never_replaced_by_a_folder(tmp_path):
    target = tmp_path / "out"
    target.write_text(OURS)
    for force in (False, True):
        assert str(target) in refused(check_new_folder, target, MARKER, force)
    assert target.read_text() == OURS


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("old", [False, True])
def test_a_failed_folder_leaves_what_was_there(tmp_path, error, old):
    target = tmp_path / "out"
    if old:
        make(target, mark_json=OURS, stale_txt="old")
    before = names(tmp_path)
    with pytest.raises(error), replacing_folder(target, MARKER, force=True) as scratch:  # noqa: PT012
        (scratch / MARKER).write_text(OURS)
        raise error
    assert names(tmp_path) == before


def test_a_rename_that_fails_brings_the_old_folder_back(tmp_path, monkeypatch):
    target = make(tmp_path / "out", mark_json=OURS, stale_txt="old")
    before = names(tmp_path)
    rename = os.replace

    def fail_on_new(source: Path, to: Path) -> None:
        if ".tmp-" in str(source):
            raise OSError(28, "No space left on device")
        rename(source, to)

    monkeypatch.setattr(files.os, "replace", fail_on_new)
    with (
        pytest.raises(OSError, match="No space"),
        replacing_folder(target, MARKER, force=True) as scratch,
    ):
        (scratch / MARKER).write_text(OURS)
    monkeypatch.undo()
    assert names(tmp_path) == before
    assert (target / "stale.txt").read_text() == "old"


# A trace as the folder


GOOD = '{"step": 1, "group_uid": "g", "reward": %s}\n'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text(GOOD % 1)
    return path


def reward_of(folder: Path) -> float:
    (batch,) = open_trace(folder).batches([])
    return float(batch.reward_N[0])


def test_an_existing_trace_is_replaced_only_with_force_and_only_after_success(source):
    out = source.parent / "out"
    import_trace(source, out)
    source.write_text(GOOD % 2)
    assert f"{out} exists" in refused(import_trace, source, out)
    source.write_text(GOOD % 3 + "{bad")
    with pytest.raises(TraceError, match=r"rows\.jsonl:2 is not JSON"):
        import_trace(source, out, force=True)
    assert reward_of(out) == 1.0
    source.write_text(GOOD % 4)
    import_trace(source, out, force=True)
    assert reward_of(out) == 4.0
    assert sorted(p.name for p in source.parent.iterdir()) == ["out", "rows.jsonl"]


def test_a_folder_that_is_no_trace_is_never_replaced_by_one(source):
    out = make(source.parent / "out", manifest_json='{"name": "an app"}', index_html="…")
    with pytest.raises(DfsimError, match="--force will not replace it"):
        import_trace(source, out, force=True)
    assert names(out) == ["index.html", MANIFEST]


@pytest.mark.parametrize("after", ["reading", "writing"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_import_stopped_midway_leaves_nothing(source, monkeypatch, after, error):
    source.write_text(GOOD % 1 + (GOOD % 2).replace('"step": 1', '"step": 2'))
    calls = []

    def stop(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2 or after == "reading":
            raise error
        return write(*args)

    write = TraceWriter.write_step
    if after == "writing":
        monkeypatch.setattr(TraceWriter, "write_step", stop)
    with pytest.raises(error):
        import_trace(source, source.parent / "out", progress=stop if after == "reading" else None)
    assert len(calls) == (2 if after == "writing" else 1)
    assert names(source.parent) == ["rows.jsonl"]


def test_settings_are_checked_before_anything_is_written(source):
    with pytest.raises(TraceError, match=r"--set n=0"):
        import_trace(source, source.parent / "out", config={"n": 0})
    assert names(source.parent) == ["rows.jsonl"]
    import_trace(source, source.parent / "out", config={"n": 8, "lr": 1e-6}, label="careful")
    manifest = open_trace(source.parent / "out").manifest
    assert (dict(manifest.config), manifest.label) == ({"n": 8, "lr": 1e-6}, "careful")
    assert "rows.jsonl" in manifest.source


def test_a_damaged_table_is_refused_whatever_its_reader_throws(source, monkeypatch):
    table = source.with_suffix(".parquet")
    pl.DataFrame({"step": [1, 1], "group_uid": ["g", "h"], "reward": [0.5, 1]}).write_parquet(table)
    data = table.read_bytes()
    for cut in (0, 4, len(data) // 2, len(data) - 5, len(data) - 1):
        table.write_bytes(data[:cut])
        assert str(table) in refused(import_trace, table, source.parent / "out")

    def panic(*args: Any, **kwargs: Any) -> None:
        raise pl.exceptions.PanicException("some damage makes Polars panic\nat a place of its own")

    table.write_bytes(data)
    monkeypatch.setattr(pl.LazyFrame, "collect", panic)
    assert f"{table} can't be read" in refused(import_trace, table, source.parent / "out")


# Opening


def test_the_only_trace_below_a_folder_is_found(source):
    out = source.parent / "below" / "out"
    import_trace(source, out)
    make(source.parent / "below" / ".out.tmp-1", manifest_json="{}")
    assert open_trace(source.parent).path == open_trace(str(out)).path == out


def test_what_is_no_trace_is_refused_with_the_way_out(source, tmp_path):
    for name in ("one", "two"):
        import_trace(source, tmp_path / "both" / name)
    for path, said in [
        (tmp_path / "nowhere", ["nowhere does not exist"]),
        (make(tmp_path / "other"), ["holds no trace", "dfsim import"]),
        (source, ["is a file", f"dfsim import {source}"]),
        (tmp_path / "both", ["holds 2 traces", "both/one", "both/two"]),
    ]:
        text = refused(open_trace, path)
        assert all(part in text for part in [str(path), *said])
    write_manifest(make(tmp_path / "fresh"), Manifest(writer="dfsim"))
    assert "no finished step yet" in refused(open_trace, tmp_path / "fresh")


# The manifest's settings


def test_settings_come_back_as_they_were_given(tmp_path):
    config = {"n": 8, "adv_eps": 1e-4, "optimizer": "AdamW", "nested": {"a": [1, None, "é"]}}
    assert checked_config({**config, "loss_scale_factor": None}) == config
    manifest = Manifest(writer="test", source="Ω", label="careful", config=config)
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert names(tmp_path) == [MANIFEST]
    json.loads((tmp_path / MANIFEST).read_text())  # one that other tools can read


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("n", 0, "above 0"),
        ("n", True, "above 0"),
        ("n", 2.5, "whole number"),
        ("ppo_mini_batch_size", "many", "above 0"),
        ("adv_eps", -1e-6, "above 0"),
        ("loss_scale_factor", float("nan"), "above 0"),
        ("loss_scale_factor", float("inf"), "finite"),
        ("lr", float("nan"), "finite"),
        ("started", date(2026, 5, 1), "text"),
    ],
)
def test_a_setting_no_manifest_can_hold_is_refused(name, value, said):
    text = refused(checked_config, {name: value})
    assert f"--set {name}={value}" in text
    assert said in text


def test_mini_batches_are_known_when_both_their_settings_are():
    both = {"n": 8, "ppo_mini_batch_size": 24}
    assert Manifest(writer="test", config=both).mini_batch_rows == 192
    assert Manifest(writer="test", config={"n": 8}).mini_batch_rows is None


def test_advantage_settings_default_to_verls():
    assert Manifest(writer="test").advantage_config == AdvantageConfig("grpo", 1e-6)
    own = {"adv_estimator": "rloo", "adv_eps": 1e-4}
    assert Manifest(writer="test", config=own).advantage_config == AdvantageConfig("rloo", 1e-4)


def test_an_estimator_that_cannot_be_recomputed_needs_captured_advantages(tmp_path):
    config = {"adv_estimator": "gae"}
    with pytest.raises(TraceError, match=r"'gae' is not one.*grpo, dr_grpo, rloo.*--map advantage"):
        _ = Manifest(writer="test", config=config).advantage_config
    captured = Manifest(writer="test", config=config, columns={"advantage": "Float64"})
    assert captured.advantage_config.adv_estimator == "grpo"
    plain = {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False}
    assert Manifest(writer="test", config=plain).advantage_config.adv_estimator == "dr_grpo"


def test_a_close_name_is_offered_and_a_far_one_is_not():
    assert nearest("rewrd", ["step", "reward"]) == " (did you mean 'reward'?)"
    assert nearest("zzz", ["step", "reward"]) == ""
