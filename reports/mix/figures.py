"""Figures of a mixer's replay: shares over the feedback signal, rewards on both clocks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...sim.mix.exposure import exposure_curve
from ...sim.mix.result import MixResult
from ..figures import COLOURS, figure_of, in_percent, label_of, legend, save_figures, smooth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ("-", "--")


def write_mix_figures(result: MixResult, folder: Path, stem: str, footer: str) -> list[Path]:
    """Write a mixer's figures as PNG and SVG; returns the PNG paths.

    Args:
        result: one mixer.
        folder: an existing folder.
        stem: start of the file names.
        footer: which trace, and its caution.
    """
    drawn = {
        f"{stem}_{name}": partial(draw, result)
        for name, draw in (("shares", _shares), ("clocks", _clocks), ("exposure", _exposure))
    }
    return save_figures(drawn, folder, footer)


def _shares(result: MixResult) -> Figure:
    """Target and realised shares stacked, over the signal that drives them."""
    label, run = next(iter(result.runs.items()))
    figure, (top, middle, bottom) = figure_of(
        f"{label_of(result.name)}: what it asks for and what it gets", 3
    )
    step_S = result.log.step_S
    drawn = run.realised_SD / np.maximum(run.realised_SD.sum(axis=1, keepdims=True), 1)
    colours = [COLOURS[d % len(COLOURS)] for d in range(len(result.log.domains))]
    names = [label_of(domain) for domain in result.log.domains]
    for ax, share_SD, what in ((top, run.target_SD, "target"), (middle, drawn, "realised")):
        ax.stackplot(step_S, share_SD.T, colors=colours, labels=names, linewidth=0)
        ax.set_ylim(0, 1)
        ax.set_ylabel(what, fontsize=12)
        in_percent(ax)
    for d, colour in enumerate(colours):
        bottom.plot(step_S, run.signal_SD[:, d], color=colour, linewidth=1.8)
    bottom.set_ylabel("signal", fontsize=12)
    bottom.set_title(f"{label} clock, candidates: {run.candidates}", fontsize=10, loc="left")
    legend(top, len(result.log.domains))
    return figure


def _clocks(result: MixResult) -> Figure:
    """Targets under both clocks, with their gap as a band, over each domain's reward by step."""
    figure, (top, bottom) = figure_of(f"{label_of(result.name)}: how much the clock matters", 2)
    step_S = result.log.step_S
    reward_SD = result.log.reward_SD(result.mix)
    for d, domain in enumerate(result.log.domains):
        colour = COLOURS[d % len(COLOURS)]
        both = [run.target_SD[:, d] for run in result.runs.values()]
        for values, style in zip(both, STYLES, strict=False):
            top.plot(step_S, values, color=colour, linewidth=1.6, linestyle=style)
        if len(both) > 1:
            top.fill_between(step_S, *both, color=colour, alpha=0.15, linewidth=0)
        bottom.plot(
            step_S, smooth(reward_SD[:, d]), color=colour, linewidth=2.2, label=label_of(domain)
        )
    words = dict(zip(STYLES, ("line", "dashes"), strict=True))
    said = (f"{words[s]}: {clock} clock" for clock, s in zip(result.runs, STYLES, strict=False))
    top.set_title(", ".join(said), fontsize=10, loc="left", color="#555555")
    top.set_ylabel("target", fontsize=12)
    in_percent(top)
    bottom.set_ylabel("logged mean reward", fontsize=12)
    legend(bottom, len(result.log.domains))
    return figure


def _exposure(result: MixResult) -> Figure:
    """Each domain's reward by how much of it was consumed."""
    figure, (ax,) = figure_of(
        f"{label_of(result.name)}: reward by exposure", x="prompt groups of the domain consumed"
    )
    for d, domain in enumerate(result.log.domains):
        curve = exposure_curve(result.log, d)
        if curve is None:
            continue
        colour = COLOURS[d % len(COLOURS)]
        ax.plot(
            curve.exposure_P, curve.middle_P, color=colour, linewidth=2.2, label=label_of(domain)
        )
        band = (curve.exposure_P, curve.low_P, curve.high_P)
        ax.fill_between(*band, color=colour, alpha=0.15, linewidth=0)
    ax.set_ylabel("mean reward, isotonic fit", fontsize=12)
    ax.set_title(
        "bands: 95 % bootstrap over groups; a monotone fit is least sure at its ends",
        fontsize=10,
        loc="left",
        color="#555555",
    )
    legend(ax, len(result.log.domains))
    return figure
