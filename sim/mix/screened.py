"""How far a sampler steers on a log, against what the noise of its own signal would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...strategies.sample.static import Static
from ...traces.findings import plain
from .result import BARELY, MixResult
from .simulate import steering
from .summary import MixReport

SteerVerdict = Literal["vacuous", "fixed", "barely", "noise", "steers"]


@dataclass(frozen=True)
class ScreenedSampler:
    """A sampler's row of a screen.

    Steering is the mean over steps of ½ Σ_u |share asked for − share in the log|.

    Attributes:
        report: what it asks for and gets, under each clock.
        noise_low: 2.5 % of its steering on logs whose outcomes were exchanged between the groups
            of a step, so that units differ by chance alone; NaN with fewer than two units.
        noise_high: 97.5 % of that.
        resamples: such logs.
        verdict: ``vacuous`` (it can't act), ``fixed`` (it looks at no signal), ``barely`` (it moves
            next to nothing), ``noise`` (no more than chance would) or ``steers``.
        sentence: why, to act on.
    """

    report: MixReport
    noise_low: float
    noise_high: float
    resamples: int
    verdict: SteerVerdict
    sentence: str

    @property
    def name(self) -> str:
        """As the user wrote it."""
        return self.report.name

    @property
    def steering(self) -> Mapping[str, float]:
        """``asked`` and each clock → steering."""
        return {label: run.steering for label, run in self.report.runs.items()}

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "steering": {label: plain(value) for label, value in self.steering.items()},
            "noise_low": plain(self.noise_low),
            "noise_high": plain(self.noise_high),
            "resamples": self.resamples,
            **self.report.to_dict(),
        }

    @classmethod
    def from_dict(cls, name: str, record: Mapping[str, Any]) -> ScreenedSampler:
        """Read what :meth:`to_dict` wrote."""
        low, high = (
            np.nan if record[key] is None else record[key] for key in ("noise_low", "noise_high")
        )
        report = MixReport.from_dict(name, record)
        verdict, sentence = record["verdict"], record["sentence"]
        return cls(report, low, high, record["resamples"], verdict, sentence)


def screen_sampler(result: MixResult, resamples: int, seed: int) -> ScreenedSampler:
    """Hold what a sampler asks for against the noise of its own signal.

    Args:
        result: of its replay.
        resamples: logs with exchanged outcomes.
        seed: of the exchange.
    """
    report = result.report()
    low, high = noise_band(result, resamples, seed)
    verdict = _verdict(result, report.runs["asked"].steering, high)
    sentence = _sentence(report, verdict, low, high)
    return ScreenedSampler(report, low, high, resamples, verdict, sentence)


def noise_band(result: MixResult, resamples: int, seed: int) -> tuple[float, float]:
    """95 % of a sampler's steering where outcomes are exchanged between the groups of a step.

    The null is that units do not differ: every group of a step shows the outcome of one of them,
    each once. What a sampler then asks for follows the noise of its signal.

    Args:
        result: of its replay.
        resamples: logs with exchanged outcomes.
        seed: of the exchange.
    """
    log = result.log
    if len(log.units[result.mix.level].names) < 2:
        return np.nan, np.nan
    rng = np.random.default_rng(seed)
    step_M = log.step_M
    away = [
        steering(result.mix, log, np.lexsort((rng.random(len(step_M)), step_M)))
        for _ in range(resamples)
    ]
    low, high = np.quantile(away, (0.025, 0.975))
    return float(low), float(high)


def _verdict(result: MixResult, asked: float, noise_high: float) -> SteerVerdict:
    candidates = next(iter(result.runs.values())).candidates
    if candidates is not None and candidates.kind == "sync":
        return "vacuous"
    if isinstance(result.mix.rule, Static):
        return "fixed"
    if not asked >= BARELY:
        return "barely"
    return "noise" if not asked > noise_high else "steers"


def _sentence(report: MixReport, verdict: SteerVerdict, low: float, high: float) -> str:
    asked = report.runs["asked"].steering
    clocks = ", ".join(
        f"{run.steering:.0%} under the {label} clock"
        for label, run in report.runs.items()
        if label != "asked"
    )
    moved = f"{report.name} moves {asked:.0%} of the draw ({clocks})"
    noise = f"noise of its own signal moves {low:.0%} to {high:.0%}"
    if verdict == "vacuous":
        return (
            f"{report.name} can't act: the candidates are the draw itself, so it trains what none "
            "trains. Draw prompts before rollout, or over-generate."
        )
    if verdict == "fixed":
        return f"{moved} to fixed shares; it looks at no signal."
    if verdict == "barely":
        return f"{moved}: nothing to speak of; a smaller temperature acts on smaller differences."
    if verdict == "noise":
        return (
            f"{moved}, no more than chance would: the {noise}. What it prefers here is no finding; "
            "a longer window averages the noise out."
        )
    return f"{moved}; the {noise}. Whether its mix trains better, only live runs say."
