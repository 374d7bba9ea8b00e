"""dfsim beside an installed verl: nothing of verl's changes, and verl finds the plug-in itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from conftest import ROOT

pytest.importorskip("verl")
pytestmark = pytest.mark.live


def test_installing_changes_no_package_of_verls(tmp_path):
    # A copy, because a build leaves folders behind.
    unwanted = shutil.ignore_patterns(".*", "build", "*.egg-info", "out", "samples", "tests")
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=unwanted)
    command = [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--quiet"),
        *("--no-build-isolation", "--disable-pip-version-check", "--report", "-", str(source)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    installed = [item["metadata"]["name"] for item in json.loads(done.stdout)["install"]]
    assert installed == ["dfsim"]


def test_verl_is_told_of_the_plug_in():
    (entry,) = entry_points(group="verl.plugins", name="dfsim")
    assert entry.value == "dfsim.live.verl.plugin"


def test_importing_the_plug_in_imports_neither_torch_nor_verl():
    code = (
        "import sys, dfsim.live.verl.plugin; print(*sorted({m.split('.')[0] for m in sys.modules}"
        " & {'torch', 'verl', 'ray', 'polars'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
