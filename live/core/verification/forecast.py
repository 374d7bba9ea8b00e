"""A promotion's forecast beside what the live run's own rollouts give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....sim.estimators import CATALOG
from ....sim.mix.summary import MixReport
from ....sim.replay.loop import replay
from ....traces.findings import plain
from ....traces.storage.store import Trace
from ..promotion import Promotion, forecast_of


@dataclass(frozen=True)
class Comparison:
    """One figure, forecast and observed.

    Attributes:
        name: an estimator, or a sampler's share of a domain.
        forecast: its mean.
        low: lower end of the interval for steps like those, or of the clocks' forecasts.
        high: upper end.
        observed: of the live run.
        inside: whether it lies between, ``None`` where no interval was made for that.
        headline: whether a terminal shows it.
    """

    name: str
    forecast: float | None
    low: float | None
    high: float | None
    observed: float | None
    inside: bool | None
    headline: bool


def compare_forecast(trace: Trace, promotion: Promotion) -> Iterator[Comparison]:
    """The promotion's forecast beside what the live run's own rollouts give.

    The promotion's interval is for a mean over its own S steps. A mean over the live run's L steps
    of that kind differs from the forecast's by √(1 + S/L) as much, and so wide is the interval.
    """
    weighs = forecast_of(promotion.build())[0]
    result = replay(trace, [weighs], loss_agg_mode=promotion.loss_agg_mode, resamples=2)
    observed = result.strategies[weighs.name].estimates
    wider = math.sqrt(1 + promotion.trace["steps"] / len(trace.manifest.steps))
    same_size = _same_size(promotion, trace)
    for name, forecast in promotion.forecast.items():
        mean = forecast["mean"]
        low, high = (
            None if end is None or mean is None else mean + (end - mean) * wider
            for end in (forecast["future_low"], forecast["future_high"])
        )
        seen = plain(observed[name].mean) if name in observed else None
        inside = None
        grows = CATALOG[name].grows and not same_size
        if seen is not None and low is not None and high is not None and not grows:
            slack = 1e-9 * max(abs(low), abs(high), 1e-9)
            inside = low - slack <= seen <= high + slack
        yield Comparison(name, mean, low, high, seen, inside, CATALOG[name].headline)


def compare_mix(
    promotion: Promotion, domains: Sequence[str], log: Mapping[int, Mapping[str, Any]]
) -> Iterator[Comparison]:
    """A sampler's forecast shares beside what the live run asked for, means over steps.

    Low and high are the clocks' forecasts. They bound a model, not the noise of a run.

    Args:
        promotion: of the run.
        domains: of the training set.
        log: step → what the run noted.
    """
    targets = [record["mix"]["target"] for record in log.values() if record.get("mix")]
    if promotion.mixing is None or not targets:
        return
    report = MixReport.from_dict(promotion.strategy, promotion.mixing)
    live = np.mean(targets, axis=0)
    if list(domains) != report.domains:
        return
    for domain, share in zip(domains, live.tolist(), strict=True):
        forecasts = [run.mean_target[domain] for run in report.runs.values() if run.steps]
        low, high = min(forecasts), max(forecasts)
        name = f"share of {domain}"
        yield Comparison(name, (low + high) / 2, low, high, share, None, True)


def _groups_a_step(trace: Trace) -> float:
    return (trace.count("groups") or 0) / len(trace.manifest.steps)


def _same_size(promotion: Promotion, trace: Trace) -> bool:
    """Whether the live run has as many groups a step as the forecast."""
    forecast = promotion.forecast["num_groups"]["mean"]
    return math.isclose(forecast, _groups_a_step(trace), rel_tol=0.01)


def forecast_notes(promotion: Promotion, trace: Trace) -> list[str]:
    """What holds for the comparison, in sentences."""
    live = len(trace.manifest.steps)
    notes = [
        f"The forecast is what the strategy does to the {promotion.trace['steps']} logged steps of "
        f"{promotion.trace['path']}; its interval is for a mean over {live} steps like those. The "
        "live run trains another policy, so a figure outside is news, not a fault.",
    ]
    if not _same_size(promotion, trace):
        notes.append(
            f"The live run has {_groups_a_step(trace):.4g} groups a step, the forecast "
            f"{promotion.forecast['num_groups']['mean']:.4g}: effective_batch grows with them, so "
            "it is not called inside or outside."
        )
    if promotion.mixing is not None:
        notes.append(
            f"A share of a domain is the mean over the run's steps, forecast over "
            f"{promotion.trace['steps']} and live over {live}; its interval is between the clocks, "
            "without the noise of a run."
        )
    if promotion.rescale != "none":
        notes.append(
            f"Weights were delivered with rescale={promotion.rescale}; both figures are before it."
        )
    if all(
        f["future_low"] is None or math.isnan(f["future_low"]) for f in promotion.forecast.values()
    ):
        notes.append("The promoted trace has under 12 steps: no interval for steps like those.")
    return notes
