"""A user's own strategy: a class in a file, or an installed entry point."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import sys
import traceback
from dataclasses import MISSING, dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..traces.batch import RolloutBatch
from ..traces.errors import DfsimError, StrategyError, nearest
from ..traces.ragged import Float
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
        name = type(self.rule).__name__
        found = self._ask(batch)
        if isinstance(found, Decision):
            _check_decision(name, found, batch)
            return found
        try:
            weight = np.array(found, dtype=np.float64)
        except (TypeError, ValueError):
            raise StrategyError(
                f"{name}.weights returned {type(found).__name__}, not an array of numbers"
            ) from None
        per_token = getattr(self.rule, "level", "response") == "token"
        if per_token and batch.token_offsets is None:
            raise StrategyError(f"{name} weighs tokens but names no token column in 'columns'")
        count = (
            batch.token_offsets[-1]
            if per_token and batch.token_offsets is not None
            else len(score.values)
        )
        _check_weights(name, weight, int(count))
        return Decision.of_tokens(batch, weight) if per_token else Decision(weight)

    def _ask(self, batch: RolloutBatch) -> Any:
        try:
            return self.rule.weights(batch)
        except DfsimError:
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            home = getattr(sys.modules.get(type(self.rule).__module__), "__file__", None)
            frame = ([f for f in frames if f.filename == home] or frames)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            raise StrategyError(
                f"{type(self.rule).__name__}.weights raised {_line(error)} ({place})"
            ) from error


def _check_weights(name: str, weight: Float, count: int) -> None:
    if weight.shape != (count,):
        raise StrategyError(f"{name}.weights returned shape {weight.shape}, not ({count},)")
    good = np.isfinite(weight) & (weight >= 0)
    if not good.all():
        raise StrategyError(
            f"{name}.weights returned {weight[~good][0]}; weights are finite and ≥ 0"
        )


def _check_decision(name: str, found: Decision, batch: RolloutBatch) -> None:
    _check_weights(name, found.weight_N, batch.num_responses)
    if found.token_weight_T is not None:
        if batch.token_offsets is None:
            raise StrategyError(f"{name} weighs tokens but names no token column in 'columns'")
        _check_weights(name, found.token_weight_T, int(batch.token_offsets[-1]))
    for values in (found.advantage_N, found.tied_N):
        if values is not None and values.shape != (batch.num_responses,):
            raise StrategyError(
                f"{name}.weights returned shape {values.shape}, not ({batch.num_responses},)"
            )


def is_own(name: str) -> bool:
    """Whether a name is ``file.py:Class`` or an entry point."""
    return ".py:" in name or name.endswith(".py") or name in _entry_points()


@cache
def _entry_points() -> frozenset[str]:
    return frozenset(entry_points(group=GROUP).names)


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
        StrategyError: it is no class, has no method ``weights``, or declares itself wrongly.
    """
    if not (inspect.isclass(cls) and callable(getattr(cls, "weights", None))):
        raise StrategyError(f"{name} is no strategy: it needs a method weights(self, batch)")
    for attribute, allowed in (("kind", ("select", "reweight")), ("level", ("response", "token"))):
        if getattr(cls, attribute, allowed[0]) not in allowed:
            raise StrategyError(
                f"{name}: {attribute}={getattr(cls, attribute)!r} is not allowed; it is "
                f"{' or '.join(allowed)}"
            )
    if isinstance(getattr(cls, "columns", ()), str):
        raise StrategyError(f"{name}: columns must be a tuple of names, as ('num_tokens',)")
    if not dataclasses.is_dataclass(cls):
        if cls.__init__ is not object.__init__:
            raise StrategyError(
                f"{name} defines __init__; write its parameters as fields instead, "
                "as alpha: float = 0.5"
            )
        try:
            cls = dataclass(frozen=True)(cls)
        except (TypeError, ValueError) as error:
            raise StrategyError(f"{name}: {_line(error)}") from None
    for item in dataclasses.fields(cls):
        if item.init and item.default is MISSING and item.default_factory is MISSING:
            raise StrategyError(f"{name}: field '{item.name}' needs a default")
    return cls


def _from_file(name: str) -> Any:
    file, _, wanted = name.rpartition(":")
    if not file:
        raise StrategyError(f"'{name}' names no class; write {name}:ClassName")
    path = Path(file)
    if not path.is_file():
        raise StrategyError(f"{path} does not exist; a strategy of your own is FILE.py:ClassName")
    module_name = f"dfsim_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise StrategyError(f"{path} does not import: {_line(error)}") from None
    if not hasattr(module, wanted):
        classes = [n for n, v in vars(module).items() if inspect.isclass(v)]
        raise StrategyError(f"{path} has no class '{wanted}'{nearest(wanted, classes)}")
    return getattr(module, wanted)


def _line(error: BaseException) -> str:
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
