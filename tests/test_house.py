"""The house: packaging, floors, import cost, file sizes."""

from __future__ import annotations

import subprocess
import sys

import tomllib
from conftest import ROOT

MAX_LINES = 450
HEAVY = {"torch", "matplotlib", "scipy", "sklearn", "polars", "numpy"}


def sources():
    tracked = ("traces", "strategies", "sim", "reports", "live", "cli", "tests", "benchmarks")
    return [ROOT / "__init__.py"] + [
        path for folder in tracked for path in (ROOT / folder).rglob("*.py")
    ]


def test_every_subpackage_is_listed():
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["setuptools"]["packages"]
    outside = {"tests", "benchmarks"}
    on_disk = {
        ".".join(("dfsim", *path.parent.relative_to(ROOT).parts))
        for path in sources()
        if path.name == "__init__.py" and path.relative_to(ROOT).parts[0] not in outside
    }
    assert set(listed) == on_disk


def test_the_root_holds_one_python_file():
    assert [p.name for p in ROOT.glob("*.py")] == ["__init__.py"]


def test_no_file_is_long():
    product = [path for path in sources() if path.relative_to(ROOT).parts[0] != "tests"]
    long = {p.name: n for p in product if (n := len(p.read_text().splitlines())) > MAX_LINES}
    assert not long


def test_the_command_line_imports_nothing_heavy():
    code = "import sys, dfsim.cli; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not HEAVY & set(loaded)


def test_replay_needs_no_torch():
    code = (
        "import sys; sys.modules.update(torch=None, verl=None, ray=None, transformers=None);"
        "import dfsim; t = dfsim.open_trace(sys.argv[1]);"
        "print(*dfsim.replay(t, ['maxvar'], resamples=2).strategies)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "traces")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["none", "maxvar"]


def test_public_names_resolve():
    import dfsim

    for name in dfsim.__all__:
        assert getattr(dfsim, name) is not None


def test_the_bundled_trace_is_small_and_labelled(bundled):
    assert bundled.manifest.label == "346k-parameter CPU run: not evidence about LLMs"
    assert sum(f.size for f in bundled.manifest.files.values()) < 3_000_000
