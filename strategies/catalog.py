"""The named strategies, and the only place that builds one.

Adding a preset is one line in ``PRESETS``; adding a rule is one file and the line in ``ACTUATORS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..traces.errors import StrategyError, nearest
from ..traces.spelling import option
from .base import Actuator, ParamInfo, Scorer, Strategy, make, parameters
from .mix.presets import is_mix
from .own import OWN_SOURCE, Own, as_rule, is_own, load_own
from .reweight.normalised import Power, QuantileBand, Softmax
from .reweight.probability_mix import ProbabilityMix
from .reweight.uniform import Unchanged
from .select.group_top_k import GroupTopK
from .select.max_variance import MaxVariance
from .select.solve_band import SolveBand
from .select.top_fraction import TopFraction
from .select.varying_groups import VaryingGroups
from .signals import SCORERS, Uniform

ACTUATORS: dict[str, type[Actuator]] = {
    "unchanged": Unchanged,
    "solve_band": SolveBand,
    "varying_groups": VaryingGroups,
    "max_variance": MaxVariance,
    "group_top_k": GroupTopK,
    "top_fraction": TopFraction,
    "softmax": Softmax,
    "power": Power,
    "quantile_band": QuantileBand,
    "probability_mix": ProbabilityMix,
}


@dataclass(frozen=True)
class Preset:
    """A named pair of scorer and actuator.

    Attributes:
        scorer: key of ``SCORERS``.
        actuator: key of ``ACTUATORS``.
        summary: one line for listings.
        source: paper or system.
        fixed: parameters that make the preset what it is; users can't set them.
        defaults: defaults that differ from the rule's own.
    """

    scorer: str
    actuator: str
    summary: str
    source: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


_GFPO = "arXiv:2508.09726 §3"
_MAXVAR = "arXiv:2504.13818 §3.2"
_AR = "arXiv:2505.12929 §4"

PRESETS: dict[str, Preset] = {
    "none": Preset("uniform", "unchanged", "every response as the run weighed it", "baseline"),
    "difffilter": Preset(
        "solve_rate", "solve_band", "groups of middling solve rate", "DataFlex-RL"
    ),
    "dapo": Preset(
        "metric_span",
        "varying_groups",
        "groups whose rewards vary; DAPO only with refill",
        "arXiv:2503.14476 §3.2, verl filter_groups",
    ),
    "maxvar": Preset(
        "reward",
        "max_variance",
        "the half of each group whose rewards vary most",
        _MAXVAR,
        fixed={"renormalise": False},
    ),
    "maxvar@paper": Preset(
        "reward",
        "max_variance",
        "maxvar, advantages re-normalised inside the kept subset",
        _MAXVAR,
        fixed={"renormalise": True},
    ),
    "gfpo": Preset(
        "token_efficiency",
        "group_top_k",
        "each group's k best by reward per token, or shortest",
        _GFPO,
        fixed={"renormalise": False},
    ),
    "gfpo@paper": Preset(
        "token_efficiency",
        "group_top_k",
        "gfpo, advantages re-normalised inside the kept subset",
        _GFPO,
        fixed={"renormalise": True},
    ),
    "topk": Preset(
        "advantage_magnitude", "top_fraction", "the batch's largest advantages", "DataFlex-RL"
    ),
    "softmax": Preset(
        "advantage_magnitude", "softmax", "softmax of |advantage|, mean 1", "DataFlex-RL"
    ),
    "per": Preset(
        "advantage_magnitude",
        "power",
        "|advantage| to a power, mean 1",
        "arXiv:1511.05952 §3.3",
        defaults={"alpha": 0.5},
    ),
    "diffband": Preset(
        "reward", "quantile_band", "more weight inside a reward quantile band", "DataFlex-RL"
    ),
    "ar": Preset(
        "token_probability",
        "probability_mix",
        "less weight on improbable tokens, mean 1",
        _AR,
        fixed={"mean_one": True},
    ),
    "ar@paper": Preset(
        "token_probability",
        "probability_mix",
        "less weight on improbable tokens, not re-normalised",
        _AR,
        fixed={"mean_one": False},
        defaults={"alpha": 0.2},
    ),
}

# Other projects' names, for the hint in an error.
FOREIGN = {
    "max_variance": "maxvar",
    "maxvariance": "maxvar",
    "difficulty_filter": "difffilter",
    "threshold_band": "difffilter",
    "top_k": "topk",
    "difficulty_band": "diffband",
    "advantage_reweight": "ar",
    "uniform": "none",
    "baseline": "none",
    "keep_fraction": "keep_frac",
    "keep_ratio": "keep_frac",
    "temp": "temperature",
    "tau": "temperature",
    "lower": "low",
    "upper": "high",
    "focus": "focus_weight",
    "top_fraction": "fraction",
}


def preset_parameters(preset: Preset) -> dict[str, ParamInfo]:
    """Parameters that a user may set, with the preset's own defaults."""
    known = {**parameters(SCORERS[preset.scorer]), **parameters(ACTUATORS[preset.actuator])}
    return {
        name: ParamInfo(name, preset.defaults.get(name, info.default), info.help, info.range)
        for name, info in known.items()
        if name not in preset.fixed
    }


def build(
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    scorer: str | None = None,
    actuator: str | None = None,
    tie_seed: int = 0,
) -> Strategy:
    """Build a strategy.

    Args:
        name: a preset (``maxvar``, ``gfpo@paper``), a user's own (``my_file.py:MyStrategy``, or an
            entry point of the group ``dfsim.strategies``); or give ``scorer`` and ``actuator``.
        params: parameter values; the rest keep their defaults.
        scorer: key of ``SCORERS``, together with ``actuator``.
        actuator: key of ``ACTUATORS``, together with ``scorer``.
        tie_seed: decides ties across groups.

    Returns:
        The strategy; ``strategy.decide(batch)`` gives its weights.

    Raises:
        StrategyError: unknown name or parameter (with the nearest one), or a value out of range.

    Example:
        >>> dfsim.build("maxvar", {"keep_frac": 0.25}).params["keep_frac"]
        0.25
    """
    values = dict(params or {})
    if name is not None and (scorer or actuator):
        raise StrategyError(
            f"give a strategy, or {option('scorer')} with {option('actuator')}, not both"
        )
    if name is None:
        if not scorer or not actuator:
            raise StrategyError("name a strategy, or give both a scorer and an actuator")
        pair = Preset(
            _known(scorer, SCORERS, "scorer"), _known(actuator, ACTUATORS, "actuator"), "", ""
        )
        return _compose(f"{scorer}+{actuator}", pair, values, tie_seed)
    if is_own(name):
        return build_own(load_own(name), name, values, tie_seed)
    if is_mix(name):
        raise StrategyError(
            f"'{name}' is a mixer, which draws prompts and weighs nothing: replay it by dfsim "
            "replay, or dfsim.replay_mixers"
        )
    if name not in PRESETS:
        raise StrategyError(
            f"no strategy is called '{name}'{_hint(name, PRESETS)}; dfsim strategies lists them"
        )
    return _compose(name, PRESETS[name], values, tie_seed)


def build_own(cls: type, name: str, values: dict[str, Any], tie_seed: int) -> Strategy:
    """Build a strategy from a user's class, whose dataclass fields are its parameters."""
    rule = make(as_rule(cls, name), values, name)
    shown = {p: getattr(rule, p) for p in parameters(type(rule))}
    return Strategy(name, Uniform(), Own(rule), shown, OWN_SOURCE, tie_seed)


def _compose(name: str, preset: Preset, values: dict[str, Any], tie_seed: int) -> Strategy:
    allowed = preset_parameters(preset)
    for key in values:
        if key in preset.fixed:
            raise StrategyError(f"{name} fixes {key}={preset.fixed[key]}; it can't be set")
        if key not in allowed:
            have = ", ".join(allowed) or "none"
            raise StrategyError(
                f"{name} has no parameter '{key}'{_hint(key, allowed)}; it has: {have}"
            )
    values = {**preset.defaults, **preset.fixed, **values}
    parts: list[Any] = []
    for cls in (SCORERS[preset.scorer], ACTUATORS[preset.actuator]):
        own = parameters(cls)
        parts.append(make(cls, {k: v for k, v in values.items() if k in own}, name))
    scorer: Scorer = parts[0]
    actuator: Actuator = parts[1]
    if scorer.level != actuator.level:
        fits = [k for k, v in SCORERS.items() if v.level == actuator.level]
        raise StrategyError(
            f"{preset.scorer} scores a {scorer.level}, {preset.actuator} needs a score per "
            f"{actuator.level}; scorers that fit: {', '.join(fits)}"
        )
    shown = {k: getattr(p, k) for p in parts for k in parameters(type(p))}
    return Strategy(name, scorer, actuator, shown, preset.source, tie_seed)


def _known(name: str, table: Mapping[str, Any], what: str) -> str:
    if name not in table:
        have = ", ".join(table)
        raise StrategyError(f"no {what} is called '{name}'{_hint(name, table)}; there are: {have}")
    return name


def _hint(name: str, known: Mapping[str, Any]) -> str:
    foreign = FOREIGN.get(name.lower().replace("-", "_"))
    if foreign in known:
        return f" (dfsim calls it '{foreign}')"
    return nearest(name, known)
