"""The named mixers and pipelines. Adding a mixer is one file and one line in ``MIXERS``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...traces.errors import StrategyError, nearest
from ...traces.ragged import Float
from ..base import ParamInfo, Strategy, make, parameters
from .base import Mixer, MixRule, hold_floor
from .dump_ucb import DumpUcb
from .reward_gap import MeanReward, RewardGap, RewardGapAsRun
from .static import Static
from .tscl import Tscl, TsclPaper

_DUMP, _TSCL = "arXiv:2504.09710 §3", "arXiv:1707.00183 §3"
_ASRUN = "DataFlex-RL f4d305b, 21 July 2026; later code may differ"


@dataclass(frozen=True)
class MixPreset:
    """A named mixer: its rule, one line, its source, and defaults that differ from the rule's."""

    rule: type[MixRule]
    summary: str
    source: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


MIXERS: dict[str, MixPreset] = {
    "static": MixPreset(Static, "fixed proportions", "baseline"),
    "reward_gap": MixPreset(RewardGap, "domains whose reward lags behind", "DataFlex-RL"),
    "reward_gap@asrun": MixPreset(RewardGapAsRun, "unseen domains count as reward 0", _ASRUN),
    "dump_ucb": MixPreset(DumpUcb, "domains with large advantages, or little seen", _DUMP),
    "dump_ucb@paper": MixPreset(
        DumpUcb,
        "dump_ucb, sharper, no floor, window of 300 responses",
        _DUMP,
        {"temperature": 0.1, "floor": 0.0, "window_responses": 300},
    ),
    "dump_ucb@asrun": MixPreset(MeanReward, "softmax of the mean reward: easy domains", _ASRUN),
    "tscl": MixPreset(Tscl, "domains whose reward moves", _TSCL),
    "tscl@paper": MixPreset(
        TsclPaper, "tscl, much sharper, no floor", _TSCL, {"temperature": 4e-4, "floor": 0.0}
    ),
    "tscl@asrun": MixPreset(MeanReward, "softmax of the mean reward: easy domains", _ASRUN),
}


@dataclass(frozen=True)
class Mix:
    """A mixer's rule under its name, and the selector or reweighter that its draw passes through.

    Attributes:
        name: as the user wrote it.
        rule: the mixer's rule.
        params: every parameter of the rule with its value.
        source: where the rule comes from.
        then: the rest of a pipeline, or ``None``.
    """

    name: str
    rule: MixRule
    params: Mapping[str, Any]
    source: str = ""
    then: Strategy | None = None

    def start(self, domains: Sequence[str], prior: Sequence[float] | None = None) -> Mixer:
        """The mixer at work over sorted domains.

        Args:
            domains: names of D domains.
            prior: proportions (D), in the order of ``domains``, before the rule acts: the
                dataset's; default uniform.

        Raises:
            StrategyError: proportions name other domains, or the floor can't hold.
        """
        if prior is not None and len(prior) == len(domains):
            prior = [share for _, share in sorted(zip(domains, prior, strict=True))]
        domains = tuple(sorted(domains))
        if isinstance(self.rule, Static):
            shares = _named_shares(self.name, self.rule.proportions, domains)
            start = np.full(len(domains), 1 / len(domains)) if shares is None else shares
            prior = hold_floor(start, self.rule.floor).tolist()
        return Mixer(self.name, self.rule, domains, prior)


def _named_shares(
    name: str, shares: Mapping[str, float] | None, domains: Sequence[str]
) -> Float | None:
    if shares is None:
        return None
    if not isinstance(shares, Mapping):
        raise StrategyError(
            f"{name}: proportions={shares!r} is no mapping; write proportions={{DOMAIN: SHARE, …}}"
        )
    for domain in shares:
        if domain not in domains:
            raise StrategyError(
                f"{name}: proportions name domain '{domain}'{nearest(str(domain), domains)}; the "
                f"trace has: {', '.join(domains)}"
            )
    numbers = [shares.get(domain, 0.0) for domain in domains]
    wrong = any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in numbers)
    bad = wrong or not all(0 <= n < math.inf for n in numbers)
    if bad or sum(numbers) <= 0:
        raise StrategyError(
            f"{name}: proportions={dict(shares)} are no shares ≥ 0 with a sum above 0"
        )
    return np.array(numbers, dtype=np.float64) / sum(numbers)


def mix_parameters(preset: MixPreset) -> dict[str, ParamInfo]:
    """Parameters that a user may set, with the preset's own defaults."""
    return {
        name: ParamInfo(name, preset.defaults.get(name, info.default), info.help, info.range)
        for name, info in parameters(preset.rule).items()
    }


def is_mix(name: str) -> bool:
    """Whether a name, or its first part before ``+``, is a mixer's."""
    return name.partition("+")[0] in MIXERS


def build_mix(name: str, params: Mapping[str, Any], then: Strategy | None = None) -> Mix:
    """Build a mixer, or a pipeline with what its draw passes through.

    Args:
        name: key of ``MIXERS``.
        params: the mixer's parameters.
        then: selector or reweighter.

    Raises:
        StrategyError: unknown name or parameter (with the nearest one), or a value out of range.
    """
    if name not in MIXERS:
        raise StrategyError(
            f"no mixer is called '{name}'{nearest(name, MIXERS)}; there are: {', '.join(MIXERS)}"
        )
    preset = MIXERS[name]
    rule = make(preset.rule, {**preset.defaults, **params}, name)
    shown = {p: getattr(rule, p) for p in parameters(preset.rule)}
    whole = name if then is None else f"{name}+{then.name}"
    return Mix(whole, rule, shown, preset.source, then)
