"""Private parts of verl: each one that the sources use is on the list that doctor looks at."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from conftest import ROOT

from dfsim.live.verl.seams import SEAMS, Seam

LIVE = sorted((ROOT / "live").rglob("*.py"))
FOREIGN = ("verl", "transfer_queue")
NOT_VERLS = {"_run_exitfuncs", "_exit"}  # of the standard library


@pytest.mark.parametrize(
    ("seam", "words"),
    [
        (Seam("shutil", "copy", ("src", "dst")), None),
        (Seam("shutil", "copy", ()), None),
        (Seam("pathlib", "Path.rename", ("self", "target")), None),
        (Seam("shutil", "copy", ("dst", "src")), "takes (src, dst, "),
        (Seam("shutil", "cp", ()), "shutil has no cp"),
        (Seam("no_such_module", "x", ()), "no_such_module does not import"),
    ],
)
def test_a_seam_says_what_differs(seam, words):
    problem = seam.problem()
    assert problem is None if words is None else words in problem


@pytest.mark.live
def test_every_seam_of_the_installed_verl_is_as_expected():
    pytest.importorskip("verl")
    assert [(str(s), s.problem()) for s in SEAMS if s.problem()] == []


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def foreign_classes(tree: ast.Module) -> list[ast.ClassDef]:
    """Classes that end up with a base of verl's, their mix-ins included."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FOREIGN
        for alias in node.names
    }
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found: set[str] = set()
    while True:
        more = set()
        for name, node in classes.items():
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            handed_over = any(isinstance(base, ast.Attribute) for base in node.bases)
            if handed_over or bases & (imported | found):
                more |= {name, *(bases & set(classes))}
        if more <= found:
            return [classes[name] for name in found]
        found |= more


def private_names(source: str) -> Iterator[str]:
    """Names with an underscore that a source takes from verl, overrides or sets there."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FOREIGN:
            yield from (part for part in str(node.module).split(".") if private(part))
            yield from (alias.name for alias in node.names if private(alias.name))
        elif isinstance(node, ast.Attribute) and private(node.attr):
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                yield node.attr
    for node in foreign_classes(tree):
        for part in ast.walk(node):
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and private(part.name):
                yield part.name
            elif isinstance(part, ast.Attribute) and private(part.attr):
                yield part.attr


def test_every_private_name_in_the_sources_is_a_seam():
    named = {part for seam in SEAMS for part in seam.name.split(".")}
    used = {name: path.name for path in LIVE for name in private_names(path.read_text())}
    assert {"_dispatch_info", "_compute_advantage", "_server_handle"} <= set(used)
    assert {name: path for name, path in used.items() if name not in named | NOT_VERLS} == {}


def test_every_replacement_in_memory_is_a_seam():
    """``module.NAME = …`` where a hook was handed the module."""
    named = {part for seam in SEAMS for part in seam.name.split(".")}
    tree = ast.parse((ROOT / "live" / "rehearsal" / "register.py").read_text())
    replaced = {
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    assert len(replaced) == 4
    assert replaced <= named


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from verl.a import _b", ["_b"]),
        ("from verl._a import b", ["_a"]),
        ("import os\nos._exit(0)", ["_exit"]),
        ("from verl.a import B\nclass C(B):\n    def _d(self):\n        self._e()", ["_d", "_e"]),
        ("from verl.a import B\nclass M:\n    def _d(self): ...\nclass C(M, B): ...", ["_d"]),
        ("def f(m):\n    class C(m.B):\n        def _d(self): ...", ["_d"]),
        ("class C:\n    def _d(self):\n        self._e()\n        self.__dict__", []),
    ],
)
def test_the_search_sees_imports_attributes_and_overrides(source, names):
    assert sorted(private_names(source)) == names


@pytest.mark.parametrize(
    ("name", "there"),
    [("Made.value", True), ("Made.typed", True), ("Made.other", False), ("Made.method", True)],
)
def test_what_a_class_sets_on_self_is_found(name, there, tmp_path, monkeypatch):
    (tmp_path / "made_for_seams.py").write_text(
        "class Made:\n    def method(self):\n        self.value = 1\n        self.typed: int = 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert (Seam("made_for_seams", name, ()).problem() is None) == there
