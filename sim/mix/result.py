"""What a sampler's replay says: estimators over the run, and findings in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...strategies.sample.base import SamplingStrategy
from ...strategies.sample.static import Static
from ...traces.findings import Finding, plain
from .log import MixLog
from .simulate import Candidates, Clock, MixRun, asked, simulate
from .summary import MixReport, MixSummary

if TYPE_CHECKING:
    import polars as pl

PER_STEP = ("target", "signal", "candidates", "realised", "exposures", "live_exposures", "replaced")

STARVED_SHARE = 0.1
"""A domain that gets no prompt in more than this share of the steps is starved."""
BARELY = 0.05
"""Shares that never leave the log's by more than this steer nothing to speak of."""
THIN_LOG = 0.5
"""Draws of prompts beyond what the log holds: from this share on, the finding says so."""


def summarise(run: MixRun, domains: Sequence[str]) -> MixSummary:
    """Estimators of a run, over the steps it could play."""
    played = ~np.isnan(run.realised_SD).any(axis=1)
    target, realised = run.target_SD[played], run.realised_SD[played]
    size = realised.sum(axis=1, keepdims=True)
    share = np.divide(realised, size, out=np.zeros_like(realised), where=size > 0)
    acts = target[run.mix.warmup_steps :]
    floor_hits, floor = np.nan, run.mix.floor
    if floor > 0 and acts.size:
        floor_hits = float((acts <= floor + 1e-12).mean())
    moves = np.abs(np.diff(target, axis=0))

    def by_domain(values: Any, kind: type = float) -> dict[str, Any]:
        return {d: kind(v) for d, v in zip(domains, values, strict=True)}

    nothing = not played.any()
    return MixSummary(
        steering=np.nan if nothing else float(run.steering_S[played].mean()),
        total_variation=np.nan
        if nothing
        else float(0.5 * np.abs(target - share).sum(axis=1).mean()),
        floor_hits=floor_hits,
        volatility=float(moves.mean()) if moves.size else np.nan,
        starved_steps=by_domain((realised == 0).sum(axis=0), int),
        replaced=int(np.nansum(run.replaced_SD)),
        surplus=int(np.nansum(run.surplus_S)),
        supported_until=run.supported_until,
        steps=int(played.sum()),
        mean_target={} if nothing else by_domain(target.mean(axis=0)),
        last_target={} if nothing else by_domain(target[-1]),
        realised=by_domain(np.nansum(run.realised_SD, axis=0), int),
    )


def findings(run: MixRun, summary: MixSummary, log: MixLog) -> list[Finding]:
    """What stands out in a run, most drastic first."""
    return list(_findings(run, summary, log))


def _findings(run: MixRun, summary: MixSummary, log: MixLog) -> Iterator[Finding]:
    name = run.mix.name
    where = f" ({run.clock} clock)" if run.clock else ""
    if run.candidates is not None and run.candidates.kind == "sync":
        yield Finding(
            "mix_vacuous",
            f"{name} can't steer here: the candidates are the draw itself, so the realised mix is "
            f"the dataset's whatever it asks for ({summary.total_variation:.0%} off on average). "
            "Draw prompts by domain before rollout, or over-generate.",
            {"total_variation": summary.total_variation},
        )
    if run.used_up:
        yield Finding(
            "log_used_up",
            f"{name} consumes all logged groups of {', '.join(run.used_up)} by step "
            f"{run.supported_until}: under the exposure clock nothing can be said after it. "
            "Capture a longer run.",
            {"domains": list(run.used_up), "step": run.supported_until},
        )
    if run.unseen and run.mix.level == "domain":
        yield Finding(
            "domain_unseen",
            f"{name} never got a reward of {', '.join(run.unseen)}: such a domain counts as its "
            "best-scoring one unless the rule says otherwise.",
            {"domains": list(run.unseen)},
        )
    starved = {d: n for d, n in summary.starved_steps.items() if n > STARVED_SHARE * summary.steps}
    steers = run.candidates is not None and run.candidates.kind != "sync"
    if starved and summary.steps and steers:
        shown = ", ".join(f"{d} ({n} of {summary.steps} steps)" for d, n in starved.items())
        yield Finding(
            "domain_starved",
            f"{name} gives no prompt to {shown}{where}: it then learns nothing about that domain "
            "either. A floor of 1/B gives it one prompt a step on average.",
            {"steps": starved},
        )
    if summary.floor_hits > 0.25:
        yield Finding(
            "on_floor",
            f"{name} holds a domain on its floor of {run.mix.floor:g} in "
            f"{summary.floor_hits:.0%} of all (step, domain) pairs{where}: there the floor "
            "decides, not the signal.",
            {"floor_hits": summary.floor_hits},
        )
    swing = _oscillation(run)
    if swing is not None and swing < -0.3 and summary.volatility > 0.01:
        yield Finding(
            "oscillates",
            f"{name} swings{where}: {(1 - swing) / 2:.0%} of its changes are undone by the next "
            f"one ({summary.volatility:.1%} a step and domain). Feedback does that, and so does "
            "noise in a short window. Lengthen its window or update_every_steps, or raise "
            "temperature.",
            {"sign_correlation": swing, "volatility": summary.volatility},
        )
    if run.mix.level == "prompt":
        yield from _thin_log(run, summary, where)
        away = float(np.nanmax(run.steering_S)) if summary.steps else np.nan
    else:
        away = float(np.nanmax(np.abs(run.target_SD - log.prior))) if summary.steps else np.nan
    several = len(log.units[run.mix.level].names) > 1
    if away < BARELY and not isinstance(run.mix.rule, Static) and several:
        yield Finding(
            "barely_steers",
            f"{name} never leaves the dataset's own mix by more than {away:.1%}{where}: at this "
            "temperature the signal's differences are too small to act on."
            if run.mix.level == "domain"
            else f"{name} moves no more than {away:.1%} of the draw between prompts{where}: that "
            "steers nothing to speak of.",
            {"largest_difference": away},
        )


def _thin_log(run: MixRun, summary: MixSummary, where: str) -> Iterator[Finding]:
    drawn = sum(summary.realised.values())
    share = summary.replaced / drawn if drawn else 0.0
    if share > THIN_LOG:
        what = "has no visit at that step" if run.clock == "step" else "has no further visit"
        yield Finding(
            "log_thin",
            f"{run.mix.name}: of {share:.0%} of the prompts drawn the log {what}{where}, so "
            "another visit's outcome stands in. Read its numbers as a sketch; a log with more "
            "passes over its prompts says more.",
            {"share": share},
        )


def _oscillation(run: MixRun) -> float | None:
    """How often successive changes of the target agree in sign, −1 never to 1 always.

    Signs, so that one large move decides nothing; changes at updates only, past the first window.
    """
    target_SD = run.target_SD[~np.isnan(run.target_SD).any(axis=1)]
    settled = target_SD[max(run.mix.warmup_steps, 1) :: run.mix.update_every_steps]
    moves = np.sign(np.diff(settled, axis=0))[3:]
    if len(moves) < 8:
        return None
    agree = moves[:-1] * moves[1:]
    return float(agree[agree != 0].mean()) if (agree != 0).any() else None


@dataclass(frozen=True, eq=False)
class MixResult:
    """One sampler on one trace.

    Attributes:
        mix: the sampler.
        asked: what it would have asked for on the logged run.
        runs: clock → what it would get.
        log: domains and steps.
    """

    mix: SamplingStrategy
    asked: MixRun
    runs: Mapping[str, MixRun]
    log: MixLog

    @property
    def name(self) -> str:
        """As the user wrote it."""
        return self.mix.name

    @property
    def params(self) -> Mapping[str, Any]:
        """Every parameter with its value."""
        return self.mix.params

    def __repr__(self) -> str:
        asked = self.summaries()["asked"].last_target
        shares = ", ".join(f"{d} {s:.0%}" for d, s in asked.items()) or "nothing"
        findings = ", ".join(f.name for f in self.diagnosis())
        return f"MixResult {self.name}: asks for {shares}" + (f"; {findings}" if findings else "")

    def summaries(self) -> dict[str, MixSummary]:
        """``asked`` and each clock → estimators."""
        runs = {"asked": self.asked, **self.runs}
        return {label: summarise(run, self.log.domains) for label, run in runs.items()}

    def diagnosis(self) -> list[Finding]:
        """Findings, each once, of what it would get under any clock."""
        summaries = self.summaries()
        by_name: dict[str, Finding] = {}
        for clock, run in self.runs.items():
            for finding in findings(run, summaries[clock], self.log):
                by_name.setdefault(finding.name, finding)
        return list(by_name.values())

    def clock_gap(self) -> float | None:
        """Mean over shared steps of ½ Σ_d |target under one clock − under the other|."""
        if len(self.runs) < 2:
            return None
        first, second = (run.target_SD for run in self.runs.values())
        gap = 0.5 * np.abs(first - second).sum(axis=1)
        return float(np.nanmean(gap)) if not np.isnan(gap).all() else None

    def report(self) -> MixReport:
        """What is shown of it, as the JSON holds it."""
        return MixReport(
            name=self.name,
            params={name: plain(value) for name, value in self.params.items()},
            level=self.mix.level,
            source=self.mix.source,
            candidates=str(next(iter(self.runs.values())).candidates),
            runs=self.summaries(),
            clock_gap=self.clock_gap(),
            diagnosis=self.diagnosis(),
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return self.report().to_dict()

    def table(self) -> pl.DataFrame:
        """One row a run (``asked`` and each clock), a column an estimator."""
        import polars as pl

        rows = []
        for label, summary in self.summaries().items():
            row: dict[str, Any] = {"mixer": self.name, "run": label}
            for name, value in summary.to_dict().items():
                if isinstance(value, Mapping):
                    row |= {f"{name}.{domain}": v for domain, v in value.items()}
                else:
                    row[name] = value
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)

    def steps(self) -> pl.DataFrame:
        """One row a run, step and domain, a column a quantity; null where nothing can be said."""
        import polars as pl

        frames = []
        number_S = self.log.step_S
        for label, run in {"asked": self.asked, **self.runs}.items():
            count, size = run.target_SD.shape
            columns: dict[str, Any] = {
                "mixer": [self.name] * (count * size),
                "run": [label] * (count * size),
                "step": np.repeat(number_S, size),
                "domain": list(self.log.domains) * count,
            }
            columns |= {name: getattr(run, f"{name}_SD").ravel() for name in PER_STEP}
            frames.append(pl.DataFrame(columns).fill_nan(None))
        return pl.concat(frames)


def play(
    samplers: Sequence[SamplingStrategy],
    log: MixLog,
    candidates: Candidates,
    clocks: Sequence[Clock],
    seed: int = 0,
) -> dict[str, MixResult]:
    """Play samplers over a log.

    Args:
        samplers: which.
        log: of them.
        candidates: where draws come from.
        clocks: what a unit's reward depends on.
        seed: of the draw of prompts.

    Returns:
        Name → what it would have asked for, and what it would get under each clock.

    Raises:
        StrategyError: proportions name other domains, or a floor can't hold.
    """
    return {
        mix.name: MixResult(
            mix,
            asked(mix, log),
            {clock: simulate(mix, log, candidates, clock, seed) for clock in clocks},
            log,
        )
        for mix in samplers
    }


CAUTIONS = (
    "asked: exact, what the mixer would ask for had it watched this run. The step clock takes a "
    "domain's reward to depend on training time, the exposure clock on how much of the domain was "
    "consumed; their gap is the model's uncertainty.",
    "On a log that draws uniformly, own and others' exposure can't be told apart, and no log shows "
    "final accuracy or transfer between domains.",
)
