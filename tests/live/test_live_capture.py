"""The background writer: kills, a full disk, another run's folder; what it keeps of a step."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from dfsim.traces.errors import DfsimError
from dfsim.traces.storage.store import open_trace

pytestmark = pytest.mark.live
pytest.importorskip("pyarrow")

from live_trace import RUN, live_trace, record_of, step_of  # noqa: E402

from dfsim.live.core import capture as capture_module  # noqa: E402
from dfsim.live.core.capture import Capture, CapturedStep, to_frame  # noqa: E402
from dfsim.live.core.log import LIVE_LOG, read_records  # noqa: E402
from dfsim.live.core.settings import CaptureSettings  # noqa: E402
from dfsim.strategies.build import build  # noqa: E402

TESTS = ROOT / "tests" / "support"


def opened(folder, said, *, first=1, config=RUN, **options):
    capture = Capture(CaptureSettings(folder, **options), config, said.append)
    capture.start(first, "at most 1 MB a step")
    return capture


def write(folder, steps, said=None, **options):
    said = [] if said is None else said
    capture = opened(folder, said, first=min(steps), **options)
    for step in steps:
        capture.put(step_of(step))
    capture.close()
    return said


def steps_of(folder):
    trace = open_trace(folder)
    for _ in trace.frames(trace.columns):
        pass  # every checksum and every column
    return [s.step for s in trace.manifest.steps]


def refusal(call, *args, **options):
    with pytest.raises(DfsimError) as caught:
        call(*args, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def closed(capture):
    """Close; training must never hang on its capture."""
    thread = threading.Thread(target=capture.close, daemon=True)
    thread.start()
    thread.join(20)
    return not thread.is_alive()


# Kills


def test_twenty_kills_lose_no_finished_step(tmp_path):
    rng = np.random.default_rng(20)
    folder, first = tmp_path / "live", 1
    for kill in range(20):
        running = subprocess.Popen(
            [sys.executable, TESTS / "live_trace.py", folder, str(first)],
            stdout=subprocess.PIPE,
            text=True,
        )
        lines = []
        # The third step is taken only when the first is on the disk.
        for _ in range(int(rng.integers(3, 12)) + (first > 1)):
            lines.append(running.stdout.readline())
            assert lines[-1], "the writer died by itself"
        time.sleep(rng.random() * 0.02)  # the moment of the kill is what is tested
        running.kill()
        running.communicate()
        told = " ".join(lines)
        taken = int(lines[-1].split()[1])
        found = steps_of(folder)
        assert found == list(range(1, len(found) + 1))
        assert taken - 2 <= len(found)
        assert (kill > 0) == ("each is replaced when it is trained again" in told)
        trace = open_trace(folder)
        for entry in trace.manifest.steps[-4:]:
            frame = to_frame(step_of(entry.step).columns)
            (rows,) = [f for e, f in trace.frames(frame.columns) if e.step == entry.step]
            wanted = frame.sort("group_uid", "rollout_idx")
            assert rows["reward"].to_list() == wanted["reward"].to_list()
            assert rows["old_log_probs"].to_list() == wanted["old_log_probs"].to_list()
        log = read_records(folder)
        assert set(found) - set(log) <= {found[-1]}  # its line is written after the step
        first = max(2, found[-1] - int(rng.integers(0, 3)))  # the last checkpoint
    said = write(folder, range(first, first + 3))
    assert f"steps {first}–" in said[1]
    assert set(read_records(folder)) == set(steps_of(folder))
    kept = {p.name for p in folder.iterdir() if p.suffix == ".parquet"}
    assert set(open_trace(folder).manifest.files) <= kept


def test_a_torn_last_line_costs_one_record_only(tmp_path):
    write(tmp_path / "a", [1, 2])
    log = tmp_path / "a" / LIVE_LOG
    whole = log.read_text()
    log.write_text(whole + '{"step": 3, "deliv')
    assert set(read_records(tmp_path / "a")) == {1, 2}
    write(tmp_path / "a", [3, 4])
    assert set(read_records(tmp_path / "a")) == {1, 2, 3, 4}
    assert log.read_text().startswith(whole)
    assert read_records(tmp_path / "nowhere") == {}


def test_lines_that_are_no_records_are_left_out(tmp_path):
    good = json.dumps(record_of(7))
    (tmp_path / LIVE_LOG).write_text(f"5\nnull\n[]\n\n\x00\x00\n{{}}\n{good}\n")
    assert read_records(tmp_path) == {7: record_of(7)}


def test_the_latest_record_of_a_step_counts(tmp_path):
    write(tmp_path / "a", [1, 2, 3])
    capture = opened(tmp_path / "a", [], first=2)
    capture.put(step_of(2, reason="again"))
    capture.close()
    log = read_records(tmp_path / "a")
    assert [log[s]["reason"] for s in (1, 2, 3)] == ["", "again", ""]
    assert steps_of(tmp_path / "a") == [1, 2, 3]


# A disk that fails

FULL = """
    import json, resource, sys, time
    from pathlib import Path
    from live_trace import RUN, step_of
    from dfsim.live.core.capture import Capture
    from dfsim.live.core.settings import CaptureSettings
    folder, on_error, long = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    said, raised = [], []
    capture = Capture(CaptureSettings(folder), RUN, said.append)
    capture.start(1, "")
    def lost(count):
        while capture.failed < count:
            assert capture._thread.is_alive()
            time.sleep(0.001)
    for step in (1, 2):
        capture.put(step_of(step, reason="x" * long))
    capture.close()
    capture = Capture(CaptureSettings(folder, on_error=on_error), RUN, said.append)
    capture.start(3, "")
    said.clear()
    size = (folder / "live.jsonl").stat().st_size + 10 if long else 64
    free = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, free[1]))
    for count, step in enumerate((3, 4), start=1):
        try:
            capture.put(step_of(step))
            lost(count)
        except ValueError as error:
            raised.append(str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, free)
    try:
        capture.put(step_of(5))
        capture.close()
    except ValueError as error:
        raised.append(str(error))
    print(json.dumps({"said": said, "raised": raised, "failed": capture.failed}))
"""


def full_disk(folder, on_error, long=0):
    command = [sys.executable, "-c", textwrap.dedent(FULL), folder, on_error, str(long)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_full_disk_is_said_once_counted_and_trained_through(tmp_path):
    found = full_disk(tmp_path / "a", "warn")
    assert found["raised"] == []
    assert found["failed"] == 2
    first, last = found["said"]
    assert "a step was not captured" in first
    assert "training goes on" in first
    assert "dfsim/capture/failed_steps" in first
    assert "2 steps were not captured" in last
    assert steps_of(tmp_path / "a") == [1, 2, 5]
    assert set(read_records(tmp_path / "a")) == {1, 2, 5}
    assert not [p for p in (tmp_path / "a").iterdir() if ".tmp-" in p.name]


def test_a_full_disk_stops_a_run_that_asked_for_it(tmp_path):
    found = full_disk(tmp_path / "a", "raise")
    assert found["raised"]
    assert "dfsim capture failed" in found["raised"][0]
    assert steps_of(tmp_path / "a") == [1, 2]


def test_a_record_that_did_not_fit_costs_no_other(tmp_path):
    full_disk(tmp_path / "a", "warn", long=100_000)
    assert 5 in read_records(tmp_path / "a")
    assert steps_of(tmp_path / "a") == [1, 2, 3, 4, 5]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_nan_in_a_record_neither_stops_the_writer_nor_hangs_the_run(tmp_path, monkeypatch):
    # One NaN reward makes the sum of weight·|advantage| NaN.
    monkeypatch.setattr(capture_module, "_WAIT_SECONDS", 5.0)
    capture = opened(tmp_path / "a", [], queue_steps=1)
    capture.put(step_of(1, expected={"signal": math.nan}))
    for step in (2, 3, 4):
        capture.put(step_of(step))
    assert closed(capture)
    assert steps_of(tmp_path / "a")[-1] == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_step_that_cannot_be_written_is_counted_whatever_is_wrong_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(capture_module, "_WAIT_SECONDS", 5.0)
    said = []
    capture = opened(tmp_path / "a", said, queue_steps=1)
    good = step_of(1)
    bad = {**good.columns, "reward": [object()] * len(good.columns["group_uid"])}
    capture.put(CapturedStep(bad, record_of(1)))
    for step in (2, 3, 4):
        capture.put(step_of(step))
    assert closed(capture)
    assert capture.failed == 1
    assert sum("was not captured" in s for s in said) == 1
    assert steps_of(tmp_path / "a") == [2, 3, 4]


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """A capture whose disk hangs on step 1 until the event is set, with step 2 waiting."""
    monkeypatch.setattr(capture_module, "_WAIT_SECONDS", 0.01)
    hang, said = threading.Event(), []
    capture = opened(tmp_path / "a", said, queue_steps=1)
    entered, real = threading.Event(), capture._writer.write_step

    def slow(frame):
        entered.set()
        hang.wait()
        return real(frame)

    monkeypatch.setattr(capture._writer, "write_step", slow)
    capture.put(step_of(1))
    entered.wait()
    capture.put(step_of(2))
    yield capture, hang, said
    hang.set()


def test_a_step_is_given_up_when_the_disk_hangs(hanging, tmp_path, monkeypatch):
    capture, hang, said = hanging
    capture.put(step_of(3))  # the queue is full
    assert capture.failed == 1
    monkeypatch.setattr(capture_module, "_WAIT_SECONDS", 60.0)
    hang.set()
    capture.close()
    assert steps_of(tmp_path / "a") == [1, 2]
    assert "step 3 waited" in " ".join(said)


def test_a_disk_that_hangs_for_good_does_not_hang_the_end(hanging):
    capture, _, said = hanging
    capture.close()
    assert capture.failed == 1
    assert "the disk hangs; about 1 steps were given up at the end" in " ".join(said)


# The folder


def test_the_start_says_host_folder_and_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(capture_module.socket, "gethostname", lambda: "node7")
    said = []
    opened(Path("deep/er"), said).close()
    assert said == [f"dfsim captures to node7:{tmp_path / 'deep' / 'er'}, at most 1 MB a step"]


def test_a_resumed_run_says_what_it_replaces(tmp_path):
    write(tmp_path / "a", [1, 2, 3, 4])
    said = write(tmp_path / "a", [3, 4, 5])
    assert "steps 3–4 were captured before the run was resumed at 3" in said[1]
    assert steps_of(tmp_path / "a") == [1, 2, 3, 4, 5]
    assert write(tmp_path / "a", [6])[1:] == []


def test_a_run_from_the_start_is_no_resumed_one(tmp_path):
    write(tmp_path / "a", [1, 2])
    before = open_trace(tmp_path / "a").manifest
    text = refusal(opened, tmp_path / "a", [])
    assert "holds steps 1–2 of an earlier run" in text
    assert "name an empty folder" in text
    assert open_trace(tmp_path / "a").manifest == before


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"adv_estimator": "rloo"}, "adv_estimator"),
        ({"dfsim": {"strategy": None}}, "dfsim"),
        ({"rollout_is": "token"}, "rollout_is"),
        ({"loss_agg_mode": None}, "loss_agg_mode"),
    ],
)
def test_another_runs_folder_is_refused(tmp_path, changes, name):
    write(tmp_path / "a", [1, 2])
    text = refusal(opened, tmp_path / "a", [], first=3, config={**RUN, **changes})
    assert f"another {name}" in text
    assert "name an empty folder" in text


def test_another_seed_may_continue(tmp_path):
    write(tmp_path / "a", [1], config={**RUN, "seed": 1})
    write(tmp_path / "a", [2], config={**RUN, "seed": 2})
    assert steps_of(tmp_path / "a") == [1, 2]


def test_foreign_files_and_files_for_folders_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.tex").touch()
    text = refusal(opened, tmp_path / "a", [])
    assert "holds other files (thesis.tex)" in text
    text = refusal(opened, tmp_path / "a" / "thesis.tex", [])
    assert "is a file; name a folder" in text
    text = refusal(opened, tmp_path / "a" / "thesis.tex" / "deeper", [])
    assert f"{tmp_path / 'a' / 'thesis.tex'} is no folder to write in" in text
    assert [p.name for p in tmp_path.rglob("*")] == ["a", "thesis.tex"]


def test_nothing_is_created_before_the_start(tmp_path):
    Capture(CaptureSettings(tmp_path / "a"), RUN, [].append).close()
    assert not (tmp_path / "a").exists()


def test_the_manifest_holds_the_run(tmp_path):
    live_trace(tmp_path / "a", build("maxvar"))
    manifest = open_trace(tmp_path / "a").manifest
    assert manifest.source == "captured live from verl"
    assert manifest.lengths == "tokens"
    assert manifest.mini_batch_rows == 24
    assert manifest.config["dfsim"]["strategy"]["params"]["keep_frac"] == 0.5
