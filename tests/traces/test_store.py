"""What is written is read back, and nothing else: changed, missing, half-written, newer."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfsim.traces.assemble import from_columns
from dfsim.traces.batch import RolloutBatch
from dfsim.traces.errors import TraceError
from dfsim.traces.ragged import offsets_of
from dfsim.traces.schema import COLUMNS
from dfsim.traces.storage import store
from dfsim.traces.storage.manifest import (
    MANIFEST,
    FileEntry,
    Manifest,
    _digest,
    read_manifest,
    write_manifest,
)
from dfsim.traces.storage.store import Trace, TraceWriter, dtype_of, open_trace
from dfsim.traces.synthetic import exact_step, random_step

FEW = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
ROW = {"step": 1, "group_uid": "a", "rollout_idx": 0, "reward": 1.0}


def frame_of(columns: dict[str, Any]) -> pl.DataFrame:
    count = len(columns["reward"])
    made = {}
    for name, value in columns.items():
        if isinstance(value, tuple):
            cuts = offsets_of(value[1])
            value = [value[0][a:b].tolist() for a, b in pairwise(cuts)]
        elif np.ndim(value) == 0:
            value = [value] * count
        made[name] = pl.Series(name, value, dtype=dtype_of(name))
    return pl.DataFrame(made)


def steps_of(seed: int, steps: int = 3) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    made = []
    for step in range(1, steps + 1):
        columns = {**random_step(rng), "step": step}
        columns["acc"] = rng.integers(0, 2, len(columns["reward"])).astype(float)
        made.append(columns)
    return made


def write(folder: Path, frames: list[pl.DataFrame]) -> Trace:
    folder.mkdir(exist_ok=True)
    writer = TraceWriter(folder, Manifest(writer="test"))
    for frame in frames:
        writer.write_step(frame)
    return open_trace(folder)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    columns = [exact_step([1, 2], 3, step=step) for step in (1, 2)]
    return write(tmp_path / "trace", [frame_of(c) for c in columns]).path


def read_all(path: Path) -> list[pl.DataFrame]:
    trace = open_trace(path)
    return [frame for _, frame in trace.frames(trace.columns)]


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        read_all(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def assert_equal(one: RolloutBatch, two: RolloutBatch) -> None:
    for item in dataclasses.fields(RolloutBatch):
        a, b = getattr(one, item.name), getattr(two, item.name)
        pairs = [(a, b)] if item.name != "extras" else [(a[k], b[k]) for k in a.keys() | b.keys()]
        for mine, other in pairs:
            assert np.asarray(mine).dtype == np.asarray(other).dtype, item.name
            np.testing.assert_array_equal(mine, other, err_msg=item.name)


# Reading back


@given(seeds)
@FEW
def test_a_written_trace_reads_back_equal(tmp_path_factory, seed):
    columns = steps_of(seed)
    trace = write(tmp_path_factory.mktemp("t") / "trace", [frame_of(c) for c in columns])
    domains = tuple(sorted({d for c in columns for d in c["domain"]}))
    assert trace.manifest.domains == domains
    batches = list(trace.batches(trace.columns))
    assert len(batches) == len(columns)
    for batch, c in zip(batches, columns, strict=True):
        assert_equal(batch, from_columns(c, domains=domains))
    assert trace.count("responses") == sum(len(c["reward"]) for c in columns)
    assert trace.count("groups") == sum(len(set(c["group_uid"])) for c in columns)
    assert trace.count("tokens") == sum(int(np.sum(c["num_tokens"])) for c in columns)


@given(seeds)
@FEW
def test_sums_stand_in_for_token_lists_that_are_not_read(tmp_path_factory, seed):
    columns = steps_of(seed, 1)
    trace = write(tmp_path_factory.mktemp("t"), [frame_of(c) for c in columns])
    (light,) = trace.batches(["num_tokens"])
    (full,) = trace.batches(["old_log_probs"])
    assert light.old_log_prob_T is None
    np.testing.assert_array_equal(light.one_minus_prob_sq_O, full.one_minus_prob_sq_O)
    cuts = full.token_offsets
    probs = [np.exp(full.old_log_prob_T[a:b].astype(float)) for a, b in pairwise(cuts)]
    slow = [math.fsum((1 - p) ** 2 for p in part) for part in probs]
    np.testing.assert_allclose(full.one_minus_prob_sq_O, slow, rtol=1e-12)


def test_kl_to_the_reference_is_summed_over_tokens(tmp_path):
    row = {
        **ROW,
        "old_log_probs": [-1.0, -2.0, -math.inf],
        "ref_log_probs": [-1.5, -2.0, -math.inf],
    }
    (batch,) = write(tmp_path / "t", [pl.DataFrame([row])]).batches(["ref_kl"])
    assert batch.ref_kl_N[0] == pytest.approx(math.exp(-0.5) + 0.5 - 1)  # k3 of one token


def unreadable(path: Path, columns: list[str]) -> bool:
    try:
        pl.read_parquet(path, columns=columns)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return True
    return False


def spoil_a_column(path: Path, name: str) -> None:
    """Make one column of the first step unreadable, with a checksum that fits."""
    manifest = read_manifest(path)
    file = path / manifest.steps[0].file
    others = [c for c in manifest.columns if c != name]
    data = file.read_bytes()
    for start in range(4, len(data), 8):
        file.write_bytes(data[:start] + bytes(8) + data[start + 8 :])
        if unreadable(file, [name]) and not unreadable(file, others):
            break
    entry = FileEntry(store.sha256_of(file), file.stat().st_size)
    files = {**manifest.files, file.name: entry}
    write_manifest(path, dataclasses.replace(manifest, files=files))


def test_only_the_columns_asked_for_are_read(small):
    spoil_a_column(small, "prompt_id")
    frames = [f for _, f in open_trace(small).frames(["num_tokens", "no_such_column"])]
    base = {"step", "group_uid", "reward", "rollout_idx"}
    assert [set(f.columns) for f in frames] == [base | {"num_tokens"}] * 2
    text = refusal(small)  # reads every column, the unreadable one too
    assert f"{small / 'step_000001.parquet'} can't be read" in text
    for batch in open_trace(small).batches([]):
        assert batch.num_tokens_N is None
        assert batch.old_log_prob_T is None


def test_lists_give_lengths_that_nobody_wrote(tmp_path):
    rows = [{**ROW, "rollout_idx": i, "old_log_probs": [-1.0] * i} for i in range(3)]
    trace = write(tmp_path / "t", [pl.DataFrame(rows)])
    (batch,) = trace.batches(["num_tokens"])
    assert batch.num_tokens_N.tolist() == [0, 1, 2]
    assert trace.count("tokens") == 3


def test_a_missing_reward_is_read_as_nan_and_trains_nothing(tmp_path):
    rows = [{**ROW, "rollout_idx": i, "reward": r} for i, r in enumerate([1.0, math.nan, 0.0])]
    (batch,) = write(tmp_path / "t", [pl.DataFrame(rows)]).batches([])
    assert np.isnan(batch.reward_N).tolist() == [False, True, False]
    assert batch.advantage_N[1] == 0.0
    assert batch.advantage_N[0] == -batch.advantage_N[2] != 0.0


# Fingerprint


@given(seeds)
@FEW
def test_the_fingerprint_is_of_the_content(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    columns = steps_of(seed)
    frames = [frame_of(c) for c in columns]
    folder = tmp_path_factory.mktemp("t")
    mark = write(folder / "a", frames).manifest.fingerprint
    shuffled = [f[rng.permutation(f.height).tolist()] for f in frames]
    shuffled = [f.select(rng.permutation(f.columns).tolist()) for f in shuffled]
    assert write(folder / "b", shuffled[::-1]).manifest.fingerprint == mark
    row = int(rng.integers(frames[0].height))
    name = str(rng.choice(["reward", "acc", "rollout_idx"]))
    index = pl.int_range(pl.len())
    touched = frames[0].with_columns(
        pl.when(index == row).then(pl.col(name) + 31).otherwise(pl.col(name)).alias(name)
    )
    assert write(folder / "c", [touched, *frames[1:]]).manifest.fingerprint != mark
    moved = frames[2].with_columns(step=pl.lit(9))
    assert write(folder / "d", [*frames[:2], moved]).manifest.fingerprint != mark


# Changed bytes


def flipped(data: bytes, position: int, mask: int) -> bytes:
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def test_a_changed_byte_anywhere_in_the_manifest_is_refused(small):
    path = small / MANIFEST
    data = path.read_bytes()
    for position, byte in enumerate(data):
        # 0x07 makes a carriage return of a newline, which text reading would undo
        mask = 0x07 if byte == ord("\n") else (0x01, 0x20, 0x80)[position % 3]
        path.write_bytes(flipped(data, position, mask))
        with pytest.raises(TraceError) as caught:
            read_manifest(small)
        assert str(path) in str(caught.value)
    path.write_bytes(data)
    assert len(read_all(small)) == 2


def test_a_changed_byte_anywhere_in_a_step_is_refused(small):
    path = small / "step_000002.parquet"
    data = path.read_bytes()
    for position in [*range(0, len(data), 37), len(data) - 1]:
        path.write_bytes(flipped(data, position, 0x10))
        assert str(path) in refusal(small)
    path.write_bytes(data)
    assert len(read_all(small)) == 2


@pytest.mark.parametrize("name", [MANIFEST, "step_000001.parquet"])
@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d[:0], lambda d: d[: len(d) // 2], lambda d: d + b"\n"]
)
def test_a_shortened_or_lengthened_file_is_refused(small, name, change):
    path = small / name
    path.write_bytes(change(path.read_bytes()))
    assert str(path) in refusal(small)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("manifest_sha256", "manifest_sha257"),
        lambda text: json.dumps({**json.loads(text), "manifest_sha256": ""}),
        lambda text: json.dumps(json.loads(text)),
        lambda text: "[]",
        lambda text: "null",
    ],
)
def test_a_rewritten_manifest_is_refused(small, change):
    path = small / MANIFEST
    path.write_bytes(change(path.read_text()).encode())
    assert str(path) in refusal(small)
    assert "changed after dfsim wrote it" in refusal(small)


def test_a_missing_step_file_is_refused_by_name(small):
    (small / "step_000001.parquet").unlink()
    assert f"{small / 'step_000001.parquet'} is missing" in refusal(small)


def test_steps_swapped_between_files_are_refused(small):
    one, two = small / "step_000001.parquet", small / "step_000002.parquet"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert str(one) in refusal(small)


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_another_format_version_is_refused_by_number(small, version):
    path = small / MANIFEST
    record = json.loads(path.read_text())
    text = json.dumps({**record, "version": version, "new": 1, "manifest_sha256": "0" * 64})
    path.write_text(text.replace("0" * 64, _digest(text)))
    text = refusal(small)
    assert f"{path}: trace format version {version}; this dfsim reads version 1" in text


# Writers that are stopped, resumed, or repeat themselves


def test_what_a_stopped_writer_left_is_invisible(small):
    before = read_all(small)
    (small / "step_000003.parquet").write_bytes((small / "step_000002.parquet").read_bytes())
    (small / ".step_000004.tmp-1").write_bytes(b"PAR1 half of a st")
    (small / f".{MANIFEST}.tmp-1").write_bytes(b"{")
    after = read_all(small)
    assert len(after) == 2
    assert all(a.equals(b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("where", ["write_manifest", "content_digest", "sha256_of"])
def test_a_stopped_writer_leaves_earlier_steps_as_they_were(small, monkeypatch, where, step):
    before = read_all(small)

    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    writer = TraceWriter(small, Manifest(writer="test"))
    monkeypatch.setattr(store, where, stop)
    with pytest.raises(KeyboardInterrupt):
        writer.write_step(frame_of(exact_step([3, 0, 1], 4, step=step)))
    monkeypatch.undo()
    after = read_all(small)
    assert len(after) == 2
    assert all(a.equals(b) for a, b in zip(before, after, strict=True))
    assert not list(small.glob(".*"))
    TraceWriter(small, Manifest(writer="test")).write_step(
        frame_of(exact_step([3, 0, 1], 4, step=step))
    )
    assert [f.height for f in read_all(small)] == ([6, 12] if step == 2 else [6, 6, 12])


def test_a_step_written_again_replaces_the_first(small):
    for solved in ([3, 0, 1], [2, 2], [1, 1], [1, 1]):
        writer = TraceWriter(small, Manifest(writer="ignored"))
        writer.write_step(frame_of(exact_step(solved, 3, step=1)))
        trace = open_trace(small)
        assert [s.step for s in trace.manifest.steps] == [1, 2]
        batch = next(trace.batches([]))
        assert batch.reward_N.sum() == sum(solved)
        assert trace.count("groups") == len(solved) + 2
        named = {s.file for s in trace.manifest.steps}
        assert {p.name for p in small.iterdir()} == named | {MANIFEST}
        assert set(trace.manifest.files) == named


def test_a_resumed_writer_keeps_the_settings_of_the_trace(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    first = Manifest(writer="one", label="careful", config={"n": 4, "ppo_mini_batch_size": 2})
    TraceWriter(folder, first).write_step(frame_of(exact_step([1], 4, step=5)))
    TraceWriter(folder, Manifest(writer="two")).write_step(frame_of(exact_step([1], 4, step=1)))
    trace = open_trace(folder)
    assert [b.step for b in trace.batches([])] == [1, 5]
    assert (trace.manifest.label, trace.manifest.mini_batch_rows) == ("careful", 8)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], ["without a response"]),
        ([{"step": 1, "group_uid": "a"}], ["'reward' is missing"]),
        ([{**ROW, "group_uid": None}], ["'group_uid' is missing"]),
        ([ROW, ROW], ["step 1", "'a'", "rollout_idx=0", "twice"]),
        ([ROW, {**ROW, "step": 2, "rollout_idx": 1}], ["steps 1 and 2"]),
        (
            [{**ROW, "num_tokens": 3}, {**ROW, "rollout_idx": 1}],
            ["step 1", "'num_tokens'", "1 of 2"],
        ),
        ([ROW, {**ROW, "rollout_idx": None}], ["step 1", "'rollout_idx'", "1 of 2"]),
        ([{**ROW, "advantage": 1.0}, {**ROW, "rollout_idx": 1}], ["'advantage'", "1 of 2"]),
        ([{**ROW, "reward": "high"}], ["'reward' does not fit"]),
        ([{**ROW, "note": "text"}], ["'note' does not fit"]),
        ([{**ROW, "old_log_probs": [-1.0], "num_tokens": 2}], ["step 1", "'num_tokens' has 2"]),
    ],
)
def test_a_step_no_reader_could_use_is_not_written(tmp_path, rows, said):
    with pytest.raises(TraceError) as caught:
        write(tmp_path / "t", [pl.DataFrame(rows)])
    assert all(part in str(caught.value) for part in said)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "t").iterdir()) == []


def test_a_column_the_trace_lacks_is_named_with_its_remedy(small):
    trace = open_trace(small)
    trace.require(["old_log_probs", "advantage", "num_tokens"], "anything")
    with pytest.raises(TraceError, match=r"ar needs column 'entropy'.*--map entropy"):
        trace.require(["reward", "entropy"], "ar")
    assert set(trace.columns) <= set(COLUMNS)
