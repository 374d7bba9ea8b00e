"""The scripts of a promotion, run for real, and the table that finished runs fill."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dfsim.live.verl.runs import add_run, main, run_row
from dfsim.live.verl.scripts import write_scripts
from dfsim.traces.errors import DfsimError

BIN = Path(sys.executable).parent


@pytest.fixture(params=["promotion", "a b", "it's"])
def folder(tmp_path, request):
    made = tmp_path / request.param
    made.mkdir()
    return made


def bash(script, *args, **env):
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, "HOME": os.environ.get("HOME", "/"), **env}
    return subprocess.run(
        [script, *map(str, args)], env=given, capture_output=True, text=True, check=False
    )


def told(done):
    """The arguments that a command printed, one a line."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


LINES = ("printf", "%s\\n")


def test_every_script_is_valid_bash_and_executable(folder):
    for path in write_scripts(folder, "difffilter", 3):
        if path.suffix == ".sh":
            assert os.access(path, os.X_OK)
            subprocess.run(["bash", "-n", path], check=True)
    names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    seeds = {f"seeds/{m}_{s}.sh" for m in ("baseline", "difffilter") for s in (1, 2, 3)}
    assert names == {"launch.sh", "runs.csv", *seeds}
    assert (folder / "runs.csv").read_text() == "method,seed\n"


def test_without_a_command_a_script_says_how_it_is_called(folder):
    for path in write_scripts(folder, "maxvar", 1):
        if path.suffix == ".sh":
            done = bash(path)
            assert (done.returncode, done.stdout) == (2, "")
            assert f"usage: {path} python3 -m verl.trainer.main_ppo" in done.stderr


def test_launch_hands_the_command_its_own_arguments_first(folder):
    launch = write_scripts(folder, "maxvar", 0)[0]
    found = told(bash(launch, *LINES, "data.x=a b", "+y='q'"))
    assert found[:3] == ["data.x=a b", "+y='q'", "trainer.v1.trainer_mode=dfsim_sync"]
    assert len(found) == 5
    assert bash(launch, "bash", "-c", "exit 7").returncode == 7


@pytest.mark.live
@pytest.mark.parametrize("capture", [None, "/data/live run", "/data/it's"])
def test_hydra_reads_the_paths_of_launch(folder, capture):
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    parse = parser.OverridesParser.create().parse_override
    launch = write_scripts(folder, "maxvar", 0)[0]
    found = told(bash(launch, *LINES, **({} if capture is None else {"CAPTURE": capture})))
    read = {o.key_or_group: o.value() for o in map(parse, found)}
    assert read == {
        "trainer.v1.trainer_mode": "dfsim_sync",
        "dfsim.promotion": f"{folder}/promotion.json",
        "dfsim.capture.dir": capture or f"{folder}/live",
    }


@pytest.mark.live
def test_a_pair_differs_in_the_strategy_alone(tmp_path):
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    parse = parser.OverridesParser.create().parse_override
    folder = tmp_path / "a b"
    folder.mkdir()
    write_scripts(folder, "own dir/mine.py:Mine[scale=0.5]", 2)
    seen = {}
    for path in (folder / "seeds").iterdir():
        record = {"step": 1, "data": {}}
        stand_in = (
            f"printf '%s\\n' \"$@\"; echo '{json.dumps(record)}' > \"$VERL_FILE_LOGGER_PATH\""
        )
        done = bash(path, "bash", "-c", stand_in, "_")
        seen[path.stem] = {o.key_or_group: o.value() for o in map(parse, told(done))}
    assert set(seen) == {"baseline_1", "baseline_2", "Mine-scale-0.5_1", "Mine-scale-0.5_2"}
    for name, read in seen.items():
        seed = int(name[-1])
        promotion = read.pop("dfsim.promotion", None)
        wanted = None if name.startswith("baseline") else folder / "promotion.json"
        assert promotion is wanted or Path(promotion).resolve() == wanted
        assert read == {
            "trainer.v1.trainer_mode": "dfsim_sync",
            "dfsim.capture.dir": f"{folder}/seeds/{name}",
            "data.seed": seed,
            "actor_rollout_ref.actor.data_loader_seed": seed,
            "actor_rollout_ref.rollout.seed": seed,
            "trainer.experiment_name": name,
            "trainer.logger": ["console", "file"],
        }


@pytest.mark.live
def test_the_settings_of_a_seeded_run_are_verls():
    pytest.importorskip("hydra")
    from verl_config import composed

    names = ("data.seed", "actor_rollout_ref.actor.data_loader_seed")
    seeds = [f"{name}=3" for name in (*names, "actor_rollout_ref.rollout.seed")]
    found = composed(*seeds, "trainer.experiment_name=x", "trainer.logger=[console,file]")
    assert found["trainer"]["logger"] == ["console", "file"]


def test_finished_runs_fill_the_table_and_failed_ones_do_not(folder):
    write_scripts(folder, "maxvar", 1)
    record = json.dumps({"step": 3, "data": {"critic/rewards/mean": 0.5, "val-core/m/acc": 0.25}})
    finish = ("bash", "-c", f"echo '{record}' > \"$VERL_FILE_LOGGER_PATH\"", "_")
    told(bash(folder / "seeds" / "baseline_1.sh", *finish))
    assert bash(folder / "seeds" / "maxvar_1.sh", "false").returncode == 1
    assert [r["method"] for r in rows_of(folder / "runs.csv")] == ["baseline"]
    told(bash(folder / "seeds" / "maxvar_1.sh", *finish))
    assert rows_of(folder / "runs.csv") == [
        {"method": m, "seed": "1", "steps": "3", "train_reward": "0.5", "val-core/m/acc": "0.25"}
        for m in ("baseline", "maxvar")
    ]


# The table


def rows_of(table):
    with table.open() as file:
        return list(csv.DictReader(file))


def log_of(path, *data):
    lines = [json.dumps({"step": i, "data": d}) + "\n" for i, d in enumerate(data, start=1)]
    path.write_text("".join(lines))
    return path


def test_a_row_is_the_last_validation_and_ten_steps_of_reward(tmp_path):
    rewards = [{"critic/rewards/mean": r / 16, "other": 1} for r in range(1, 13)]
    rewards[4]["val-core/a/acc"] = 0.25
    rewards[8] |= {"val-core/a/acc": 0.5, "val-aux/a": 1}
    row = run_row("maxvar", 2, log_of(tmp_path / "l", *rewards))
    assert row == {
        "method": "maxvar",
        "seed": 2,
        "steps": 12,
        "train_reward": sum(range(3, 13)) / 160,
        "val-core/a/acc": 0.5,
    }
    assert "train_reward" not in run_row("maxvar", 2, log_of(tmp_path / "l", {"other": 1}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "did the run write it (trainer.logger=[file])?"),
        ("", "holds no step"),
        ("\n\n", "holds no step"),
        ("no json\n", "is not verl's file log"),
        ('{"steps": 3}\n', "is not verl's file log"),
        ("5\n", "is not verl's file log"),
        ('{"step": 1, "data": {}}\n{"step": 2, "da', "is not verl's file log"),
        ("\xff\n", "is not verl's file log"),
    ],
)
def test_a_log_that_is_none_is_refused(tmp_path, capsys, text, words):
    log = tmp_path / "log.jsonl"
    if text is not None:
        log.write_bytes(text.encode("latin-1"))
    with pytest.raises(DfsimError) as caught:
        run_row("maxvar", 1, log)
    assert words in str(caught.value)
    assert str(log) in str(caught.value)
    assert main([str(tmp_path / "runs.csv"), "maxvar", "1", str(log)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dfsim: ")
    assert not (tmp_path / "runs.csv").exists()


def test_a_run_done_again_replaces_its_row_and_new_columns_are_added(tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text("method,seed\n")
    add_run(table, {"method": "baseline", "seed": 1, "train_reward": 0.5})
    add_run(table, {"method": "maxvar", "seed": 1, "val-core/x": 0.75})
    add_run(table, {"method": "baseline", "seed": 1, "train_reward": 1})
    add_run(table, {"method": "baseline", "seed": 2, "train_reward": 0.25})
    found = {(r["method"], r["seed"]): r for r in rows_of(table)}
    assert len(rows_of(table)) == len(found) == 3
    assert float(found["baseline", "1"]["train_reward"]) == 1.0
    assert found["maxvar", "1"]["train_reward"] == ""
    assert found["maxvar", "1"]["val-core/x"] == "0.75"


def test_runs_that_end_together_lose_no_row(tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text("method,seed\n")
    code = """
        import sys
        from pathlib import Path
        from dfsim.live.verl.runs import add_run
        print("ready", flush=True)
        sys.stdin.readline()
        for seed in range(15):
            add_run(Path(sys.argv[1]), {"method": sys.argv[2], "seed": seed, "steps": 1})
    """
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), table, method],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for method in ("baseline", "maxvar")
    ]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:  # both are past their imports and start at once
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        process.communicate()
        assert process.returncode == 0
    found = sorted((r["method"], int(r["seed"])) for r in rows_of(table))
    assert found == [(m, s) for m in ("baseline", "maxvar") for s in range(15)]


@pytest.mark.parametrize("arguments", [[], ["a", "b", "c"], ["t.csv", "maxvar", "one", "l"]])
def test_a_wrong_call_prints_the_usage(capsys, arguments):
    assert main(arguments) == 2
    assert "usage: python3 -m dfsim.live.verl.runs" in capsys.readouterr().err


def test_a_table_in_no_folder_is_refused_in_one_line(tmp_path, capsys):
    log = log_of(tmp_path / "l", {"critic/rewards/mean": 1.0})
    assert main([str(tmp_path / "no" / "runs.csv"), "maxvar", "1", str(log)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "no") in line
