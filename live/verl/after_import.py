"""Act on a module once it is imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]

_waiting: dict[str, list[Callback]] = {}


def after_import(module_name: str, callback: Callback) -> None:
    """Call ``callback(module)`` once `module_name` has been executed, at once if it already has.

    Args:
        module_name: Full dotted name.
        callback: Called once, after the module's code and before the importer gets the module. What
            it raises is raised by the import statement. Several callbacks run in order of
            registration.

    Note:
        A module that another thread, or the caller's own import, is executing just now counts as
        not imported when it was announced before it started; otherwise it is too late to wait for
        and the callback gets the partly executed module.
    """
    module = sys.modules.get(module_name)
    if module is not None and module_name not in _waiting:
        callback(module)
        return
    _waiting.setdefault(module_name, []).append(callback)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds awaited modules the way the other finders do, and wraps their loader."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _Finder) or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):  # a namespace package may have none
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(Loader):
    """The module's own loader, which runs the callbacks after it and then steps aside."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Resources, reload, and pickling see the module as if it had never been wrapped.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for callback in _waiting.pop(module.__name__, []):
            callback(module)
