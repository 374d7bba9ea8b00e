"""Imports at their edges: what is refused and how, domains, missing rewards, long lines, copies."""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest
from dumps import FLAT, Desk, jsonl, refused, said, v0, v1
from made import frame_of, solved_trace
from typer.testing import CliRunner

import dfsim
from dfsim.cli.app import app
from dfsim.traces.errors import TraceError
from dfsim.traces.importers.domains import choose_domains
from dfsim.traces.importers.importing import import_trace
from dfsim.traces.importers.sources import read_chunks
from dfsim.traces.storage import compact as compaction
from dfsim.traces.storage.manifest import Manifest
from dfsim.traces.storage.store import Trace, TraceWriter, open_trace
from dfsim.traces.synthetic import exact_step


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# What no importer reads

ROLLOUT = {"reward": 1.0, "prompt": "p", "completion": "c"}
FOREIGN = [
    ("a wandb export", "rollout_data_dir", {"_step": 1, "_runtime": 2.0, "loss": 0.5}),
    ("a metric log", "log_completions", {"step": 1, "actor/loss": 0.1, "critic/score/mean": 1}),
    ("verl's metric log", "trainer.rollout_data_dir=DIR", {"step": 1, "data": {"a/b": 0.5}}),
    (
        "NeMo-Gym rollouts: rewards",
        "_ng_task_index",
        {"responses_create_params": {}, "reward": 1.0},
    ),
    ("NeMo-Gym rows without a reward", "ng_collect_rollouts", {"responses_create_params": {}}),
    ("prime-rl episodes", "polars", {"group": {"id": 1}, "traces": [], "task": {"key": 1}}),
    (
        "a NeMo-RL train_data_step file",
        "polars",
        {"content": ["x"], "rewards": [1.0], "generation_logprobs": [[0.1]]},
    ),
    (
        "a ROLL rollout dump",
        "polars",
        {"global_step": 1, "scores": [1.0], "responses": ["x"]},
    ),
    ("a table of finished runs", "nothing in it", {"method": "dapo", "seed": 1, "aime": 0.25}),
    ("none of the formats", "--map reward=COLUMN", {"alpha": 1, "beta": "x"}),
]


@pytest.mark.parametrize(("what", "remedy", "row"), FOREIGN)
def test_a_file_that_is_no_dump_is_named_with_what_would_work(desk, what, remedy, row):
    source = desk.file([row, row], "file.jsonl")
    line = refused("import", source, "--out", desk.folder / "out")
    assert line.startswith(f"dfsim: {source} is {what}")
    assert remedy in line


def test_every_other_real_file_gets_a_sentence(desk, shared):
    files = sorted((shared / "other").glob("*.jsonl"))
    assert len(files) == 4
    for path in [*files, shared / "dataflex_rl_all_runs_171.csv"]:
        line = refused("import", path, "--out", desk.folder / "out")
        assert str(path) in line
        known = ("is not JSON", "is NeMo-Gym ro", "is a table of finished runs")
        assert any(word in line for word in known)
    assert not (desk.folder / "out").exists()


@pytest.mark.parametrize("suffix", ["pt", "pkl", "dp"])
def test_a_pickle_is_not_opened(desk, suffix):
    folder = desk.folder / "dump"
    folder.mkdir()
    (folder / f"tq_batch.{suffix}").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    for source in (folder, folder / f"tq_batch.{suffix}"):
        assert "reading it runs code" in refused("import", source, "--out", desk.folder / "out")


def test_a_folder_with_a_file_of_another_kind_names_it(desk):
    rate = {"prompt_id": "a", "num_correct": 1, "num_samples": 2}
    trl_row = {"step": 1, "prompt": "p", "completion": "c", "reward": 1.0}
    for name, row in (("v0", v0("a")), ("v1", v1("a_0_0")), ("rate", rate), ("flat", FLAT)):
        folder = jsonl(desk.folder / name / "1.jsonl", [row]).parent
        stray = jsonl(folder / "2.jsonl", [{"step": 1, "data": {"loss": 0.5}}])
        assert desk.refusal(folder).startswith(f"{stray} has no column")
    folder = desk.folder / "trl"
    folder.mkdir()
    pl.DataFrame([trl_row] * 2).write_parquet(folder / "completions_00001.parquet")
    pl.DataFrame([FLAT] * 2).write_parquet(folder / "other.parquet")
    assert "other.parquet has no column" in desk.refusal(folder)


def test_an_option_that_would_do_nothing_is_refused(desk):
    assert "--group-size has no use for" in desk.refusal([FLAT], group_size=4)
    assert "--group-by has no use for" in desk.refusal([v1("a_0_0")], group_by="input")
    assert "--reward-weights has no use for" in desk.refusal([v0("a")], reward_weights={"x": 1})


def test_the_command_line_says_what_was_read_dropped_and_cannot_run(desk):
    rows = [v0(f"q{i // 2}", 0.0, acc=i % 2) for i in range(6)]
    rows[3]["acc"] = None
    out = desk.folder / "out"
    args = ["import", desk.file(rows), "--out", out, "--group-by", "input", "--reward", "acc"]
    args += ["--nan-reward", "drop-group", "--domain-regex", "first=q0", "--set", "n=2"]
    result = CliRunner().invoke(app, [*map(str, args), "--json", "--quiet"])
    assert (result.exit_code, result.stderr) == (0, "")
    record = json.loads(result.stdout)
    assert (record["rows"], record["responses"], record["dropped"]) == (6, 4, 2)
    assert (record["lengths"], record["steps"]) == (None, 1)
    assert {"gfpo", "ar"} < set(record["cannot_run"])
    (batch,) = open_trace(out).batches(["domain"])
    assert batch.reward_N.tolist() == [0, 1, 0, 1]
    assert [batch.domains[d] for d in batch.domain_G] == ["first", "other"]
    shown = CliRunner().invoke(app, [*map(str, args), "--force", "--quiet"]).stdout
    for word in ("6 rows", "4 responses", "--group-by", "gfpo"):
        assert word in " ".join(shown.split())


# Domains


def domains_of(trace: Trace) -> dict[str, str]:
    (batch,) = trace.batches(["domain"])
    return {u: batch.domains[d] for u, d in zip(batch.uid_G, batch.domain_G, strict=True)}


def test_domains_come_from_a_training_set_of_chats(desk):
    """verl's training set has chat messages; a dump has the rendered template of them."""
    train = desk.folder / "train.parquet"
    system = {"role": "system", "content": "Be brief."}
    chats = [("Two plus  two?", "math"), ("Sort a list.", "code"), ("Unsorted?", None)]
    pl.DataFrame(
        [{"prompt": [system, {"role": "user", "content": q}], "data_source": d} for q, d in chats]
    ).write_parquet(train)
    shown = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"
    rows = [
        v1("a_0_0", input="system\nBe brief.\nuser\nTwo plus two?\nassistant\n"),
        v1("b_0_0", input="Sort a list."),
        v1("c_0_0", input="system\nBe brief.\nuser\nUnsorted?\nassistant\n"),
        v1("d_0_0", input=shown.format("Sort a list.") + "<|im_start|>assistant\n"),
        v1("pad1_0_0", input=""),
    ]
    summary, trace = desk(rows, domains=choose_domains(train, [], None))
    assert domains_of(trace) == {"a": "math", "b": "code", "c": "other", "d": "code"}
    assert said(summary, "3 of 4 prompts (75%) match the training set")


def test_domains_come_from_the_first_pattern_that_is_found(desk):
    rows = [v1("a_0_0", input="2 + 2 in Python"), v1("b_0_0", input="def f"), v1("c_0_0")]
    patterns = [("math", r"\d \+ \d"), ("code", r"Python|def ")]
    summary, trace = desk(rows, domains=choose_domains(None, patterns, None))
    assert domains_of(trace) == {"a": "math", "b": "code", "c": "other"}
    assert said(summary, "2 of 3 prompts (67%) match a pattern")
    chat = [{**FLAT, "prompt": [{"role": "user", "content": "2 + 2"}]}]
    assert domains_of(desk(chat, domains=choose_domains(None, patterns, None))[1]) == {"g": "math"}


def test_domains_that_are_inferred_are_labelled_seeded_and_blind_to_padding(desk):
    words = {"a": "triangle angle circle", "b": "function loop variable"}
    rows = [v1(f"{k}{i}_0_0", input=f"{w} {i}") for k, w in words.items() for i in range(4)]
    rows += [v1(f"pad1_{i}_0", input="", output="") for i in range(8)]
    results = []
    for order in (rows, rows[::-1]):
        summary, trace = desk(order, domains=choose_domains(None, [], 2))
        assert said(summary, "Domains were inferred: 2 clusters")
        results.append(domains_of(trace))
    first, second = results
    assert first == second
    assert {name.split("-")[0] for name in first.values()} == {"inferred"}
    assert len({first[f"a{i}"] for i in range(4)}) == len({first[f"b{i}"] for i in range(4)}) == 1
    assert first["a0"] != first["b0"]
    assert "only 8 distinct prompts" in desk.refusal(rows, domains=choose_domains(None, [], 9))


def test_mistakes_with_domains_are_refused(desk):
    source = desk.file([v1("a_0_0"), v1("b_0_0")])
    train = jsonl(desk.folder / "train.jsonl", [{"prompt": "x", "answer": "y"}])
    given = ("import", source, "--out", desk.folder / "out")
    both = ("--domain-regex", "m=x", "--domain-clusters", "2")
    for more, words in [
        (both, "give one of --domains-from, --domain-regex and --domain-clusters"),
        (("--domain-regex", "m=("), "--domain-regex m=("),
        (("--domains-from", train), "it has: prompt, answer"),
        (("--domains-from", desk.folder / "none"), "does not exist"),
    ]:
        assert words in refused(*given, *more)
    text = desk.refusal([FLAT], domains=choose_domains(None, [("m", "x")], None))
    assert "--map prompt=COLUMN" in text


# Rewards that are missing


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, "-Infinity"])
def test_a_missing_reward_fails_or_drops_its_response_or_group(desk, monkeypatch, bad):
    monkeypatch.setattr(read_chunks, "__defaults__", (3,))  # groups lie in several chunks
    rows = [
        {**FLAT, "group_uid": g, "rollout_idx": i, "reward": float(i), "advantage": 0.5}
        for i in range(4)
        for g in ("a", "b")
    ]
    rows[5] |= {"reward": bad, "advantage": None if bad is None else 0.5}  # b 2
    source = desk.file(rows)
    if bad is not None:
        text = desk.refusal(source)
        assert "1.jsonl:6: column 'reward' holds" in text
        assert "--nan-reward drop-response or drop-group" in text
    for choice, kept in (("drop-response", [4, 3]), ("drop-group", [4])):
        summary, trace = desk(source, nan_reward=choice)
        (batch,) = trace.batches([])
        assert batch.group_size_G.tolist() == kept
        assert summary.dropped == 8 - sum(kept)
    line = refused("import", source, "--out", desk.folder / "x", "--nan-reward", "drop-row")
    assert "drop-response" in line


def test_a_response_left_alone_is_no_group_of_one(desk):
    rows = [{**FLAT, "rollout_idx": i, "reward": 1.0 if i == 5 else None} for i in range(8)]
    rows.append({**FLAT, "group_uid": "single"})
    summary, trace = desk(rows, nan_reward="drop-response")
    assert [b.uid_G.tolist() for b in trace.batches([])] == [["single"]]
    assert summary.dropped == 8
    assert said(summary, "nothing to be compared with")
    assert "8 have no finite reward" in desk.refusal(rows[:8], nan_reward="drop-group")


@pytest.mark.parametrize("reward", ["high", [0.5], {"score": 0.5}])
def test_what_is_no_number_is_refused_whatever_the_choice(desk, reward):
    for choice in ("fail", "drop-response", "drop-group"):
        text = desk.refusal([FLAT, {**FLAT, "rollout_idx": 1, "reward": reward}], nan_reward=choice)
        assert "1.jsonl:2: column 'reward' holds" in text


# Groups that look wrong


@pytest.mark.parametrize(("singles", "warned"), [(19, True), (18, False)])
def test_groups_of_one_are_warned_of_from_95_percent(desk, singles, warned):
    rows = [{**FLAT, "group_uid": f"u{i}"} for i in range(singles)]
    rows += [
        {**FLAT, "group_uid": f"g{k}", "rollout_idx": i}
        for k in range(20 - singles)
        for i in range(2)
    ]
    summary, _ = desk(rows)
    assert [f.name for f in summary.findings] == ["singletons"] * warned


def test_a_prompt_drawn_twice_in_a_step_is_noted(desk):
    rows = [v0(f"q{min(i // 4, 2)}", i % 2) for i in range(16)]  # q2 holds two draws of 4
    summary, _ = desk(rows, group_by="input")
    (finding,) = summary.findings
    assert (finding.name, finding.evidence) == ("groups_too_large", {"usual": 4, "sizes": {"8": 1}})
    assert not said(desk(rows[:12], group_by="input")[0], "are usual")


# Long lines, second imports, writers at work


def test_a_line_of_500_kilobytes_is_a_row(desk):
    text = "word " * 100_000
    rows = [v0("short"), v0(text, 1.0, output=text), v0("also short")]
    frame = desk.rows(rows, length="chars", keep_text=True)
    (long,) = frame.filter(frame["reward"] == 1.0).to_dicts()
    assert (long["num_tokens"], long["prompt"]) == (500_000, text)
    assert len(long["group_uid"]) < 100
    assert desk.rows(rows, group_by="input")["group_uid"].str.len_chars().max() < 100


def test_a_second_import_replaces_the_first_only_when_told_and_whole(desk):
    out = desk.folder / "trace"
    good, bad = desk.file([v0("a"), v0("b")]), desk.file([v0("a"), v0("b", "x")])
    args = ("--out", out, "--quiet")
    assert CliRunner().invoke(app, ["import", str(good), *map(str, args)]).exit_code == 0
    first = open_trace(out).manifest.fingerprint
    assert "add --force" in refused("import", good, *args)
    assert "'x'" in refused("import", bad, *args, "--force")
    assert open_trace(out).manifest.fingerprint == first
    import_trace(desk.file([v0("c", 1.0)]), out, force=True)
    assert [b.reward_N.tolist() for b in open_trace(out).batches([])] == [[1.0]]
    assert [p.name for p in desk.folder.iterdir() if p.name.startswith(".")] == []


def test_a_reader_sees_the_steps_that_were_there_when_it_opened(tmp_path):
    writer = TraceWriter(tmp_path, Manifest(writer="test"))
    for step in (1, 2):
        writer.write_step(frame_of(exact_step([1, 2], 4, step=step)))
    early = open_trace(tmp_path)
    reading = early.batches([])
    assert next(reading).step == 1
    writer.write_step(frame_of(exact_step([3], 4, step=3)))
    assert [b.step for b in reading] == [2]
    assert [b.step for b in open_trace(tmp_path).batches([])] == [1, 2, 3]


def test_a_step_that_is_replaced_is_read_old_or_new_and_never_mixed(tmp_path):
    writer = TraceWriter(tmp_path, Manifest(writer="test"))
    writer.write_step(frame_of(exact_step([1, 2], 4, step=1)))
    early = open_trace(tmp_path)
    writer.write_step(frame_of(exact_step([3], 4, step=1)))
    with pytest.raises(
        TraceError, match=r"step_000001\.parquet was replaced while the trace was read"
    ):
        list(early.batches([]))
    (batch,) = open_trace(tmp_path).batches([])
    assert batch.reward_N.tolist() == [1, 1, 1, 0]


# Compaction


def ragged(folder: Path) -> Trace:
    """Steps of which one has domains and an extra, and one has no token lists."""
    writer = TraceWriter(folder, Manifest(writer="test", label="a caution"))
    steps = [exact_step([1, 2, 0], 4, step=s) for s in (1, 2, 3, 5)]
    steps[1] |= {"domain": ["x"] * 12, "acc": [1.0] * 12}
    steps[2].pop("old_log_probs")
    for columns in steps:
        writer.write_step(frame_of(columns))
    return open_trace(folder)


@pytest.mark.parametrize("lists", [True, False])
def test_a_compacted_trace_is_the_same_trace_in_fewer_files(tmp_path, monkeypatch, lists):
    source = tmp_path / "trace"
    source.mkdir()
    if lists:
        trace = ragged(source)
    else:
        trace = solved_trace(source, [[1, 2], [3, 0], [2, 2], [1, 1]], 4, drop=["old_log_probs"])
    wanted = [f.to_dicts() for _, f in trace.frames(trace.columns)]
    record = dfsim.replay(trace, ["maxvar", "dapo"], resamples=5).to_dict()
    record["trace"].pop("path")
    for limit, files in ((compaction.MAX_ROWS, 1), (24, 2), (1, 4)):
        monkeypatch.setattr(compaction, "MAX_ROWS", limit)
        out = tmp_path / f"copy-{limit}"
        assert compaction.compact(trace, out) == files == len(list(out.glob("*.parquet")))
        copy = open_trace(out)
        assert copy.manifest.fingerprint == trace.manifest.fingerprint
        assert copy.manifest.label == trace.manifest.label
        assert [f.to_dicts() for _, f in copy.frames(copy.columns)] == wanted
        again = dfsim.replay(copy, ["maxvar", "dapo"], resamples=5).to_dict()
        again["trace"].pop("path")
        assert json.dumps(again) == json.dumps(record)
    assert "add --force" in refused("compact", source, "--out", out)
    assert refused("compact", tmp_path / "none", "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_of_token_lists_is_bounded_by_its_tokens(tmp_path, monkeypatch):
    trace = solved_trace(tmp_path / "trace", [[1, 2]] * 4, 4)
    per_step = trace.count("tokens") // 4
    monkeypatch.setattr(compaction, "MAX_TOKENS", 2 * per_step)
    assert compaction.compact(trace, tmp_path / "copy") == 2
