"""The one grammar of strategies and parameters, on the command line and in settings."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, TypeVar

import yaml

from ..traces.errors import DfsimError, StrategyError, nearest
from ..traces.spelling import option
from .base import Strategy
from .catalog import PRESETS, build, preset_parameters

C = TypeVar("C", bound=str)

_POINT = re.compile(r"\[[^\[\]/]*=[^\[\]/]*\]$")


def base_of(name: str) -> str:
    """Name without the point of a sweep: ``maxvar[keep_frac=0.5]`` → ``maxvar``."""
    return _POINT.sub("", name)


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
    found = [_number(v, str(v)) for v in value] if isinstance(value, list) else _number(value, text)
    listed = found if isinstance(found, list) else [found]
    if any(isinstance(v, float) and not math.isfinite(v) for v in listed):
        raise DfsimError(f"{flag}: '{text}' is not a finite number")
    return found


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


def strategies_of(
    names: Sequence[str],
    params: Sequence[str],
    scorer: str | None = None,
    actuator: str | None = None,
    *,
    tie_seed: int = 0,
    skip: Mapping[str, str] | None = None,
    shared: Mapping[str, Any] | None = None,
) -> list[Strategy]:
    """Build strategies from ``--strategy``, ``-p``, ``--scorer`` and ``--actuator``.

    Args:
        names: presets, ``FILE.py:Class``, or ``all``.
        params: ``name=value`` or ``strategy.name=value``; a list value gives one strategy each.
        scorer: of a composition, with ``actuator``.
        actuator: of a composition, with ``scorer``.
        tie_seed: decides ties across groups.
        skip: presets that ``all`` leaves out.
        shared: parameters for every preset that has them, where ``params`` does not say otherwise.

    Raises:
        StrategyError: see :func:`dfsim.build`; or a parameter that names no chosen strategy.
    """
    chosen: list[str | None] = []
    for name in names:
        if name == "all":
            chosen += [n for n in PRESETS if n not in (skip or {}) and n not in chosen]
        else:
            chosen.append(name)
    if scorer or actuator:
        if chosen:
            raise StrategyError(
                f"give {option('strategies')}, or {option('scorer')} with {option('actuator')}, "
                "not both"
            )
        chosen.append(None)
    if not chosen:
        raise StrategyError(
            f"name a strategy: {option('strategies', 'maxvar')}, or {option('strategies', 'all')}"
        )
    values = _values(params, [n for n in chosen if n is not None])
    built = []
    for wanted in chosen:
        own = {**values.get(None, {}), **(values.get(wanted, {}) if wanted else {})}
        if wanted in PRESETS and shared:
            has = preset_parameters(PRESETS[wanted])
            own = {**{name: value for name, value in shared.items() if name in has}, **own}
        built += list(_sweep(wanted, own, scorer, actuator, tie_seed))
    return built


def _values(params: Sequence[str], names: Sequence[str]) -> dict[str | None, dict[str, Any]]:
    values: dict[str | None, dict[str, Any]] = {}
    seen: set[str] = set()
    for key, text in assignments(params, option("params")):
        at = option("params", key=key)
        if key in seen:
            raise StrategyError(f"{at} is given twice; give it once, or sweep {key}=[…, …]")
        seen.add(key)
        owner, dot, name = key.rpartition(".")
        if not dot:
            if len(names) > 1:
                raise StrategyError(
                    f"{at}: several strategies are named; write STRATEGY.{key}={text}"
                )
            values.setdefault(None, {})[name] = yaml_value(text, at)
            continue
        owned = [n for n in names if n == owner or n.split("@")[0] == owner]
        if not names:
            raise StrategyError(
                f"{option('params', key=key)}: a composition has no name; write {name}={text}"
            )
        if not owned:
            have = ", ".join(names)
            raise StrategyError(
                f"{option('params', key=key)}: '{owner}' is not among the strategies named ({have})"
            )
        for strategy in owned:
            values.setdefault(strategy, {})[name] = yaml_value(text, at)
    return values


def points(values: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every combination of listed values: all of its values, and those that vary.

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
        yield {**values, **point}, point


def _sweep(
    name: str | None,
    values: Mapping[str, Any],
    scorer: str | None,
    actuator: str | None,
    tie_seed: int,
) -> Iterator[Strategy]:
    for settings, point in points(values):
        strategy = build(name, settings, scorer=scorer, actuator=actuator, tie_seed=tie_seed)
        if point:
            shown = ",".join(f"{k}={v}" for k, v in point.items())
            strategy = replace(strategy, name=f"{strategy.name}[{shown}]")
        yield strategy
