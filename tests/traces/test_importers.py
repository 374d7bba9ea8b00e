"""Importers of other people's files: what each becomes, and the sentence a useless one gets."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from dumps import Desk, jsonl, said, trl, trl_folder, v0, v1, with_advantage

import dfsim
from dfsim.traces.advantage import AdvantageConfig, advantages
from dfsim.traces.importers.formats import verl


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# verl v1


def test_v1_keys_name_group_session_and_output(desk):
    rows = [
        v1("a_0_0", 1.0, acc=1),
        v1("a_1_0", "0.0"),
        v1("a_1_1", "0.0", acc=None),
        v1("b-x_3_y_0_0", 0.5, acc=0.25),
        v1("a_10_0", 1.0),
        *(v0("", 0.0, output="", uid=f"pad9f3_{i}_0") for i in range(3)),
    ]
    summary, trace = desk(rows)
    assert said(summary, "--format verl)")
    assert (summary.rows, summary.padding, summary.outputs, summary.responses) == (8, 3, 1, 4)
    (frame,) = [frame for _, frame in trace.frames(["acc", "prompt_id"])]
    keys = frame.select("group_uid", "rollout_idx", "reward").rows()
    assert keys == [("a", 0, 1.0), ("a", 1, 0.0), ("a", 10, 1.0), ("b-x_3_y", 0, 0.5)]
    assert frame["acc"].to_list() == [1.0, None, None, 0.25]
    assert frame["prompt_id"].n_unique() == 2
    assert not {"gts", "uid", "input"} & set(trace.columns)


def test_v1_outputs_of_a_session_share_a_prompt_though_their_inputs_grow(desk):
    rows = [v1("a_0_0", 1.0), v1("a_0_1", 1.0, input="question a, and a tool's answer")]
    rows.append(v1("a_1_0", 0.0))
    (batch,) = desk(rows, length="chars")[1].batches(["prompt_id", "num_tokens"])
    assert batch.num_tokens_N.tolist() == [12, 6]
    assert batch.output_tokens_O.tolist() == [6, 6, 6]
    assert len(batch.prompt_id_G) == 1


def test_v1_groups_of_one_prompt_in_one_step_stay_two(desk):
    rows = [v1(f"{u}_{i}_0", i % 2, input="the same") for u in "ab" for i in range(2)]
    (batch,) = desk(rows)[1].batches(["prompt_id"])
    assert (batch.uid_G.tolist(), batch.group_size_G.tolist()) == (["a", "b"], [2, 2])
    assert len(set(batch.prompt_id_G)) == 1


def test_v1_outputs_that_disagree_on_the_score_are_refused(desk):
    text = desk.refusal([v1("a_0_0", 1.0), v1("a_0_1", 0.0)])
    assert "rollout_idx=0 differ in reward by 1" in text


@pytest.mark.parametrize("uid", ["group-7", "a_0", "a_x_0", "", None])
def test_v1_with_a_uid_that_is_no_key_is_refused_with_the_way_that_works(desk, uid):
    rows = [v1("a_0_0"), v1("a_1_0", uid=uid)]
    text = desk.refusal(rows, "verl")
    shown = "no value" if uid is None else repr(uid)
    assert f"1.jsonl:2: column 'uid' holds {shown};" in text
    assert "--format flat" in text


def test_a_uid_that_is_a_group_is_imported_as_the_refusal_says(desk):
    source = desk.file([v1("group-7", i % 2) for i in range(4)])
    text = desk.refusal(source)
    for name, column in [("group_uid", "uid"), ("reward", "score"), ("prompt", "input")]:
        assert f"--map {name}={column}" in text
    columns = {"group_uid": "uid", "reward": "score", "prompt": "input"}
    (batch,) = desk(source, "flat", columns=columns)[1].batches([])
    assert (batch.uid_G.tolist(), batch.reward_N.tolist()) == (["group-7"], [0, 1, 0, 1])


# Steps


@pytest.mark.parametrize("make", [v0, lambda p, s: v1(f"{p}_0_0", s)])
def test_steps_come_from_file_names_in_the_order_of_their_numbers(desk, make):
    folder = desk.folder / "dump"
    for step in (10, 2, 1):
        rows = [make(f"q{i}", float(step)) for i in range(3)]
        jsonl(folder / f"{step}.jsonl", [{k: r[k] for k in r if k != "step"} for r in rows])
    _, trace = desk(folder)
    assert [b.step for b in trace.batches([])] == [1, 2, 10]
    assert [b.reward_N.tolist() for b in trace.batches([])] == [[1.0] * 3, [2.0] * 3, [10.0] * 3]


def test_a_step_that_nothing_tells_is_asked_for_and_may_be_mapped(desk):
    rows = [{k: v for k, v in v0(f"q{i}", iteration=4).items() if k != "step"} for i in range(2)]
    source = desk.file(rows, "rollouts.jsonl")
    assert "--map step=COLUMN" in desk.refusal(source)
    (batch,) = desk(source, columns={"step": "iteration"})[1].batches([])
    assert batch.step == 4


# verl v0


def test_the_real_v0_dump_says_groups_of_one_and_invents_nothing(desk, shared):
    source = shared / "verl_v0" / "1.jsonl"
    raw = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    assert len({r["input"] for r in raw}) == len(raw) == 128
    summary, trace = desk(source)
    assert said(summary, "each response is a group of one")
    (batch,) = trace.batches([])
    assert (batch.num_groups, batch.group_size_G.max()) == (128, 1)
    assert sorted(batch.reward_N) == sorted(float(r["score"]) for r in raw)
    assert (batch.reward_N == 0).sum() == 126
    assert not batch.live_G.any()
    assert not {"num_tokens", "domain", "advantage"} & set(trace.columns)


def test_v0_is_never_grouped_by_text_unasked(desk):
    source = desk.file([v0(f"q{i % 3}\nLine two.", i % 2) for i in range(12)] + [v0("alone")])
    text = desk.refusal(source)
    for part in ("13 rows hold 4 prompt texts", "1 rows × 1 prompts", "4 rows × 3 prompts"):
        assert part in text
    assert "--group-by input" in text
    assert "--group-size N" in text
    summary, trace = desk(source, group_by="input")
    (batch,) = trace.batches([])
    assert sorted(batch.group_size_G.tolist()) == [1, 4, 4, 4]
    assert said(summary, "'input'", "--group-by")
    assert not any("\n" in uid for uid in batch.uid_G)
    assert "no column 'sample_id' to group by; it has: " in desk.refusal(
        source, group_by="sample_id"
    )


def test_v0_blocks_go_by_the_size_that_the_user_gives(desk, monkeypatch):
    rows = [v0(f"q{i // 4}", float(i)) for i in range(12)]
    for chunk in (50_000, 5):  # blocks never lie across chunks, nor share a name
        monkeypatch.setattr(verl, "CHUNK_ROWS", chunk)
        (batch,) = desk(rows, group_size=4)[1].batches([])
        assert batch.group_size_G.tolist() == [4, 4, 4]
        assert batch.reward_N.tolist() == list(range(12))
        assert "has 11 rows, no multiple of 4; --group-size is" in desk.refusal(
            rows[:11], group_size=4
        )
        mixed = [*rows[:6], rows[8], rows[7], rows[6], *rows[9:]]
        text = desk.refusal(mixed, group_size=4)
        assert "1.jsonl:5: block 2 of 4 rows holds 2 prompts" in text
        assert "balance_batch" in text
        late = [{**row, "step": 1 + i // 6} for i, row in enumerate(rows)]
        text = desk.refusal(late, group_size=4)
        assert "1.jsonl:5: block 2 of 4 rows holds 2 prompts or steps" in text


def test_v0_prompts_that_repeat_in_a_later_chunk_are_seen(desk, monkeypatch):
    monkeypatch.setattr(verl, "CHUNK_ROWS", 2)
    assert "has no group id" in desk.refusal([v0("a"), v0("b"), v0("c"), v0("a")])
    assert desk([v0("a"), v0("b"), v0("c"), v0("a", step=2)])[1].count("groups") == 4


def test_v0_numbers_that_were_written_as_text_are_kept(desk):
    """``default=str`` writes a NumPy float as text; bare NaN is what json.dumps writes."""
    rows = [v0("a", "0.5", acc="1.0", f1="0.25", ok="True", pred="7", request_id="12", note="x")]
    rows += [v0("b", 1, acc=None, f1=math.nan, ok="False", pred="seven", request_id="13")]
    summary, trace = desk(rows)
    assert trace.extras == ("acc", "f1", "ok")
    assert said(summary, "Left out", "pred", "note")
    (batch,) = trace.batches(["acc", "f1", "ok"])
    assert batch.extras["ok"].tolist() == [1.0, 0.0]
    assert batch.reward_N.tolist() == [0.5, 1.0]
    np.testing.assert_array_equal(batch.extras["acc"], [1.0, math.nan])
    np.testing.assert_array_equal(batch.extras["f1"], [0.25, math.nan])


@pytest.mark.parametrize("make", [v0, lambda p, s, **k: v1(f"{p}_0_0", s, **k)])
def test_another_column_may_be_the_reward(desk, make):
    """A validation dump has ``reward`` beside ``score``."""
    source = desk.file([make("a", 0.0, reward=0.25, acc=1), make("b", 1.0, reward=0.75, acc=0)])
    assert desk.rows(source)["reward"].to_list() == [0.0, 1.0]
    assert desk.rows(source, columns={"reward": "reward"})["reward"].to_list() == [0.25, 0.75]
    frame = desk.rows(source, columns={"reward": "acc"})
    assert (frame["reward"].to_list(), frame["score"].to_list()) == ([1.0, 0.0], [0.0, 1.0])
    assert "no column 'ac' (did you mean 'acc'?)" in desk.refusal(source, columns={"reward": "ac"})


# TRL


def test_the_real_trl_run_has_111_live_groups_and_its_own_advantages(desk, shared):
    summary, trace = desk(shared / "trl_run")
    assert (summary.steps, summary.responses, trace.count("groups")) == (300, 1800, 300)
    assert said(summary, "blocks of 6 rows")
    config = trace.manifest.advantage_config
    assert (config.adv_estimator, config.eps) == ("grpo", 1e-4)
    live = 0
    for batch in trace.batches(["advantage"]):
        live += int(batch.live_G.sum())
        recomputed = advantages(batch.reward_N, batch.group_offsets, config)
        np.testing.assert_allclose(recomputed, batch.advantage_N, atol=1e-6, rtol=0)
    assert live == 111
    result = dfsim.replay(trace, ["dapo"], resamples=2)
    assert result.strategies["none"].estimates["live_group_frac"].mean == pytest.approx(111 / 300)
    assert result.strategies["dapo"].estimates["kept_group_frac"].mean == pytest.approx(111 / 300)


GROUPS = [[0, 1, 1, 0], [1, 1, 1, 1], [0.5, 0, 0, 1]]


def test_trl_blocks_are_the_runs_of_a_prompt_or_as_given(desk):
    steps = {s: with_advantage(trl(s, GROUPS), GROUPS) for s in (1, 2)}
    source = trl_folder(desk.folder / "a", steps)
    summary, trace = desk(source)
    assert said(summary, "--format trl)")
    assert said(summary, "blocks of 4 rows")
    for batch in trace.batches([]):
        assert batch.reward_N.reshape(-1, 4).tolist() == GROUPS
    # One prompt drawn twice in a row is two blocks, once the size is given.
    twice = [[0, 1], [1, 1], [0, 0], [1, 0]]
    source = trl_folder(desk.folder / "b", {1: trl(1, twice, ["p", "p", "q", "q"])})
    assert [b.num_groups for b in desk(source)[1].batches([])] == [2]
    assert [b.num_groups for b in desk(source, group_size=2)[1].batches([])] == [4]
    assert "has 8 rows, no multiple of 3" in desk.refusal(source, group_size=3)
    assert "block 1 of 8 rows holds 2 prompts" in desk.refusal(source, group_size=8)
    uneven = trl(1, [[0, 1], [1, 1, 0]])
    text = desk.refusal(trl_folder(desk.folder / "c", {1: uneven}))
    assert "runs of [2, 3] rows" in text
    assert "--group-size" in text


def test_trl_rows_interleaved_over_ranks_are_refused(desk):
    rows = trl(1, [[0, 1, 1, 0], [1, 0, 0, 1]])
    mixed = [rows[i] for i in (0, 4, 1, 5, 2, 6, 3, 7)]
    source = trl_folder(desk.folder / "a", {1: mixed})
    assert "interleaved over ranks" in desk.refusal(source)
    assert "block 1 of 4 rows holds 2 prompts" in desk.refusal(source, group_size=4)


def test_trl_reward_weights_are_checked_against_the_stored_advantages(desk):
    exact, length = [[1, 0, 1, 0], [0, 0, 1, 0]], [[0.1, 0.3, 0.2, 0.4], [0.5, 0.5, 0.25, 1]]
    total = [
        [e + 0.5 * s for e, s in zip(*pair, strict=True)]
        for pair in zip(exact, length, strict=True)
    ]
    dull = [[1, 1, 1, 1]] * 2  # the first file tells nothing
    steps = {1: with_advantage(trl(1, dull, length_reward=dull), [[0, 0]] * 4, None)}
    steps[2] = with_advantage(trl(2, exact, length_reward=length), total)
    source = trl_folder(desk.folder / "a", steps)
    right = {"exact_reward": 1.0, "length_reward": 0.5}
    summary, trace = desk(source, reward_weights=right)
    assert summary.findings == []
    assert said(summary, "1·exact_reward + 0.5·length_reward")
    _, batch = trace.batches(["advantage"])
    np.testing.assert_allclose(batch.reward_N, np.ravel(total))
    assert said(desk(source)[0], "1·exact_reward + 0.5·length_reward")
    for wrong in ({"exact_reward": 1.0}, {**right, "length_reward": -0.5}):
        (finding,) = desk(source, reward_weights=wrong)[0].findings
        assert finding.name == "advantage_mismatch"
    summary, trace = desk(source, columns={"reward": "length_reward"})
    assert [f.name for f in summary.findings] == ["advantage_mismatch"]
    assert [b.reward_N.tolist() for b in trace.batches([])][1] == np.ravel(length).tolist()
    assert "no such column" in desk.refusal(source, reward_weights={"lenght": 1.0})


def test_trl_without_division_by_the_deviation_is_dr_grpo(desk):
    dull = [[1, 1, 1, 1]]
    steps = {1: with_advantage(trl(1, dull), dull, None)}
    steps[2] = with_advantage(trl(2, GROUPS[:1]), GROUPS[:1], None)
    summary, trace = desk(trl_folder(desk.folder / "a", steps))
    assert trace.manifest.advantage_config == AdvantageConfig("dr_grpo", 1e-4)
    assert summary.findings == []


def test_trl_files_that_repeat_or_that_an_evaluation_overwrote_are_left_out(desk):
    steps = {s: trl(s, [[0, 1], [1, s / 8]]) for s in (1, 2, 4, 5)}
    steps[3] = [{**row, "step": 3} for row in steps[2]]
    steps[6] = trl(6, [[0, 1]] * 5)
    summary, trace = desk(trl_folder(desk.folder / "a", steps))
    assert [b.step for b in trace.batches([])] == [1, 2, 4, 5]
    assert said(summary, "1 files repeat the rows of the one before")
    assert said(summary, "1 files hold another number of rows than the usual 4", "00006")
    even = {s: trl(s, [[0, 1]] * s) for s in (1, 2)}  # none is usual, so none is left out
    assert [b.step for b in desk(trl_folder(desk.folder / "b", even))[1].batches([])] == [1, 2]


def test_trl_functions_that_scored_nothing_add_nothing_and_none_at_all_is_no_reward(desk):
    rows = trl(1, [[1, None], [None, math.nan]], b_reward=[[0.25, 0.5], [None, 0.125]])
    source = trl_folder(desk.folder / "a", {1: rows})
    assert "completions_00001.parquet:3: column 'reward' holds nan" in desk.refusal(source)
    summary, trace = desk(source, nan_reward="drop-group")
    assert [b.reward_N.tolist() for b in trace.batches([])] == [[1.25, 0.5]]
    assert summary.dropped == 2


def test_trl_files_that_lack_a_column_or_are_cut_short_are_named(desk):
    first, second = trl(1, [[0, 1]], b_reward=[[1, 0]]), trl(2, [[0, 1]])
    source = trl_folder(desk.folder / "a", {1: first, 2: second})
    assert "completions_00002.parquet has no column 'b_reward'" in desk.refusal(source)
    (source / "completions_00002.parquet").write_bytes(b"PAR1")
    assert "completions_00002.parquet can't be read" in desk.refusal(source)


# Pass-rate tables and plain tables

RATES = [
    {"prompt_id": "a", "domain": "math", "num_correct": 3, "num_samples": 4},
    {"prompt_id": "b", "domain": "code", "num_correct": 0, "num_samples": 2},
    {"prompt_id": "c", "domain": "code", "num_correct": 2, "num_samples": 2},
]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_pass_rate_table_becomes_step_0(desk, suffix):
    path = desk.folder / f"rates.{suffix}"
    if suffix == "jsonl":
        jsonl(path, RATES)
    else:
        getattr(pl.DataFrame(RATES), f"write_{suffix}")(path)
    summary, trace = desk(path)
    assert said(summary, "--format pass-rate)")
    (batch,) = trace.batches(["domain", "prompt_id"])
    assert (batch.step, batch.uid_G.tolist()) == (0, ["a", "b", "c"])
    assert batch.prompt_id_G.tolist() == ["a", "b", "c"]
    assert batch.reward_N.tolist() == [1, 1, 1, 0, 0, 0, 1, 1]
    assert [batch.domains[d] for d in batch.domain_G] == ["math", "code", "code"]
    assert batch.live_G.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_correct": 3}, "num_correct 3 is above num_samples 2"),
        ({"num_correct": -1}, "column 'num_correct' holds -1"),
        ({"num_correct": None}, "column 'num_correct' holds None"),
        ({"num_correct": 1.5}, "column 'num_correct' holds 1.5"),
        ({"num_correct": "some"}, "column 'num_correct' holds 'some'"),
        ({"num_samples": 0, "num_correct": 0}, "column 'num_samples' holds 0"),
        ({"num_samples": 10**12}, "column 'num_samples' holds 1000000000000"),
        ({"prompt_id": "a"}, "prompt_id 'a' occurs twice"),
        ({"prompt_id": None}, "holds no value"),
    ],
)
def test_counts_that_make_no_pass_rate_are_refused_with_their_place(desk, change, said):
    text = desk.refusal([RATES[0], {**RATES[1], **change}])
    assert "1.jsonl:2" in text
    assert said in text


def test_a_csv_is_read_by_its_line_numbers(desk):
    path = desk.folder / "rows.csv"
    path.write_text("step,group_uid,reward,acc\n1,007,0.5,1\n1,007,,0\n1,7,1,\n")
    assert f"{path}:3: column 'reward' holds no value" in desk.refusal(path)
    frame = desk.rows(path, nan_reward="drop-group")
    assert frame.select("group_uid", "reward").rows() == [("7", 1.0)]


def test_the_conversion_that_refusals_offer_works(desk, monkeypatch):
    text = desk.refusal([{"global_step": 1, "scores": [1.0], "responses": ["x"]}])
    code = text.split("import polars as pl; ")[1].split(", then dfsim import flat.parquet")[0]
    monkeypatch.chdir(desk.folder)
    exec(code, {"pl": pl, "rows": [(3, "g", 0, 1.0), (3, "g", 1, 0.0)]})
    (batch,) = desk(desk.folder / "flat.parquet")[1].batches([])
    assert (batch.step, batch.reward_N.tolist()) == (3, [1.0, 0.0])
