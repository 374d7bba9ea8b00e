"""From a name and parameters to a strategy of any kind: the only place that builds one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..traces.errors import StrategyError, nearest
from ..traces.spelling import option
from .base import Strategy, make, parameters
from .catalog import ACTUATORS, FOREIGN, PRESETS, Preset, preset_parameters
from .own import Own, OwnSampler, load_class, names_own, rule_class
from .sample.base import SamplingStrategy, UnitLevel
from .signals import SCORERS, Uniform
from .spec import Spec

AnyStrategy = Strategy | SamplingStrategy
"""What :func:`build` returns: it weighs what was drawn, or says what to draw."""

OWN_SOURCE = "your own"


@dataclass(frozen=True)
class Form:
    """What the parts of a chain are together.

    Attributes:
        kind: ``rule``: one preset or class of a user's own; ``pipeline``: a sampler, then what
            its draw passes through; ``composition``: a scorer and an actuator.
        parameters: names of the parameters of each part.
    """

    kind: Literal["rule", "pipeline", "composition"]
    parameters: Sequence[Sequence[str]]


def form_of(spec: Spec) -> Form:
    """Say what a chain's parts are.

    Raises:
        StrategyError: a part is unknown (nearest given), or the parts don't fit together.
    """
    parts = tuple(spec)
    if len(parts) == 1:
        return Form("rule", [_part_parameters(spec)])
    rules = [part.preset for part in parts]
    if len(parts) == 2 and rules[0] in SCORERS and rules[1] in ACTUATORS:
        pair = (SCORERS[rules[0]], ACTUATORS[rules[1]])
        return Form("composition", [list(parameters(cls)) for cls in pair])
    sampling = [_samples(part) for part in parts]
    if len(parts) == 2 and sampling == [False, True]:
        raise StrategyError(f"'{spec}': the sampler draws first; write {parts[1]}+{parts[0]}")
    if len(parts) != 2 or sampling != [True, False]:
        raise StrategyError(
            f"'{spec}': a pipeline is one sampler and one selector or reweighter, as "
            "dump_ucb+maxvar; a composition one scorer and one actuator, as solve_rate+solve_band"
        )
    return Form("pipeline", [_part_parameters(part) for part in parts])


def build(
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    scorer: str | None = None,
    actuator: str | None = None,
    tie_seed: int = 0,
) -> AnyStrategy:
    """Build a strategy of any kind.

    Args:
        name: a preset (``maxvar``, ``gfpo@paper``, ``dump_ucb``), a pipeline
            (``dump_ucb+maxvar``), a user's own (``my_file.py:MyStrategy``, or an entry point of the
            group ``dfsim.strategies``); or give ``scorer`` and ``actuator``.
        params: parameter values; the rest keep their defaults. In a pipeline the first part that
            has the parameter takes it, unless its name is prefixed, as ``maxvar.keep_frac``.
        scorer: key of ``SCORERS``, together with ``actuator``.
        actuator: key of ``ACTUATORS``, together with ``scorer``.
        tie_seed: decides ties across groups.

    Returns:
        The strategy; ``strategy.decide(batch)`` gives its weights, and ``strategy.start(units)``
        a sampler's work.

    Raises:
        StrategyError: unknown name or parameter (with the nearest one), or a value out of range.

    Example:
        >>> dfsim.build("maxvar", {"keep_frac": 0.25}).params["keep_frac"]
        0.25
    """
    if name is not None and (scorer or actuator):
        raise StrategyError(
            f"give a strategy, or {option('scorer')} with {option('actuator')}, not both"
        )
    if name is not None:
        spec = Spec.parse(name)
        refuse_point(spec)
        return build_parts(spec, values_by_part(spec, params or {}), tie_seed)
    return _compose(composed(scorer, actuator), [dict(params or {}), {}], tie_seed)


def composed(scorer: str | None, actuator: str | None) -> Spec:
    """The chain of a scorer and an actuator.

    Raises:
        StrategyError: one is missing or unknown (nearest given).
    """
    if not scorer or not actuator:
        raise StrategyError("name a strategy, or give both a scorer and an actuator")
    _key(scorer, SCORERS, "scorer")
    _key(actuator, ACTUATORS, "actuator")
    return Spec(scorer, then=Spec(actuator))


def refuse_point(spec: Spec) -> None:
    """Refuse a name with a sweep's values: they describe a strategy, they don't set it.

    Raises:
        StrategyError: it has some.
    """
    if spec != spec.unswept:
        raise StrategyError(
            f"'{spec}': the values in brackets name a point of a sweep; give them as parameters of "
            f"{spec.unswept}"
        )


def values_by_part(spec: Spec, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Hand each parameter to the part that its prefix names, or to the first that has it.

    Raises:
        StrategyError: see :func:`form_of`.
    """
    parts, names = tuple(spec), form_of(spec).parameters
    values: list[dict[str, Any]] = [{} for _ in parts]
    for key, value in params.items():
        prefix, dot, name = key.rpartition(".")
        owners = [i for i, part in enumerate(parts) if dot and part.owns(prefix)]
        if not owners:
            name = key
            owners = [i for i in range(len(parts)) if key in names[i]]
        values[owners[0] if owners else -1][name] = value
    return values


def build_parts(spec: Spec, values: Sequence[Mapping[str, Any]], tie_seed: int = 0) -> AnyStrategy:
    """Build a chain from the parameters of each of its parts; its name is the spec's.

    Raises:
        StrategyError: see :func:`build`.
    """
    kind = form_of(spec).kind
    if kind == "composition":
        return _compose(spec, values, tie_seed)
    if kind == "pipeline":
        assert spec.then is not None
        then = build_parts(spec.then, values[1:], tie_seed)
        assert isinstance(then, Strategy)
        sampler = Spec.parse(str(next(iter(spec))))
        return _sampling(sampler, str(spec), values[0], then)
    if names_own(spec):
        return build_own(load_class(spec), str(spec), values[0], tie_seed)
    if PRESETS[spec.preset].samples:
        return _sampling(spec, str(spec), values[0], None)
    return _weighing(spec.preset, str(spec), PRESETS[spec.preset], values[0], tie_seed)


def build_own(
    cls: type, name: str, values: Mapping[str, Any], tie_seed: int, then: Strategy | None = None
) -> AnyStrategy:
    """Build a strategy from a user's class, whose dataclass fields are its parameters."""
    checked = rule_class(cls, name)
    rule = make(checked, dict(values), name)
    shown = {p: getattr(rule, p) for p in parameters(checked)}
    if hasattr(cls, "propose"):
        level: UnitLevel = getattr(cls, "level", "domain")
        shown |= _prefixed(then)
        return SamplingStrategy(name, OwnSampler(rule), shown, level, OWN_SOURCE, then)
    return Strategy(name, Uniform(), Own(rule), shown, OWN_SOURCE, tie_seed)


def _part_parameters(part: Spec) -> list[str]:
    if names_own(part):
        return list(parameters(rule_class(load_class(part), str(part))))
    if part.preset not in PRESETS:
        raise StrategyError(
            f"no strategy is called '{part}'{_hint(part.preset, PRESETS)}; dfsim strategies lists "
            "them"
        )
    preset = PRESETS[part.preset]
    return [*preset_parameters(preset), *preset.fixed]


def _samples(part: Spec) -> bool:
    _part_parameters(part)
    return hasattr(load_class(part), "propose") if names_own(part) else PRESETS[part.preset].samples


def _sampling(
    spec: Spec, name: str, values: Mapping[str, Any], then: Strategy | None
) -> SamplingStrategy:
    if names_own(spec):
        sampler = build_own(load_class(spec), name, values, 0, then)
        assert isinstance(sampler, SamplingStrategy)
        return sampler
    preset = PRESETS[spec.preset]
    (cls,) = preset.rules
    rule = make(cls, {**preset.defaults, **values}, spec.preset)
    shown = {p: getattr(rule, p) for p in parameters(cls)} | _prefixed(then)
    return SamplingStrategy(name, rule, shown, "domain", preset.source, then)


def _prefixed(then: Strategy | None) -> dict[str, Any]:
    """Parameters of what follows a sampler, under its name: both may have a temperature."""
    if then is None:
        return {}
    prefix = Spec.parse(then.name).unswept.short
    return {f"{prefix}.{name}": value for name, value in then.params.items()}


def _compose(spec: Spec, values: Sequence[Mapping[str, Any]], tie_seed: int) -> Strategy:
    scorer, actuator = (part.preset for part in spec)
    pair = Preset(scorer, actuator, "", "")
    return _weighing(str(spec.unswept), str(spec), pair, {**values[0], **values[1]}, tie_seed)


def _weighing(
    called: str, name: str, preset: Preset, given: Mapping[str, Any], tie_seed: int
) -> Strategy:
    allowed = preset_parameters(preset)
    for key in given:
        if key in preset.fixed:
            raise StrategyError(f"{called} fixes {key}={preset.fixed[key]}; it can't be set")
        if key not in allowed:
            have = ", ".join(allowed) or "none"
            raise StrategyError(
                f"{called} has no parameter '{key}'{_hint(key, allowed)}; it has: {have}"
            )
    values = {**preset.defaults, **preset.fixed, **given}
    scorer, actuator = (
        make(cls, {k: v for k, v in values.items() if k in parameters(cls)}, called)
        for cls in preset.rules
    )
    if scorer.level != actuator.level:
        fits = [k for k, v in SCORERS.items() if v.level == actuator.level]
        raise StrategyError(
            f"{preset.scorer} scores a {scorer.level}, {preset.actuator} needs a score per "
            f"{actuator.level}; scorers that fit: {', '.join(fits)}"
        )
    shown = {k: getattr(part, k) for part in (scorer, actuator) for k in parameters(type(part))}
    return Strategy(name, scorer, actuator, shown, preset.source, tie_seed)


def _key(name: str, table: Mapping[str, Any], what: str) -> None:
    if name not in table:
        have = ", ".join(table)
        raise StrategyError(f"no {what} is called '{name}'{_hint(name, table)}; there are: {have}")


def _hint(name: str, names: Mapping[str, Any]) -> str:
    foreign = FOREIGN.get(name.lower().replace("-", "_"))
    if foreign in names:
        return f" (dfsim calls it '{foreign}')"
    return nearest(name, names)
