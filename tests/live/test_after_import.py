"""Acting on a module once it is imported: each case in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

HEAD = """
    import importlib, pickle, sys
    from dfsim.live.verl.after_import import after_import
    seen = []
"""


def python(tmp_path, body, **modules):
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    code = textwrap.dedent(HEAD) + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_it_waits_for_the_module_and_runs_once_after_its_code(tmp_path):
    body = """
        after_import("late", lambda m: seen.append(("one", m.value)))
        after_import("late", lambda m: seen.append(("two", m.value)))
        assert "late" not in sys.modules and seen == []
        import late
        assert seen == [("one", 5), ("two", 5)]
        import late
        importlib.import_module("late")
        assert len(seen) == 2
    """
    python(tmp_path, body, late="value = 1\nvalue = 5\n")


def test_an_imported_module_is_acted_on_at_once(tmp_path):
    body = """
        import late
        after_import("late", seen.append)
        assert seen == [late]
    """
    python(tmp_path, body, late="")


def test_a_submodule_of_a_package_is_awaited_too(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "inner.py").write_text("value = 2\n")
    body = """
        after_import("pack.inner", lambda m: seen.append(m.value))
        import pack
        assert seen == [] and "pack.inner" not in sys.modules
        from pack import inner
        assert seen == [2]
    """
    python(tmp_path, body)


def test_reload_and_pickle_see_nothing_of_it(tmp_path):
    body = """
        after_import("late", seen.append)
        import late
        from importlib.machinery import SourceFileLoader
        assert type(late.__loader__) is type(late.__spec__.loader) is SourceFileLoader
        assert pickle.loads(pickle.dumps(late.Thing)) is late.Thing
        assert type(pickle.loads(pickle.dumps(late.Thing()))) is late.Thing
        assert importlib.reload(late) is late
        assert len(seen) == 1
        assert late.__loader__.get_source("late").startswith("class Thing")
        assert importlib.util.find_spec("late").loader.name == "late"
    """
    python(tmp_path, body, late="class Thing:\n    pass\n")


def test_looking_for_a_module_does_not_import_it(tmp_path):
    body = """
        after_import("late", seen.append)
        after_import("nowhere", seen.append)
        spec = importlib.util.find_spec("late")
        assert spec.origin.endswith("late.py") and spec.loader.get_source("late") == "x = 1\\n"
        assert importlib.util.find_spec("nowhere") is None
        assert seen == [] and "late" not in sys.modules
        import late
        assert seen == [late]
    """
    python(tmp_path, body, late="x = 1\n")


def test_a_module_that_fails_first_is_awaited_still(tmp_path):
    body = """
        import pathlib
        after_import("late", lambda m: seen.append(m.value))
        try:
            import late
        except RuntimeError:
            pass
        else:
            raise AssertionError("the module's own error is lost")
        assert seen == [] and "late" not in sys.modules
        pathlib.Path("ready").touch()
        import late
        assert seen == [3]
    """
    late = """
        import pathlib
        if not pathlib.Path("ready").exists():
            raise RuntimeError("not yet")
        value = 3
    """
    python(tmp_path, body, late=late)


def test_what_a_callback_raises_the_import_raises(tmp_path):
    body = """
        def fail(module):
            raise OSError("no")
        after_import("late", fail)
        try:
            import late
        except OSError:
            seen.append("raised")
        assert seen == ["raised"] and "late" not in sys.modules
    """
    python(tmp_path, body, late="")


def test_a_module_that_registers_for_itself_while_it_runs(tmp_path):
    body = """
        after_import("late", lambda m: seen.append(m.value))
        import late
        assert seen == [2]
    """
    late = """
        from dfsim.live.verl.after_import import after_import
        value = 1
        import other
        value = 2
    """
    python(tmp_path, body, late=late, other="import late\nassert late.value == 1\n")


# The plug-in


STAND_IN = """
    import sys, types
    class Finder:
        made = {made}
        def find_spec(self, name, path=None, target=None):
            import importlib.machinery
            if name in self.made or any(m.startswith(name + ".") for m in self.made):
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
        def create_module(self, spec):
            return None
        def exec_module(self, module):
            module.__dict__.update(self.made.get(module.__name__, {{}}))
    sys.meta_path.insert(0, Finder())
    sys.modules.pop("verl", None)
"""


def test_a_plug_in_that_cannot_register_says_so_and_lets_verl_live(tmp_path):
    # verl itself would tell at DEBUG level only. Here its registry is not where it was.
    body = (
        textwrap.dedent(STAND_IN).format(made="{'verl.trainer.ppo.core_algos': {'x': 7}}")
        + "import dfsim.live.verl.plugin\n"
        + "from verl.trainer.ppo.core_algos import x\n"
        + "assert x == 7\n"
    )
    done = python(tmp_path, body)
    (line,) = done.stderr.splitlines()
    assert line.startswith("dfsim: registering the reporting losses failed: AttributeError")
    assert "run dfsim doctor" in line


def test_a_plug_in_registers_the_losses_of_verl_once_they_exist(tmp_path):
    body = (
        textwrap.dedent(STAND_IN).format(
            made="{'verl.trainer.ppo.core_algos': {'POLICY_LOSS_REGISTRY': {'vanilla': print}}}"
        )
        + "import dfsim.live.verl.plugin\n"
        + "assert not [m for m in sys.modules if m.split('.')[0] in ('torch', 'ray', 'verl')]\n"
        + "from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY as found\n"
        + "assert sorted(found) == ['dfsim_proof_vanilla', 'vanilla']\n"
    )
    assert python(tmp_path, body).stderr == ""


@pytest.mark.live
def test_verl_loads_the_plug_in_by_itself(tmp_path):
    pytest.importorskip("verl")
    body = """
        from verl.trainer.ppo.v1 import trainer_sync, trainer_base
        from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
        assert "dfsim_sync" in trainer_base.TRAINER_REGISTRY
        assert "dfsim_proof_vanilla" in POLICY_LOSS_REGISTRY
        assert trainer_base.TRAINER_REGISTRY["sync"] is trainer_sync.PPOTrainerSync
    """
    assert "dfsim:" not in python(tmp_path, body).stderr
