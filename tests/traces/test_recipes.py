"""Every command that an import prints is run, on a file of the shape that it is printed for."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from dumps import Desk, jsonl
from said import refused, run

from dfsim.traces.importers import IMPORTERS
from dfsim.traces.importers.recognise import OTHER_KINDS
from dfsim.traces.storage.store import open_trace

REWARDS = {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 1.0]}


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def rows(**columns):
    """Two prompts by three responses; a column is a function of prompt, index and reward."""
    return [
        {name: make(prompt, index, reward) for name, make in columns.items()}
        for prompt, rewards in REWARDS.items()
        for index, reward in enumerate(rewards)
    ]


def prompt(p, i, r):
    return f"question {p}"


def reply(p, i, r):
    return f"answer {p}{i}"


def number(p, i, r):
    return "ab".index(p)


def index(p, i, r):
    return i


def reward(p, i, r):
    return r


def always(value):
    return lambda p, i, r: value


def printed_recipe(line):
    """The command of an import that a line ends with."""
    return shlex.split(re.search(r"dfsim import .*--out TRACE", line)[0])[1:]


def groups_of(trace):
    """Rewards of each group, over all steps."""
    return sorted(
        batch.reward_N[a:b].tolist()
        for batch in (open_trace(trace) if isinstance(trace, Path) else trace).batches([])
        for a, b in zip(batch.group_offsets[:-1], batch.group_offsets[1:], strict=True)
    )


HINTED = {
    "a verl uid that is a group": rows(
        input=prompt, output=reply, score=reward, uid=lambda p, i, r: f"group {p}", step=always(3)
    ),
    "NeMo-Gym": rows(
        responses_create_params=always({}), reward=reward, _ng_task_index=number,
        _ng_rollout_index=index,
    ),
    "verifiers": rows(example_id=number, prompt=prompt, completion=reply, reward=reward),
    "a log of one's own": rows(
        update=always(2), problem_id=number, scalar_reward=reward, completion=reply,
        sample_index=index,
    ),
    "samples before training": rows(
        prompt_index=number, sample=index, score=reward, n_tokens=lambda p, i, r: i + 5,
    ),
    "other words": rows(
        gen_step=always(2), task_id=prompt, rollout_id=index, total_reward=reward,
        dataset=always("math"),
    ),
    "iterations": rows(iteration=always(4), qid=number, score=reward, generation=reply),
}  # fmt: skip


@pytest.mark.parametrize("shape", HINTED)
def test_the_command_of_a_refusal_reads_the_file(desk, shape, tmp_path):
    source = desk.file(HINTED[shape])
    recipe = printed_recipe(refused("import", source, "--out", tmp_path / "no"))
    recipe[-1] = str(tmp_path / "trace")
    result = run(*recipe)
    assert result.exit_code == 0, result.output
    assert groups_of(tmp_path / "trace") == sorted(REWARDS.values())


def test_a_command_takes_the_maps_that_were_given_into_account(desk, tmp_path):
    source = desk.file(rows(when=always(2), problem_id=number, points=reward))
    given = ("--map", "reward=points")
    line = refused("import", source, *given, "--step", "0", "--out", tmp_path / "no")
    recipe = printed_recipe(line)
    assert "reward=points" in recipe
    recipe[-1] = str(tmp_path / "trace")
    assert run(*recipe).exit_code == 0
    assert groups_of(tmp_path / "trace") == sorted(REWARDS.values())


def test_every_hint_with_a_command_is_among_the_shapes(desk):
    hints = [*OTHER_KINDS, *(hint for importer in IMPORTERS.values() for hint in importer.hints)]
    with_recipe = [hint for hint in hints if hint.recipe]
    samples = [pl.DataFrame(found) for found in HINTED.values()]

    class Looked:
        def __init__(self, frame):
            self.frame, self.columns = frame, set(frame.columns)

    for hint in with_recipe:
        assert any(hint.matches(Looked(frame)) for frame in samples), hint.about


def test_a_table_of_runs_is_compared_as_the_refusal_says(tmp_path):
    source = tmp_path / "runs.csv"
    lines = [f"{m},{s},{0.4 + 0.02 * s + (m == 'b') * 0.1}" for m in "ab" for s in range(3)]
    source.write_text("method,seed,acc\n" + "\n".join(lines) + "\n", encoding="utf-8")
    assert "dfsim compare" in refused("import", source, "--out", tmp_path / "no")
    assert run("compare", source).exit_code == 0


PLAIN = rows(step=always(1), group_uid=prompt, rollout_idx=index, reward=reward)


def test_a_compressed_file_is_read_once_unpacked(tmp_path):
    source = tmp_path / "rows.jsonl.gz"
    source.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in PLAIN).encode()))
    line = refused("import", source, "--out", tmp_path / "no")
    if "gunzip -k FILE" in line and shutil.which("gunzip"):
        subprocess.run(["gunzip", "-k", source], check=True)
    assert run("import", tmp_path / "rows.jsonl", "--out", tmp_path / "trace").exit_code == 0
    assert groups_of(tmp_path / "trace") == sorted(REWARDS.values())


def test_a_json_array_is_read_once_converted(tmp_path, monkeypatch):
    source = tmp_path / "rows.json"
    source.write_text(json.dumps(PLAIN), encoding="utf-8")
    line = refused("import", source, "--out", tmp_path / "no")
    monkeypatch.chdir(tmp_path)
    code = re.search(r"import polars as pl; (.*)$", line)[1]
    exec(code, {"pl": pl, "FILE": source})
    assert run("import", "rows.jsonl", "--out", "trace").exit_code == 0
    assert groups_of(tmp_path / "trace") == sorted(REWARDS.values())


def test_the_samples_of_an_eval_log_are_read_as_the_refusal_says(desk, tmp_path):
    log = tmp_path / "log.eval"
    log.write_bytes(b"PK")
    options = re.search(r"(--step 0 --purpose evaluation)", refused("import", log, "--out", "no"))
    table = tmp_path / "samples.csv"
    pl.DataFrame(rows(id=prompt, epoch=index, score_match=reward)).write_csv(table)
    maps = ("--map", "group_uid=id", "--map", "rollout_idx=epoch", "--map", "reward=score_match")
    done = run("import", table, *options[1].split(), *maps, "--out", tmp_path / "trace")
    assert done.exit_code == 0, done.output
    assert groups_of(tmp_path / "trace") == sorted(REWARDS.values())
    assert open_trace(tmp_path / "trace").manifest.evaluation
    assert run("screen", tmp_path / "trace").exit_code == 2


def test_advantages_of_0_are_recomputed_as_the_finding_says(desk, tmp_path):
    source = desk.file([{**row, "advantage": 0.0} for row in PLAIN])
    first = run("import", source, "--out", tmp_path / "zero")
    assert "--without advantage" in " ".join(first.output.split())
    done = run("import", source, "--without", "advantage", "--out", tmp_path / "trace")
    assert done.exit_code == 0
    (batch,) = open_trace(tmp_path / "trace").batches([])
    # rewards 1 0 0: mean 1/3, s = 1/sqrt(3)
    assert batch.advantage_N[:3].tolist() == pytest.approx(
        [2 / np.sqrt(3), -1 / np.sqrt(3), -1 / np.sqrt(3)], abs=1e-5
    )


def test_ids_that_each_file_numbers_are_told_apart_as_the_refusal_says(tmp_path):
    folder = tmp_path / "ranks"
    for rank in (0, 1):
        jsonl(folder / f"rank_{rank}.jsonl", [
            {"step": 1, "group_uid": p, "reward": r + rank} for p, rs in REWARDS.items() for r in rs
        ])  # fmt: skip
    line = refused("import", folder, "--out", tmp_path / "no")
    for choice, groups in (("file", 4), ("run", 2)):
        assert f"--group-ids {choice}" in line
        out = tmp_path / choice
        assert run("import", folder, "--group-ids", choice, "--out", out).exit_code == 0
        assert len(groups_of(out)) == groups


# Formats of their own


def test_open_instruct_by_its_columns(desk):
    source = desk.file(
        rows(step=always(1), prompt_idx=number, sample_idx=index, reward=reward,
             response_tokens=lambda p, i, r: list(range(i + 2)), dataset=always("gsm8k"),
             logprobs=lambda p, i, r: [-0.5] * (i + 2))
    )  # fmt: skip
    _, trace = desk(source)
    (batch,) = trace.batches(["num_tokens", "domain"])
    assert batch.num_tokens_N.tolist() == [2, 3, 4, 2, 3, 4]
    assert batch.domains == ("gsm8k",)
    assert "rollout_log_probs" in trace.columns
    assert "old_log_probs" not in trace.columns


def test_areal_steps_are_the_smallest_version_of_a_task(desk):
    source = desk.file(
        rows(task_id=number, sample_idx=index, seqlen=lambda p, i, r: 20 + i,
             prompt_len=always(12), head_version=lambda p, i, r: 3 + i + 4 * (p == "b"),
             tail_version=lambda p, i, r: 5 + i + 4 * (p == "b"), reward=reward)
    )  # fmt: skip
    _, trace = desk(source)
    assert [batch.step for batch in trace.batches([])] == [3, 7]
    (first, _) = trace.batches(["num_tokens", "policy_version_min", "policy_version_max"])
    assert first.num_tokens_N.tolist() == [8, 9, 10]
    assert first.policy_version_max_N.tolist() == [5, 6, 7]


def test_tinker_lengths_are_those_of_all_actions_and_tags_are_the_domain(desk):
    source = desk.file(
        rows(iteration=always(2), group_idx=number, traj_idx=index, total_reward=reward,
             tags=always(["math"]),
             steps=lambda p, i, r: [{"ob_len": 9, "ac_len": 3}, {"ob_len": 1, "ac_len": i}])
    )  # fmt: skip
    _, trace = desk(source)
    (batch,) = trace.batches(["num_tokens", "domain"])
    assert (batch.step, batch.domains) == (2, ("math",))
    assert batch.num_tokens_N.tolist() == [3, 4, 5, 3, 4, 5]


def test_prime_rl_steps_are_the_folders(desk, tmp_path):
    folder = tmp_path / "rollouts"
    for step in (4, 5):
        found = rows(example_id=number, completion=reply, reward=reward, task=always("math"))
        jsonl(folder / f"step_{step}" / "train_rollouts.jsonl", found)
    _, trace = desk(folder)
    assert [batch.step for batch in trace.batches([])] == [4, 5]
    assert not trace.manifest.evaluation
    assert groups_of(trace) == sorted([*REWARDS.values()] * 2)


def test_audit_samples_give_the_rewards_of_their_groups(desk):
    source = desk.file(
        [
            {"step": 1, "kind": kind, "prompt": p, "response": "x", "reward": chosen(r),
             "group_rewards": r}
            for p, r in REWARDS.items() for kind, chosen in (("high", max), ("low", min))
        ]
    )  # fmt: skip
    summary, trace = desk(source)
    assert groups_of(trace) == sorted(REWARDS.values())
    assert [f.name for f in summary.findings] == ["rows_chosen"]
