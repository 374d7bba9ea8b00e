"""``dfsim doctor`` without the canary: versions, registration, seams."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError

import pytest
from said import refused
from typer.testing import CliRunner

from dfsim.cli.app import app
from dfsim.live.core.verification.check import Check
from dfsim.live.verl import doctor as doctor_module
from dfsim.live.verl.doctor import PACKAGES, check_installation
from dfsim.live.verl.seams import SEAMS, Seam


def run(*args):
    return CliRunner().invoke(app, ["doctor", *args])


@pytest.fixture
def installed(monkeypatch):
    """Pretend that packages have these versions, and that verl need not be imported."""

    def pretend(found):
        def version(name):
            if name not in found:
                raise PackageNotFoundError(name)
            return found[name]

        monkeypatch.setattr(doctor_module, "version", version)
        monkeypatch.setattr(doctor_module, "_registration", lambda: Check("plug-in", True, ""))
        monkeypatch.setattr(doctor_module, "SEAMS", (Seam("shutil", "copy", ("src",)),))

    return pretend


ALL = {"verl": "0.9.1", **dict.fromkeys(PACKAGES, "1.0")}


def test_a_sound_installation_passes(installed):
    installed(ALL)
    checks = {c.name: c for c in check_installation()}
    assert set(checks) == {"verl", *PACKAGES, "plug-in", "settings", "shutil.copy"}
    assert all(c.passed is not False for c in checks.values())
    assert "trainer.v1.trainer_mode=dfsim_sync alone" in checks["settings"].message
    result = run()
    assert (result.exit_code, result.stderr) == (0, "")
    assert "FAIL" not in result.stdout
    assert result.stdout.endswith("1 private parts of verl as expected\n")


def test_without_verl_there_is_one_thing_to_say(installed):
    installed({})
    (check,) = check_installation()
    assert check.passed is False
    assert "not installed; pip install 'dfsim[live]'" in check.message
    assert run().exit_code == 1


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_verl_forgot_is_named_with_the_remedy(installed, name):
    installed({k: v for k, v in ALL.items() if k != name})
    bad = [c for c in check_installation() if c.passed is False]
    assert [c.name for c in bad] == [name]
    assert "pip install 'dfsim[live]'" in bad[0].message


def test_another_verl_fails_and_its_seams_are_looked_at_all_the_same(installed):
    installed({**ALL, "verl": "0.10.0"})
    checks = check_installation()
    assert checks[0].passed is False
    assert "0.10.0; dfsim's seams were measured on 0.9.1" in checks[0].message
    assert checks[-1] == Check("shutil.copy", True, "as expected")


def test_a_seam_that_moved_fails(installed, monkeypatch):
    installed(ALL)
    monkeypatch.setattr(doctor_module, "SEAMS", (Seam("shutil", "cp", ()),))
    result = run("--json")
    record = json.loads(result.stdout)
    assert (result.exit_code, record["passed"], result.stderr) == (1, False, "")
    assert record["checks"][-1] == {
        "name": "shutil.cp",
        "passed": False,
        "message": "shutil has no cp",
    }


def test_the_canary_is_not_run_on_a_broken_installation(installed, monkeypatch):
    installed({})
    monkeypatch.setattr(doctor_module, "run_canary", lambda *_: pytest.fail("it was run"))
    result = run("--canary")
    assert result.exit_code == 1
    assert "The canary was not run" in result.stdout


@pytest.mark.parametrize("bad", [False, True])
def test_the_canary_decides_the_exit_code(installed, monkeypatch, bad):
    installed(ALL)
    found = [Check("step 1, weights 0", not bad, "gradient norm 0.0")]
    asked = []

    def canary(*args):
        asked.append(args[:3])
        return list(found)

    monkeypatch.setattr(doctor_module, "run_canary", canary)
    options = ("--trainer-mode", "theirs", "--override", "+a=1", "--zero", "+b=0")
    result = run("--canary", *options, "--json")
    assert result.exit_code == int(bad)
    assert json.loads(result.stdout)["checks"][-1]["name"] == "step 1, weights 0"
    assert asked == [("theirs", ["+a=1"], ["+b=0"])]


@pytest.mark.live
def test_this_installation_is_sound():
    pytest.importorskip("verl")
    checks = check_installation()
    assert [c for c in checks if c.passed is False] == []
    assert {str(s) for s in SEAMS} <= {c.name for c in checks}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-s", "maxvr"], "did you mean 'maxvar'?"),
        (["-s", "maxvar", "-p", "keep_frac=3"], "give a value in (0, 1]"),
        (["--shadow", "topq"], "did you mean 'topk'?"),
        (["--agent", "foo"], "it is single or multi-output"),
        (["--prompts", "6", "--mini-batches", "4"], "--mini-batches 4 does not divide --prompts 6"),
        (["--prompts", "6", "--ranks", "5"], "--ranks 5 does not divide the 6 × 8 rows"),
        (["--prompts", "193"], "the task holds 192 prompts"),
    ],
)
def test_a_rehearsal_that_cannot_work_is_refused_before_it_starts(arguments, words):
    assert words in refused("rehearse", *arguments)
