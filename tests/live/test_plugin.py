"""What the plug-in relies on in wrapt's import hooks, and what it registers: own processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

HEAD = """
    import importlib, importlib.util, pickle, sys
    from wrapt import register_post_import_hook
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


def test_a_hook_waits_for_the_module_and_runs_once_after_its_code(tmp_path):
    body = """
        register_post_import_hook(lambda m: seen.append(("one", m.value)), "late")
        register_post_import_hook(lambda m: seen.append(("two", m.value)), "late")
        assert importlib.util.find_spec("late").origin.endswith("late.py")
        assert "late" not in sys.modules and seen == []
        import late
        assert seen == [("one", 5), ("two", 5)]
        import late
        register_post_import_hook(lambda m: seen.append("at once"), "late")
        assert seen[2:] == ["at once"]
    """
    python(tmp_path, body, late="value = 1\nvalue = 5\n")


def test_reload_and_pickle_see_nothing_of_it(tmp_path):
    body = """
        register_post_import_hook(seen.append, "late")
        import late
        from importlib.machinery import SourceFileLoader
        assert type(late.__loader__) is type(late.__spec__.loader) is SourceFileLoader
        assert pickle.loads(pickle.dumps(late.Thing)) is late.Thing
        assert type(pickle.loads(pickle.dumps(late.Thing()))) is late.Thing
        assert importlib.reload(late) is late
        assert len(seen) == 1
    """
    python(tmp_path, body, late="class Thing:\n    pass\n")


def test_a_module_that_fails_first_is_awaited_still(tmp_path):
    body = """
        import pathlib
        register_post_import_hook(lambda m: seen.append(m.value), "late")
        try:
            import late
        except RuntimeError:
            pathlib.Path("ready").touch()
        assert seen == [] and "late" not in sys.modules
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


STAND_IN = """
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
def test_verl_loads_the_plug_in_by_itself_and_keeps_its_own_trainer(tmp_path):
    pytest.importorskip("verl")
    body = """
        from verl.trainer.ppo.v1 import trainer_sync, trainer_base
        from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
        assert "dfsim_sync" in trainer_base.TRAINER_REGISTRY
        assert "dfsim_proof_vanilla" in POLICY_LOSS_REGISTRY
        stock = trainer_base.TRAINER_REGISTRY["sync"]
        assert stock is trainer_sync.PPOTrainerSync
        assert stock.__init__.__module__.startswith("verl.")
    """
    assert "dfsim:" not in python(tmp_path, body).stderr
