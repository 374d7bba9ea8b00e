"""Importing: what real and spoilt sources become, and what each refusal says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st

from dfsim.strategies.build import build
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.errors import TraceError
from dfsim.traces.importers.base import ImportOptions, ImportSummary
from dfsim.traces.importers.importing import import_trace
from dfsim.traces.importers.sources import read_chunks
from dfsim.traces.storage.store import Trace, open_trace

VERL = {
    "group_uid": "uid",
    "rollout_idx": "session_key",
    "output_idx": "output_index",
    "reward": "score",
    "prompt_id": "prompts",
    "advantage": "advantages",
}
ROW: dict[str, Any] = {"step": 1, "group_uid": "g", "rollout_idx": 0, "reward": 1.0}


def jsonl(path: Path, rows: Any) -> Path:
    text = rows if isinstance(rows, str) else "".join(json.dumps(r) + "\n" for r in rows)
    path.write_text(text, encoding="utf-8")
    return path


class Desk:
    """Imports sources of a test's own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"

    def __call__(
        self, rows: Any, config: Any = None, **options: Any
    ) -> tuple[ImportSummary, Trace]:
        source = rows if isinstance(rows, Path) else jsonl(self.folder / "rows.jsonl", rows)
        options = ImportOptions(**options)
        summary = import_trace(source, self.out, options=options, config=config, force=True)
        return summary, open_trace(self.out)

    def rows(self, rows: Any, **options: Any) -> list[dict[str, Any]]:
        _, trace = self(rows, **options)
        return [row for _, frame in trace.frames(trace.columns) for row in frame.to_dicts()]

    def refusal(self, rows: Any, **options: Any) -> str:
        with pytest.raises(TraceError) as caught:
            self(rows, **options)
        assert "\n" not in str(caught.value)
        assert not self.out.exists()
        assert not [p for p in self.folder.iterdir() if p.name.startswith(".")]
        return str(caught.value)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# Real captures


def test_a_multi_output_capture_becomes_one_response_a_session(desk):
    source = FIXTURES / "multi_output.parquet"
    summary, trace = desk(source, columns=VERL)
    assert (summary.rows, summary.padding, summary.responses, summary.steps) == (1920, 708, 938, 5)
    assert summary.outputs == 1920 - 708 - 938
    assert (trace.count("responses"), trace.count("groups")) == (938, 120)
    raw = pl.read_parquet(source).filter(~pl.col("is_padding"))
    assert trace.count("tokens") == raw["response_mask"].list.sum().sum()
    real, kept = set(raw["uid"]), set()
    for batch in trace.batches([*trace.columns]):
        assert not [uid for uid in batch.uid_G if uid.startswith("pad")]
        kept |= set(batch.uid_G)
        assert 5 <= batch.group_size_G.min() <= batch.group_size_G.max() <= 8
        assert len(batch.output_tokens_O) == raw.filter(pl.col("step") == batch.step).height
        if batch.step == 1:
            totals = np.bincount(batch.mini_batch_O, weights=batch.output_tokens_O)
            assert totals.tolist() == [758, 205]
    assert kept == real


def test_a_session_keeps_its_outputs_tokens_in_order(desk):
    _, trace = desk(FIXTURES / "multi_output.parquet", columns=VERL)
    raw = pl.read_parquet(FIXTURES / "multi_output.parquet").filter(~pl.col("is_padding"))
    wanted: dict[Any, list[float]] = {}
    for row in raw.sort("output_index").iter_rows(named=True):
        key = row["step"], row["uid"], int(row["session_key"].rsplit("_", 1)[1])
        tokens = zip(row["old_log_probs"], row["response_mask"], strict=True)
        wanted.setdefault(key, []).extend(v for v, mask in tokens if mask == 1)
    found = {
        (row["step"], row["group_uid"], row["rollout_idx"]): row["old_log_probs"]
        for _, frame in trace.frames(["old_log_probs"])
        for row in frame.iter_rows(named=True)
    }
    assert found == wanted


def test_row_order_of_a_two_rank_capture_decides_nothing(desk, shared, tmp_path):
    parts = sorted((shared / "verl_cpu_grpo_two_ranks").glob("*.parquet"))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for number, part in enumerate(parts):
        frame = pl.read_parquet(part)
        frame.write_parquet(tmp_path / "a" / part.name)
        frame.sample(fraction=1, shuffle=True, seed=number).write_parquet(
            tmp_path / "b" / part.name
        )
    for name in ("a", "b"):
        import_trace(tmp_path / name, tmp_path / f"trace-{name}", options=ImportOptions(VERL))
    one, two = open_trace(tmp_path / "trace-a"), open_trace(tmp_path / "trace-b")
    assert one.manifest.fingerprint == two.manifest.fingerprint
    wanted = one.columns
    for first, second in zip(one.batches(wanted), two.batches(wanted), strict=True):
        assert first.num_responses == 192
        for name in WEIGHING:
            a, b = build(name).decide(first), build(name).decide(second)
            for field in ("weight_N", "token_weight_T", "advantage_N"):
                np.testing.assert_array_equal(getattr(a, field), getattr(b, field), err_msg=name)


def test_importing_a_traces_own_files_gives_the_same_trace(desk, bundled):
    summary, trace = desk(bundled.path)
    assert trace.manifest.fingerprint == bundled.manifest.fingerprint
    assert summary.responses == bundled.count("responses")


# Layout of the source


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_rows_may_come_in_any_order_files_and_format(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    rows = [
        {**ROW, "step": step, "group_uid": f"g{g}", "rollout_idx": i, "reward": float(r)}
        | {"num_tokens": int(t), "acc": float(a), "domain": f"d{g % 2}"}
        for step in (1, 2)
        for g in range(3)
        for i, (r, t, a) in enumerate(rng.integers(0, 9, (4, 3)))
    ]
    folder = tmp_path_factory.mktemp("t")
    jsonl(folder / "whole.jsonl", rows)
    (folder / "parts").mkdir()
    shuffled = [rows[i] for i in rng.permutation(len(rows))]
    for number, part in enumerate(np.array_split(np.arange(len(rows)), 4)):
        mine = [shuffled[i] for i in part]
        if number % 2:
            pl.DataFrame(mine).write_parquet(folder / "parts" / f"{number}.parquet")
        else:
            jsonl(folder / "parts" / f"{number}.jsonl", mine)
    marks = set()
    for name in ("whole.jsonl", "parts"):
        import_trace(folder / name, folder / f"out-{name}")
        trace = open_trace(folder / f"out-{name}")
        marks.add(trace.manifest.fingerprint)
        assert trace.count("responses") == len(rows)
    assert len(marks) == 1


def test_chunks_of_a_long_file_join(desk, monkeypatch):
    monkeypatch.setattr(read_chunks, "__defaults__", (3,))
    rows = [{**ROW, "rollout_idx": i, "reward": i / 2, "acc": None if i else 1} for i in range(8)]
    table = desk.folder / "rows.parquet"
    pl.DataFrame(rows).write_parquet(table)
    for number, source in enumerate([jsonl(desk.folder / "rows.jsonl", rows), table]):
        read: list[int] = []
        out = desk.folder / f"chunks-{number}"
        import_trace(source, out, format="flat", progress=read.append)
        (batch,) = open_trace(out).batches(["acc"])
        assert read == [3, 6, 8]
        assert batch.reward_N.tolist() == [i / 2 for i in range(8)]
        np.testing.assert_array_equal(batch.extras["acc"], [1.0] + [math.nan] * 7)
    rows[6]["reward"] = "x"
    desk.out = desk.folder / "second"
    assert "rows.jsonl:7: column 'reward' holds 'x'" in desk.refusal(rows)
    pl.DataFrame([{**row, "reward": str(row["reward"])} for row in rows]).write_parquet(table)
    assert "rows.parquet:7: column 'reward' holds 'x'" in desk.refusal(table)


def test_files_may_differ_in_what_they_leave_out(desk):
    folder = desk.folder / "source"
    folder.mkdir()
    jsonl(folder / "1.jsonl", [{**ROW, "domain": "math", "acc": 1}])
    jsonl(folder / "2.jsonl", [{**ROW, "group_uid": "h"}])
    (folder / "notes.txt").write_text("not read")
    (folder / ".3.jsonl").write_text("not read either")
    _, trace = desk(folder)
    (batch,) = trace.batches(["domain", "acc"])
    assert [batch.domains[c] for c in batch.domain_N] == ["math", "unlabelled"]
    np.testing.assert_array_equal(batch.extras["acc"], [1.0, math.nan])


def test_sources_that_hold_nothing_say_so(desk):
    empty = desk.folder / "empty"
    empty.mkdir()
    none = jsonl(desk.folder / "none.jsonl", "\n \n")
    header = desk.folder / "header.parquet"
    pl.DataFrame([ROW]).clear().write_parquet(header)
    padding = jsonl(desk.folder / "pad.jsonl", [{**ROW, "is_padding": True}])
    fake = desk.folder / "fake.parquet"
    fake.write_text("no Parquet")
    text = desk.folder / "rows.txt"
    text.write_text("a,b")
    for source, said in [
        (desk.folder / "nowhere", "does not exist"),
        (empty, "holds no .csv or .jsonl or .parquet file"),
        (none, "nothing to import"),
        (header, "nothing to import"),
        (padding, "of 1 rows 1 are padding"),
        (fake, "can't be read as Parquet"),
        (text, "is no .csv or .jsonl or .parquet file"),
    ]:
        refused = desk.refusal(source)
        assert str(source) in refused
        assert said in refused


# Values


@pytest.mark.parametrize(
    ("reward", "kept"), [(True, 1.0), (False, 0.0), ("0.5", 0.5), (3, 3.0), (-2.5, -2.5)]
)
def test_numbers_by_other_names_are_numbers(desk, reward, kept):
    (row,) = desk.rows([{**ROW, "reward": reward}])
    assert row["reward"] == kept


@pytest.mark.parametrize("rewards", [[1, 0.25, True], [0.5, "0.75", 1], [1, 10**30, 0.5]])
def test_mixed_kinds_of_number_in_one_column_keep_their_values(desk, rewards):
    rows = desk.rows([{**ROW, "rollout_idx": i, "reward": r} for i, r in enumerate(rewards)])
    assert [r["reward"] for r in rows] == [float(r) for r in rewards]


@pytest.mark.parametrize(
    ("bad", "column", "shown", "remedy"),
    [
        ({"reward": None}, "reward", "no value", "every row needs one"),
        ({"reward": "high"}, "reward", "'high'", "float64"),
        ({"reward": math.nan}, "reward", "nan", "finite reward"),
        ({"reward": math.inf}, "reward", "inf", "finite reward"),
        ({"reward": "-Infinity"}, "reward", "-inf", "finite reward"),
        ({"reward": [0.5]}, "reward", "[0.5]", "it must be"),
        ({"reward": {"total": 1}}, "reward", '{"total": 1}', "it must be"),
        ({"step": 1.5}, "step", "1.5", "int"),
        ({"step": None}, "step", "no value", "every row needs one"),
        ({"group_uid": None}, "group_uid", "no value", "every row needs one"),
        ({"rollout_idx": 0.5}, "rollout_idx", "0.5", "int"),
        ({"num_tokens": -1}, "num_tokens", "-1", "≥ 0"),
        ({"num_tokens": 2.5}, "num_tokens", "2.5", "int"),
        ({"num_tokens": None}, "num_tokens", "no value", "leave the column out"),
        ({"advantage": math.nan}, "advantage", "nan", "finite"),
        ({"advantage": None}, "advantage", "no value", "leave the column out"),
        ({"is_padding": "maybe"}, "is_padding", "'maybe'", "int"),
        ({"old_log_probs": [-0.5, "x"]}, "old_log_probs", "'x'", "float32"),
        ({"old_log_probs": None}, "old_log_probs", "no value", "leave the column out"),
        ({"advantages": [0.5, math.inf]}, "advantages", "[0.5, inf]", "finite"),
        ({"mini_batch": [0, 1.5]}, "mini_batch", "1.5", "int"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_place(desk, bad, column, shown, remedy):
    good = {"num_tokens": 2, "advantage": 0.5, "is_padding": 0, "old_log_probs": [-1.0, -1.0]}
    good |= {"advantages": [0.5, 0.5], "mini_batch": [0, 0], "output_tokens": [1, 1]}
    row = {**ROW, **{k: good[k] for k in bad if k in good}}
    text = desk.refusal([row, {**row, "rollout_idx": 1, **bad}, {**row, "rollout_idx": 2}])
    assert text.startswith(f"{desk.folder / 'rows.jsonl'}:2: column '{column}' holds ")
    assert shown in text
    assert remedy in text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{bad", "is not JSON"),
        ("[1, 2]", "is not a JSON object"),
        ("3", "is not a JSON object"),
        ("[" * 100_000, "is not JSON"),
        ('{"step": 1, "group_uid": "g", "reward": NaN, "rollout_idx": 1}', "'reward' holds nan"),
    ],
)
def test_a_bad_line_is_named_and_blank_lines_count(desk, line, said):
    text = desk.refusal("\n" + json.dumps(ROW) + "\n   \n" + line + "\n")
    assert text.startswith(f"{desk.folder / 'rows.jsonl'}:4")
    assert said in text


def test_text_that_is_not_utf8_is_refused_and_a_byte_order_mark_is_not(desk):
    assert len(desk.rows("\ufeff" + json.dumps(ROW))) == 1
    path = desk.folder / "latin.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b' \xe9"')
    desk.out = desk.folder / "second"
    assert f"{path} can't be read as UTF-8" in desk.refusal(path)


def test_uids_that_utf8_cannot_hold_stay_apart(desk):
    rows = desk.rows([{**ROW, "group_uid": "\ud800"}, {**ROW, "group_uid": "\ud801"}])
    assert len({r["group_uid"] for r in rows}) == 2


# Columns


def test_columns_are_renamed_and_mistakes_are_met_with_the_nearest_name(desk):
    rows = [{"iter": 4, "uid": 7, "score": 0.5, "reward": 9.0, "step": 8}]
    columns = {"step": "iter", "group_uid": "uid", "reward": "score"}
    (row,) = desk.rows(rows, columns=columns)
    assert (row["step"], row["group_uid"], row["reward"]) == (4, "7", 0.5)
    desk.out = desk.folder / "second"
    text = desk.refusal(rows, columns={**columns, "reward": "scor"})
    assert "rows.jsonl has no column 'scor' (did you mean 'score'?)" in text
    assert "--map reward=scor" in text
    text = desk.refusal([{"step": 1, "group_uid": "g", "rewards": 1.0}])
    assert "rows.jsonl" in text
    assert "--map reward=rewards" in text
    assert "column 'score' (as reward) holds 'x'" in desk.refusal(
        [{**ROW, "score": "x"}], columns={"reward": "score"}
    )
    with pytest.raises(TraceError, match=r"'rewrd'.*did you mean 'reward'"):
        ImportOptions({"rewrd": "score"})
    with pytest.raises(TraceError, match=r"'flta'.*did you mean 'flat'"):
        import_trace(desk.folder, desk.out, format="flta")


def test_only_three_columns_are_required_and_the_order_of_rows_is_told(desk):
    rows = [{"step": 1, "group_uid": g, "reward": r} for g, r in (("a", 1), ("b", 2), ("a", 3))]
    summary, trace = desk([{**row, "mini_batch": 0} for row in rows])
    (batch,) = trace.batches(["mini_batch"])
    assert (batch.rollout_idx_N.tolist(), batch.reward_N.tolist()) == ([0, 1, 0], [1, 3, 2])
    assert batch.mini_batch_O.tolist() == [0, 0, 0]
    assert any("order of their rows" in note for note in summary.notes)
    assert (summary.lengths, trace.has("num_tokens")) == (None, False)


@pytest.mark.parametrize(("text", "index"), [("uid_2", 2), ("a-1_x_10", 10), ("7", 7)])
def test_the_index_at_the_end_of_a_key_is_used(desk, text, index):
    assert desk.rows([{**ROW, "rollout_idx": text}])[0]["rollout_idx"] == index


@pytest.mark.parametrize("text", ["uid_x", "", "9" * 30])
def test_a_key_without_a_usable_index_is_refused(desk, text):
    assert f"holds {text!r}; it must be, or end in, a whole number" in desk.refusal(
        [{**ROW, "rollout_idx": text}]
    )


def test_padding_goes_by_its_flag_and_no_flag_is_no_padding(desk):
    flags = [False, None, True, 1, 0]
    rows = [{**ROW, "rollout_idx": i, "is_padding": flag} for i, flag in enumerate(flags)]
    rows[2]["reward"] = "whatever"  # padding holds anything
    summary, trace = desk(rows)
    assert [b.rollout_idx_N.tolist() for b in trace.batches([])] == [[0, 1, 4]]
    assert (summary.rows, summary.padding, summary.responses) == (5, 2, 3)


def test_lengths_come_from_characters_or_a_tokenizer_and_are_recorded(desk):
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"two": 0, "words": 1, "?": 2}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(desk.folder / "words.json"))
    texts = ["two words", "", None, "naïve"]
    rows = [{**ROW, "rollout_idx": i, "answer": text} for i, text in enumerate(texts)]
    for options, lengths, unit in [
        ({"length": "chars"}, [9, 0, 0, 5], "characters"),
        ({"tokenizer": desk.folder / "words.json"}, [2, 0, 0, 1], "tokens of words.json"),
    ]:
        summary, trace = desk(rows, columns={"response": "answer"}, **options)
        assert [b.num_tokens_N.tolist() for b in trace.batches(["num_tokens"])] == [lengths]
        assert summary.lengths == trace.manifest.lengths == unit
        assert "response" not in trace.columns
    desk.out = desk.folder / "second"
    assert "--length chars measures" in desk.refusal([ROW], length="chars")
    assert "does not exist" in desk.refusal(rows, tokenizer=desk.folder / "none.json")
    assert "is no tokenizer.json" in desk.refusal(rows, tokenizer=desk.folder / "rows.jsonl")


def test_numbers_are_kept_and_text_only_when_asked(desk):
    row = {**ROW, "acc": True, "f1": 0.5, "note": "x", "prompt": "p", "response": "r"}
    summary, trace = desk([row])
    assert trace.extras == ("acc", "f1")
    assert any("note" in note for note in summary.notes)
    assert not {"note", "prompt", "response"} & set(trace.columns)
    (kept,) = desk.rows([row], keep_text=True)
    assert (kept["prompt"], kept["response"], kept["acc"]) == ("p", "r", 1.0)
