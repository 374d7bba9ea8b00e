"""Figures of a screen: what each strategy buys, and how sure its difference is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...sim.screen.front import cost_of
from ...sim.screen.result import Screened, ScreenResult, TraceScreen
from ..figures import COLOURS, NONE_COLOUR, figure_of, label_of, save_figures, trace_footer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OFF_FRONT = "#bbbbbb"
_CARE = COLOURS[4]


def write_screen_figures(result: ScreenResult, folder: Path) -> list[Path]:
    """Write each trace's figures as PNG and SVG; returns the PNG paths."""
    paths: list[Path] = []
    for index, screened in enumerate(result.traces, start=1):
        drawn = {
            f"front_{index}": partial(_front, screened),
            f"differences_{index}": partial(_differences, screened),
        }
        paths += save_figures(drawn, folder, trace_footer(screened.replay))
    return paths


def _colour(row: Screened) -> str:
    if row.verdict == "baseline":
        return "#333333"
    return {"promote": COLOURS[0], "care": _CARE}.get(row.verdict, _OFF_FRONT)


_BATCH = {"effective_batch": "effective batch, live groups\n(line: its bracket)"}
_BIAS = {"group_bias": "group bias\n(0: groups are balanced)"}
PANELS = {
    "trained_token_frac": {**_BATCH, "trained_token_frac": "trained share\nof the tokens", **_BIAS},
    "kept_frac": {**_BATCH, "kept_frac": "kept share\nof the responses", **_BIAS},
}
"""What an update costs by → estimator → axis label: what the Pareto front rests on."""


def _front(screened: TraceScreen) -> Figure:
    """What each strategy keeps, what it trains on, and how balanced it leaves groups."""
    figure, axes = figure_of("What each strategy keeps, and at what cost", columns=3, x="")
    rows = list(reversed(screened.rows))
    panels = PANELS[cost_of(rows[0].result.estimates)]
    for ax, (estimator, label) in zip(axes, panels.items(), strict=True):
        for height, row in enumerate(rows):
            found = row.result.estimates
            if estimator == "effective_batch":
                ends = [found[f"effective_batch_{end}"].mean for end in ("low", "high")]
                ax.plot(ends, [height, height], color=_colour(row), linewidth=2, alpha=0.5)
            ax.plot(found[estimator].mean, height, "o", color=_colour(row), markersize=7)
        ax.set_xlabel(label, fontsize=11)
        ax.set_xlim(left=0)
    axes[0].set_yticks(range(len(rows)), [label_of(r.name) for r in rows])
    axes[1].xaxis.set_major_formatter("{x:.0%}")
    axes[0].set_title(
        "blue: on the front · orange: with care · grey: beaten, thin or no change",
        fontsize=10,
        loc="left",
        color="#555555",
    )
    return figure


def _differences(screened: TraceScreen) -> Figure:
    """Differences to the baseline with simultaneous intervals."""
    found = screened.differences
    figure, (ax,) = figure_of(
        f"{screened.by}: difference to {label_of(screened.baseline)}", x="mean over steps"
    )
    rows = [r for r in reversed(screened.rows) if r.name != screened.baseline]
    ax.axvline(0, color=NONE_COLOUR, linewidth=1.2)
    for height, row in enumerate(rows):
        ends = row.difference.low, row.difference.high
        if np.isfinite(ends).all():
            ax.plot(ends, [height, height], color=_colour(row), linewidth=2, alpha=0.6)
        ax.plot(row.difference.mean, height, "o", color=_colour(row), markersize=7)
    ax.set_yticks(range(len(rows)), [label_of(r.name) for r in rows])
    ax.grid(axis="x", color="#dddddd", linewidth=0.8)
    ax.grid(axis="y", visible=False)
    said = found.reason or f"simultaneous 95 % intervals over {found.comparisons} pairs"
    ax.set_title(said, fontsize=10, loc="left", color="#555555")
    return figure
