"""The named strategies of every kind.

Adding a preset is one line in ``PRESETS``; adding a rule is one file and the line in ``ACTUATORS``
or ``SAMPLING_RULES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .base import Actuator, ParamInfo, parameters
from .reweight.normalised import Power, QuantileBand, Softmax
from .reweight.probability_mix import ProbabilityMix
from .reweight.uniform import Unchanged
from .sample.dump_ucb import DumpUcb
from .sample.mixer import MixRule
from .sample.reward_gap import MeanReward, RewardGap, RewardGapAsRun
from .sample.static import Static
from .sample.tscl import Tscl, TsclPaper
from .select.group_top_k import GroupTopK
from .select.max_variance import MaxVariance
from .select.solve_band import SolveBand
from .select.top_fraction import TopFraction
from .select.varying_groups import VaryingGroups
from .signals import SCORERS

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


SAMPLING_RULES: dict[str, type[MixRule]] = {
    "static": Static,
    "reward_gap": RewardGap,
    "reward_gap_as_run": RewardGapAsRun,
    "dump_ucb": DumpUcb,
    "mean_reward": MeanReward,
    "tscl": Tscl,
    "tscl_paper": TsclPaper,
}


@dataclass(frozen=True)
class Preset:
    """A named rule: a pair of scorer and actuator, or a sampling rule.

    Attributes:
        scorer: key of ``SCORERS``; empty for a sampling rule.
        actuator: key of ``ACTUATORS``, or of ``SAMPLING_RULES`` where there is no scorer.
        summary: one line for listings.
        source: paper or system.
        fixed: parameters that make the preset what it is; users can't set them.
        defaults: defaults that differ from the rule's own.
        renormalised: the preset that is this one with advantages re-normalised among what it keeps.
    """

    scorer: str
    actuator: str
    summary: str
    source: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    renormalised: str = ""

    @property
    def samples(self) -> bool:
        """Whether it says what to draw, rather than what a draw weighs."""
        return not self.scorer

    @property
    def rules(self) -> tuple[type, ...]:
        """Classes whose fields are its parameters."""
        if self.samples:
            return (SAMPLING_RULES[self.actuator],)
        return SCORERS[self.scorer], ACTUATORS[self.actuator]


_GFPO = "arXiv:2508.09726 §3"
_MAXVAR = "arXiv:2504.13818 §3.2"
_AR = "arXiv:2505.12929 §4"
_DUMP = "arXiv:2504.09710 §3"
_TSCL = "arXiv:1707.00183 §3"
_AS_RUN = "DataFlex-RL f4d305b, 21 July 2026; later code may differ"

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
        renormalised="maxvar@paper",
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
        renormalised="gfpo@paper",
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
    "static": Preset("", "static", "fixed proportions", "baseline"),
    "reward_gap": Preset("", "reward_gap", "domains whose reward lags behind", "DataFlex-RL"),
    "reward_gap@asrun": Preset(
        "", "reward_gap_as_run", "unseen domains count as reward 0", _AS_RUN
    ),
    "dump_ucb": Preset("", "dump_ucb", "domains with large advantages, or little seen", _DUMP),
    "dump_ucb@paper": Preset(
        "",
        "dump_ucb",
        "dump_ucb, sharper, no floor, window of 300 responses",
        _DUMP,
        defaults={"temperature": 0.1, "floor": 0.0, "window_responses": 300},
    ),
    "dump_ucb@asrun": Preset(
        "", "mean_reward", "softmax of the mean reward: easy domains", _AS_RUN
    ),
    "tscl": Preset("", "tscl", "domains whose reward moves", _TSCL),
    "tscl@paper": Preset(
        "",
        "tscl_paper",
        "tscl, much sharper, no floor",
        _TSCL,
        defaults={"temperature": 4e-4, "floor": 0.0},
    ),
    "tscl@asrun": Preset("", "mean_reward", "softmax of the mean reward: easy domains", _AS_RUN),
}

WEIGHING = tuple(name for name, preset in PRESETS.items() if not preset.samples)
"""Presets that weigh a draw: what ``all`` stands for."""

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
    infos = {name: info for rule in preset.rules for name, info in parameters(rule).items()}
    return {
        name: ParamInfo(name, preset.defaults.get(name, info.default), info.help, info.range)
        for name, info in infos.items()
        if name not in preset.fixed
    }
