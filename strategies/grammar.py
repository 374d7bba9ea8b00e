"""The one grammar of strategies and parameters, on the command line and in settings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, TypeVar

import yaml

from ..traces.errors import DfsimError, StrategyError, nearest
from ..traces.spelling import option
from .build import AnyStrategy, build_parts, composed, form_of, refuse_point
from .catalog import PRESETS, WEIGHING
from .spec import Spec

C = TypeVar("C", bound=str)


def assignments(items: Sequence[str], flag: str) -> Iterator[tuple[str, str]]:
    """Split ``name=value`` items.

    Raises:
        DfsimError: an item without ``=`` or without a name.
    """
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise DfsimError(f"{flag} {item} is not name=value")
        yield name.strip(), value.strip()


def yaml_value(text: str, flag: str) -> Any:
    """Read a YAML value; 1e-6, which YAML 1.1 leaves as text, is a number, and a date is text.

    Raises:
        DfsimError: the text is not YAML, or a number that is not finite.
    """
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise DfsimError(f"{flag}: '{text}' is not a YAML value") from None
    read = [_number(v, str(v)) for v in value] if isinstance(value, list) else _number(value, text)
    for one in read if isinstance(read, list) else [read]:
        if isinstance(one, float) and not math.isfinite(one):
            raise DfsimError(f"{flag}: '{text}' is not a finite number")
    return read


def number(text: str, flag: str) -> float:
    """Read a finite number.

    Raises:
        DfsimError: the text is none.
    """
    value = yaml_value(text, flag)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DfsimError(f"{flag}: '{text}' is not a number")
    return float(value)


def one_of(value: str, known: Sequence[C], flag: str) -> C:
    """Return the choice that a text names.

    Raises:
        DfsimError: it names none (nearest given).
    """
    for choice in known:
        if choice == value:
            return choice
    have = ", ".join(known)
    raise DfsimError(f"{flag} {value} is not known{nearest(value, known)}; it takes: {have}")


def _number(value: Any, text: str) -> Any:
    if isinstance(value, date):
        return text
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def strategies_from(
    names: Sequence[str],
    params: Sequence[str],
    scorer: str | None = None,
    actuator: str | None = None,
    *,
    tie_seed: int = 0,
    skip: Mapping[str, str] | None = None,
    shared: Mapping[str, Any] | None = None,
    default: str | None = None,
) -> list[AnyStrategy]:
    """Build strategies of any kind from names and parameters, in the order of the names.

    Args:
        names: what :func:`dfsim.build` takes, or ``all`` (every preset that weighs a draw).
        params: ``name=value`` or ``strategy.name=value``; a list value gives one strategy each. In
            a chain the first part that has the parameter takes it where no prefix says which.
        scorer: of a composition, with ``actuator``.
        actuator: of a composition, with ``scorer``.
        tie_seed: decides ties across groups.
        skip: presets that ``all`` leaves out.
        shared: parameters for every preset that has them, where ``params`` does not say otherwise.
        default: the one of several names whose parameters may go without a prefix.

    Raises:
        StrategyError: see :func:`dfsim.build`; or a parameter that names no chosen strategy.
    """
    specs = [Spec.parse(name) for name in _expanded(names, skip or {})]
    if scorer or actuator:
        if specs:
            raise StrategyError(
                f"give {option('strategies')}, or {option('scorer')} with {option('actuator')}, "
                "not both"
            )
        specs = [composed(scorer, actuator)]
    if not specs:
        raise StrategyError(
            f"name a strategy: {option('strategies', 'maxvar')}, or {option('strategies', 'all')}"
        )
    for spec in specs:
        refuse_point(spec)
        if specs.count(spec) > 1:
            raise StrategyError(f"strategy '{spec}' is given twice; name it once")
    values = _Values(specs, shared or {})
    for key, text in _distinct(params):
        values.add(key, text, default)
    return [
        strategy
        for spec, parts in zip(specs, values.parts, strict=True)
        for strategy in _sweep(spec, parts, tie_seed)
    ]


def _expanded(names: Sequence[str], skip: Mapping[str, str]) -> list[str]:
    """Names with ``all`` spelt out; what is named beside it is not there twice."""
    chosen: list[str] = []
    for name in names:
        chosen += [n for n in WEIGHING if n not in (*skip, *chosen)] if name == "all" else [name]
    return chosen


def _distinct(params: Sequence[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for key, text in assignments(params, option("params")):
        if key in seen:
            raise StrategyError(
                f"{option('params', key=key)} is given twice; give it once, or sweep {key}=[…, …]"
            )
        seen.add(key)
        yield key, text


class _Values:
    """The parameters of each part of each chain.

    Args:
        specs: the chains.
        shared: parameters for every preset that has them.
    """

    def __init__(self, specs: Sequence[Spec], shared: Mapping[str, Any]) -> None:
        self._specs = specs
        self._names = [form_of(spec).parameters for spec in specs]
        self.parts: list[list[dict[str, Any]]] = [
            [
                {k: v for k, v in shared.items() if part.preset in PRESETS and k in names}
                for part, names in zip(spec, parts, strict=True)
            ]
            for spec, parts in zip(specs, self._names, strict=True)
        ]

    def add(self, key: str, text: str, default: str | None) -> None:
        """Hand one assignment to its parts."""
        at = option("params", key=key)
        value = yaml_value(text, at)
        prefix, dot, name = key.rpartition(".")
        if dot:
            owners = [
                (i, j)
                for i, spec in enumerate(self._specs)
                for j, part in enumerate(spec)
                if part.owns(prefix) or (j == 0 and prefix == str(spec))
            ]
            if not owners:
                have = ", ".join(map(str, self._specs))
                raise StrategyError(
                    f"{at}: '{prefix}' is not among the strategies named ({have})"
                    f"{nearest(prefix, map(str, self._specs))}"
                )
        else:
            owners = [self._unprefixed(key, text, default)]
        for i, j in owners:
            self.parts[i][j][name] = value

    def _unprefixed(self, key: str, text: str, default: str | None) -> tuple[int, int]:
        chosen = [i for i, spec in enumerate(self._specs) if str(spec) == default]
        if not chosen and len(self._specs) > 1:
            raise StrategyError(
                f"{option('params', key=key)}: several strategies are named; write "
                f"STRATEGY.{key}={text}"
            )
        i = chosen[0] if chosen else 0
        having = [j for j, names in enumerate(self._names[i]) if key in names]
        return i, having[0] if having else len(self._names[i]) - 1


def points(values: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Every combination of listed values: all of its values, and those that vary as text.

    Raises:
        StrategyError: a list is empty.
    """
    swept = {k: v for k, v in values.items() if isinstance(v, list)}
    for key, listed in swept.items():
        if not listed:
            at = option("params", "[]", key=key)
            raise StrategyError(f"{at} sweeps nothing; list values, as {key}=[0.25, 0.5]")
    for combination in itertools.product(*swept.values()):
        point = dict(zip(swept, combination, strict=True))
        yield {**values, **point}, ",".join(f"{k}={v}" for k, v in point.items())


def _sweep(spec: Spec, parts: Sequence[Mapping[str, Any]], tie_seed: int) -> Iterator[AnyStrategy]:
    for combination in itertools.product(*map(points, parts)):
        named: Spec | None = None
        for part, (_, point) in reversed(list(zip(spec, combination, strict=True))):
            named = replace(part, point=point or part.point, then=named)
        assert named is not None
        yield build_parts(named, [values for values, _ in combination], tie_seed)
