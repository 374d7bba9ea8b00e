"""Mixers and pipelines in the one grammar of strategies and parameters."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...traces.errors import StrategyError
from ...traces.spelling import option
from ..base import Strategy
from ..catalog import PRESETS, build, preset_parameters
from ..grammar import assignments, points, strategies_of, yaml_value
from ..own import is_own
from .presets import MIXERS, Mix, build_mix, is_mix, mix_parameters


def chosen_of(
    names: Sequence[str],
    params: Sequence[str],
    scorer: str | None = None,
    actuator: str | None = None,
    *,
    tie_seed: int = 0,
    skip: Mapping[str, str] | None = None,
    shared: Mapping[str, Any] | None = None,
) -> tuple[list[Strategy], list[Mix]]:
    """Build selectors and reweighters, and mixers with what their draw passes through.

    Args:
        names: as of :func:`dfsim.strategies.grammar.strategies_of`; also ``MIXER`` and
            ``MIXER+STRATEGY``.
        params: ``name=value`` or ``strategy.name=value``; a list value gives one of them each. The
            part of a pipeline that has the parameter takes it where no prefix says which.
        scorer: of a composition, with ``actuator``.
        actuator: of a composition, with ``scorer``.
        tie_seed: decides ties across groups.
        skip: presets that ``all`` leaves out.
        shared: parameters for every preset that has them, where ``params`` does not say otherwise.

    Raises:
        StrategyError: an unknown name or parameter, or one that fits no part.
    """
    mixed = [name for name in names if is_mix(name)]
    plain = [name for name in names if not is_mix(name)]
    for name in plain:
        _refuse_misspelt(name)
    if not mixed:
        found = strategies_of(
            names, params, scorer, actuator, tie_seed=tie_seed, skip=skip, shared=shared
        )
        return found, []
    for name in mixed:
        if mixed.count(name) > 1:
            raise StrategyError(f"strategy '{name}' is given twice; name it once")
    left: list[str] = []
    keys = [key for key, _ in assignments(params, option("params"))]
    for key, item in zip(keys, params, strict=True):
        if keys.count(key) > 1:
            raise StrategyError(
                f"{option('params', key=key)} is given twice; give it once, or sweep {key}=[…, …]"
            )
        owner, dot, _ = key.rpartition(".")
        if not dot and len(names) > 1:
            raise StrategyError(
                f"{option('params', key=item)}: several strategies are named; write STRATEGY.{item}"
            )
        owned = any(_owns(owner, part) for name in mixed for part in name.split("+"))
        if dot and any(_owns(owner, name) for name in (*plain, *(skip or {}))):
            left.append(item)
        elif dot and not owned and "all" not in plain:
            have = ", ".join(names)
            raise StrategyError(
                f"{option('params', key=key)}: '{owner}' is not among the strategies named ({have})"
            )
    strategies: list[Strategy] = []
    if plain or scorer:
        strategies = strategies_of(
            plain, left, scorer, actuator, tie_seed=tie_seed, skip=skip, shared=shared
        )
    return strategies, [m for name in mixed for m in _pipelines(name, params, tie_seed, shared)]


def _refuse_misspelt(name: str) -> None:
    """A name that is nearly a mixer's, or a pipeline the wrong way round."""
    first, plus, rest = name.partition("+")
    if plus and is_mix(rest):
        raise StrategyError(f"'{name}': the mixer draws first; write {rest}+{first}")
    known = first in PRESETS or first == "all" or is_own(name)
    close = difflib.get_close_matches(first, MIXERS, n=1, cutoff=0.7)
    if not known and close and not difflib.get_close_matches(first, PRESETS, n=1, cutoff=0.7):
        raise StrategyError(f"no strategy is called '{first}' (did you mean '{close[0]}'?)")


def _owns(owner: str, name: str) -> bool:
    return owner in (name, name.split("@")[0])


def _pipelines(
    name: str, params: Sequence[str], tie_seed: int, shared: Mapping[str, Any] | None
) -> Iterator[Mix]:
    """One mixer or pipeline, swept over lists of values."""
    mixer, plus, selector = name.partition("+")
    if plus and (not selector or is_mix(selector)):
        raise StrategyError(
            f"'{name}': a pipeline is one mixer and one selector or reweighter, as {mixer}+maxvar"
        )
    own: dict[str, Any] = {}
    then: dict[str, Any] = {}
    if shared and selector in PRESETS:
        has = preset_parameters(PRESETS[selector])
        then |= {parameter: value for parameter, value in shared.items() if parameter in has}
    for key, text in assignments(params, option("params")):
        owner, dot, parameter = key.rpartition(".")
        mine = _owns(owner, mixer) if dot else _fits_mixer(mixer, parameter, selector)
        if mine:
            own[parameter] = yaml_value(text, option("params", key=key))
        elif not dot or _owns(owner, selector):
            then[parameter] = yaml_value(text, option("params", key=key))
    for mix_values, mix_point in points(own):
        for then_values, then_point in points(then):
            second = build(selector, then_values, tie_seed=tie_seed) if selector else None
            mix = build_mix(mixer, mix_values, second)
            shown = ",".join(f"{k}={v}" for k, v in {**mix_point, **then_point}.items())
            yield replace(mix, name=f"{mix.name}[{shown}]") if shown else mix


def _fits_mixer(mixer: str, parameter: str, selector: str) -> bool:
    return not selector or parameter in mix_parameters(MIXERS[mixer])
