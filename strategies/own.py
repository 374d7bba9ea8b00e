"""A user's own strategy: a class in a file, or an installed entry point."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..traces.batch import RolloutBatch
from ..traces.errors import StrategyError, nearest
from .base import Decision, Kind, Level, Score

GROUP = "dfsim.strategies"
OWN_SOURCE = "your own"


@dataclass(frozen=True)
class Own:
    """Actuator around a user's rule, an object with ``weights(batch)``.

    ``weights`` returns weights ≥ 0 per response (N), per token (T) when the class says
    ``level = "token"``, or a ``Decision``. ``kind`` ("select" or "reweight") and ``columns`` are
    optional class attributes.
    """

    rule: Any
    level: ClassVar[Level] = "response"
    optional_columns: ClassVar[tuple[str, ...]] = ("prompt_id", "domain", "num_tokens")

    @property
    def kind(self) -> Kind:
        """``select`` or ``reweight``."""
        return getattr(self.rule, "kind", "reweight")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the rule says it reads."""
        return tuple(getattr(self.rule, "columns", ()))

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Ask the rule, and check what it returns."""
        found = self.rule.weights(batch)
        if isinstance(found, Decision):
            return found
        weight = np.array(found, dtype=np.float64)
        name = type(self.rule).__name__
        per_token = getattr(self.rule, "level", "response") == "token"
        if per_token and batch.token_offsets is None:
            raise StrategyError(f"{name} weighs tokens but names no token column in 'columns'")
        count = (
            batch.token_offsets[-1]
            if per_token and batch.token_offsets is not None
            else len(score.values)
        )
        if weight.shape != (count,):
            raise StrategyError(f"{name}.weights returned shape {weight.shape}, not ({count},)")
        if not (np.isfinite(weight).all() and (weight >= 0).all()):
            bad = weight[~(np.isfinite(weight) & (weight >= 0))][0]
            raise StrategyError(f"{name}.weights returned {bad}; weights are finite and ≥ 0")
        return Decision.of_tokens(batch, weight) if per_token else Decision(weight)


def is_own(name: str) -> bool:
    """Whether a name is ``file.py:Class`` or an entry point."""
    return ".py:" in name or name.endswith(".py") or name in entry_points(group=GROUP).names


def load_own(name: str) -> type[Any]:
    """Load the class a name points to.

    Raises:
        StrategyError: no such file or class, or the file does not import.
    """
    if ".py" in name:
        cls = _from_file(name)
    else:
        try:
            (entry,) = entry_points(group=GROUP, name=name)
            cls = entry.load()
        except Exception as error:
            raise StrategyError(f"entry point '{name}' does not load: {_line(error)}") from None
    return cls


def as_rule(cls: Any, name: str) -> type[Any]:
    """Return the class as a dataclass, or refuse what is no strategy.

    Raises:
        StrategyError: it is no class, or has no method ``weights``.
    """
    if not (inspect.isclass(cls) and callable(getattr(cls, "weights", None))):
        raise StrategyError(f"{name} is no strategy: it needs a method weights(self, batch)")
    return cls if dataclasses.is_dataclass(cls) else dataclass(frozen=True)(cls)


def _from_file(name: str) -> Any:
    file, _, wanted = name.rpartition(":")
    if not file:
        raise StrategyError(f"'{name}' names no class; write {name}:ClassName")
    path = Path(file)
    if not path.is_file():
        raise StrategyError(f"{path} does not exist; --strategy takes FILE.py:ClassName")
    module_name = f"dfsim_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise StrategyError(f"{path} does not import: {_line(error)}") from None
    if not hasattr(module, wanted):
        classes = [n for n, v in vars(module).items() if inspect.isclass(v)]
        raise StrategyError(f"{path} has no class '{wanted}'{nearest(wanted, classes)}")
    return getattr(module, wanted)


def _line(error: BaseException) -> str:
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
