"""A user's own strategy: a class in a file, or an installed entry point."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache, lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from ..traces.batch import RolloutBatch
from ..traces.errors import DfsimError, StrategyError, nearest
from ..traces.ragged import Float
from .base import Decision, Kind, Level, Score
from .spec import Spec

GROUP = "dfsim.strategies"


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
        answer = _ask(self.rule, "weights", batch)
        if isinstance(answer, Decision):
            _check_decision(name, answer, batch)
            return answer
        weight = _numbers(self.rule, "weights", answer)
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


class OwnSampler:
    """Sampling rule around a user's class; see :class:`dfsim.strategies.sample.base.SamplingRule`.

    The class is a dataclass of parameters with ``start(units, prior)``, ``observe(seen)``,
    ``propose()``, ``state_dict()`` and ``load_state_dict(state)``; optional are ``metrics()`` and
    ``level`` ("domain" or "prompt").

    Args:
        rule: an object of the class, never started itself.
    """

    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def start(self, name: str, units: Sequence[str], prior: Float) -> OwnSamplerAtWork:
        """Begin over units (U), on a fresh object."""
        working = dataclasses.replace(self.rule)
        _ask(working, "start", units, prior.copy())
        return OwnSamplerAtWork(working)


class OwnSamplerAtWork:
    """A user's sampler after its start; see :class:`dfsim.strategies.sample.base.Sampler`."""

    def __init__(self, rule: Any) -> None:
        self._rule = rule

    def observe(self, seen: Any) -> None:
        """Take in what one step showed."""
        _ask(self._rule, "observe", seen)

    def propose(self) -> Float:
        """Weights (U)."""
        return _numbers(self._rule, "propose", _ask(self._rule, "propose"))

    def state_dict(self) -> dict[str, Any]:
        """The rule's own."""
        state = _ask(self._rule, "state_dict")
        try:
            json.dumps(state)
        except (TypeError, ValueError) as error:
            raise StrategyError(
                f"{type(self._rule).__name__}.state_dict must return plain values "
                f"({_line(error)}); an array is plain after .tolist()"
            ) from None
        return dict(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken."""
        _ask(self._rule, "load_state_dict", state)

    def metrics(self) -> Mapping[str, Any]:
        """The rule's own, where it has any."""
        return dict(_ask(self._rule, "metrics")) if hasattr(self._rule, "metrics") else {}


def _ask(rule: Any, method: str, *given: Any) -> Any:
    """Call a user's method; what it raises becomes one line that says where."""
    try:
        return getattr(rule, method)(*given)
    except DfsimError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        home = getattr(sys.modules.get(type(rule).__module__), "__file__", None)
        frame = ([f for f in frames if f.filename == home] or frames)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        raise StrategyError(
            f"{type(rule).__name__}.{method} raised {_line(error)} ({place})"
        ) from error


def _numbers(rule: Any, method: str, answer: Any) -> Float:
    try:
        return np.array(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise StrategyError(
            f"{type(rule).__name__}.{method} returned {type(answer).__name__}, not an array of "
            "numbers"
        ) from None


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


def names_own(spec: Spec) -> bool:
    """Whether a part of a chain is a user's own: ``file.py:Class`` or an entry point."""
    return bool(spec.file) or spec.preset in _entry_points()


@cache
def _entry_points() -> frozenset[str]:
    return frozenset(entry_points(group=GROUP).names)


def load_class(spec: Spec) -> type[Any]:
    """Load the class that a part of a chain names.

    Raises:
        StrategyError: no such file or class, or the file does not import.
    """
    if spec.file:
        return _from_file(spec)
    try:
        (entry,) = entry_points(group=GROUP, name=spec.preset)
        return entry.load()
    except Exception as error:
        raise StrategyError(f"entry point '{spec.preset}' does not load: {_line(error)}") from None


def rule_class(cls: Any, name: str) -> type[Any]:
    """Return the class as a dataclass, or refuse what is no strategy.

    Raises:
        StrategyError: it is no class, has neither ``weights`` nor a sampler's methods, or declares
            itself wrongly.
    """
    samples = inspect.isclass(cls) and callable(getattr(cls, "propose", None))
    if not samples and not (inspect.isclass(cls) and callable(getattr(cls, "weights", None))):
        raise StrategyError(
            f"{name} is no strategy: it needs a method weights(self, batch); a sampler needs "
            f"{', '.join(_SAMPLER)}"
        )
    for method in _SAMPLER if samples else ():
        if not callable(getattr(cls, method, None)):
            raise StrategyError(
                f"{name} proposes, but has no method {method}; a sampler needs "
                f"{', '.join(_SAMPLER)}"
            )
    for attribute, allowed in _SAMPLER_CHOICES if samples else _WEIGHING_CHOICES:
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
            cls = dataclass(frozen=not samples, eq=not samples)(cls)
        except (TypeError, ValueError) as error:
            raise StrategyError(f"{name}: {_line(error)}") from None
    elif samples and vars(cls)["__dataclass_params__"].frozen:
        raise StrategyError(f"{name} is frozen, but a sampler keeps a state; drop frozen=True")
    for item in dataclasses.fields(cls):
        if item.init and item.default is MISSING and item.default_factory is MISSING:
            raise StrategyError(f"{name}: field '{item.name}' needs a default")
    return cls


_SAMPLER = ("start", "observe", "propose", "state_dict", "load_state_dict")
_SAMPLER_CHOICES = (("kind", ("sample",)), ("level", ("domain", "prompt")))
_WEIGHING_CHOICES = (("kind", ("select", "reweight")), ("level", ("response", "token")))


def _from_file(spec: Spec) -> Any:
    if not spec.rule:
        raise StrategyError(f"'{spec}' names no class; write {spec}:ClassName")
    path = Path(spec.file)
    if not path.is_file():
        raise StrategyError(f"{path} does not exist; a strategy of your own is FILE.py:ClassName")
    module = _module(path, path.stat().st_mtime_ns)
    if not hasattr(module, spec.rule):
        classes = [n for n, v in vars(module).items() if inspect.isclass(v)]
        raise StrategyError(f"{path} has no class '{spec.rule}'{nearest(spec.rule, classes)}")
    return getattr(module, spec.rule)


@lru_cache(maxsize=32)
def _module(path: Path, changed_ns: int) -> ModuleType:
    """Run a user's file, once for each change of it."""
    module_name = f"dfsim_own_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise StrategyError(f"{path} does not import: {_line(error)}") from None
    return module


def _line(error: BaseException) -> str:
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
