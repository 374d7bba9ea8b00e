"""Figures of a replay, fit for a slide."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..sim.result import ReplayResult
from .html import short

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"),
    *("#56B4E9", "#6B4C9A", "#8C8C00", "#882255", "#44AA99"),
)
NONE_COLOUR = "#888888"
SMOOTH_FROM = 30
LABEL_LIMIT, FOOTER_LIMIT = 40, 120
STEPS = "training step"


def write_figures(result: ReplayResult, folder: Path) -> list[Path]:
    """Write each figure as PNG and SVG; returns the PNG paths.

    Args:
        result: a replay.
        folder: an existing folder.
    """
    steps = result.steps()
    import polars as pl

    whole = steps.filter(pl.col("domain").is_null())
    many = result.trace["steps"] >= SMOOTH_FROM
    bold = "bold: moving mean over a tenth of the run · " if many else ""
    drawn = {
        "effective_batch": partial(_effective_batch, result, whole),
        "kept_and_live": partial(_kept_and_live, result, whole),
        "signal_scale": partial(_signal_scale, result, whole),
    }
    return save_figures(drawn, folder, f"{bold}{trace_footer(result)}")


def save_figures(
    drawn: Mapping[str, Callable[[], Figure]], folder: Path, footer: str
) -> list[Path]:
    """Draw and write figures as PNG and SVG, the same bytes each time; returns the PNG paths.

    Args:
        drawn: file stem → what draws the figure.
        folder: an existing folder.
        footer: how it was drawn, on which trace, and the trace's caution.
    """
    from matplotlib import rc_context

    paths = []
    with rc_context({"text.parse_math": False, "svg.hashsalt": "dfsim"}), _any_glyph():
        for stem, draw in drawn.items():
            figure = draw()
            figure.supxlabel(
                short(footer, FOOTER_LIMIT), fontsize=9, color="#555555", x=0.01, ha="left"
            )
            figure.savefig(folder / f"{stem}.png", dpi=160)
            figure.savefig(folder / f"{stem}.svg", metadata={"Date": None})
            paths.append(folder / f"{stem}.png")
    return paths


@contextmanager
def _any_glyph() -> Iterator[None]:
    """A letter that the font lacks is drawn as a box, without a word on stderr."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def label_of(name: str) -> str:
    """A name as a figure shows it; matplotlib hides labels that start with an underscore."""
    label = short(name, LABEL_LIMIT)
    return f"\u200a{label}" if label.startswith("_") else label


def figure_of(title: str, rows: int = 1, x: str = STEPS, columns: int = 1) -> tuple[Figure, Any]:
    """A figure in the house's style, and its axes: one a row, or one a column."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.6), layout="constrained")
    aside = columns > 1
    axes = figure.subplots(rows, columns, sharex=not aside, sharey=aside, squeeze=False).ravel()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="x" if aside else "y", color="#dddddd", linewidth=0.8)
        ax.tick_params(labelsize=11)
        ax.set_axisbelow(True)
    axes[-1].set_xlabel(x, fontsize=12)
    if x == STEPS:
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title, fontsize=15, x=0.01, ha="left", fontweight="bold")
    return figure, axes


def trace_footer(result: ReplayResult) -> str:
    """Which trace, and its own caution."""
    trace = result.trace
    label = f" · {trace['label']}" if trace["label"] else ""
    return f"trace {trace['fingerprint']}, {trace['steps']} steps{label}"


def _colour(result: ReplayResult, name: str) -> str:
    others = [n for n in result.strategies if n != "none"]
    return NONE_COLOUR if name == "none" else COLOURS[others.index(name) % len(COLOURS)]


def _style(result: ReplayResult, name: str) -> str:
    """Solid, dotted once the colours are used up, dashed for the baseline."""
    if name == "none":
        return "--"
    others = [n for n in result.strategies if n != "none"]
    return ":" if others.index(name) >= len(COLOURS) else "-"


def _series(whole: pl.DataFrame, strategy: str, column: str) -> tuple[Any, Any]:
    import polars as pl

    rows = whole.filter(pl.col("strategy") == strategy)
    return rows["step"].to_numpy(), rows[column].cast(pl.Float64).to_numpy()


def smooth(values: Any) -> Any:
    """Centred moving mean over a tenth of the steps, once there are enough; NaN-safe."""
    if len(values) < SMOOTH_FROM:
        return values
    width = max(3, len(values) // 10) | 1
    kernel = np.ones(width)
    known = np.isfinite(values)
    total = np.convolve(np.where(known, values, 0.0), kernel, mode="same")
    count = np.convolve(known.astype(float), kernel, mode="same")
    return np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)


def _line(ax: Axes, steps: Any, values: Any, colour: str, label: str, style: str = "-") -> None:
    if len(values) >= SMOOTH_FROM:
        ax.plot(steps, values, color=colour, alpha=0.18, linewidth=1, linestyle=style)
    front = 3 if style == "-" else 4
    ax.plot(
        steps,
        smooth(values),
        color=colour,
        linewidth=2.2,
        label=label_of(label),
        ls=style,
        zorder=front,
        marker="o" if len(values) < 3 else None,
    )


def in_percent(ax: Axes) -> None:
    """Write the values of an axes' height in percent, with the decimals that its ticks need."""
    from matplotlib.ticker import PercentFormatter

    ax.yaxis.set_major_formatter(PercentFormatter(1.0))


def legend(ax: Axes, count: int) -> None:
    """Legend beside an axes, smaller where it is long."""
    if not ax.get_legend_handles_labels()[0]:
        return
    ax.legend(
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        frameon=False,
        fontsize=11 if count < 9 else 9,
    )


def _effective_batch(result: ReplayResult, whole: pl.DataFrame) -> Figure:
    figure, (ax,) = figure_of("Effective batch: how many live groups an update is worth")
    few = len(result.strategies) <= 5
    for name in result.strategies:
        steps, values = _series(whole, name, "effective_batch")
        colour = _colour(result, name)
        if few and name != "none":
            low, high = (
                smooth(_series(whole, name, f"effective_batch_{end}")[1]) for end in ("low", "high")
            )
            ax.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        _line(ax, steps, values, colour, name, _style(result, name))
    ax.set_ylabel("live groups of the uniform update", fontsize=12)
    ax.set_ylim(bottom=0)
    if few:
        ax.set_title(
            "bands: what the noise model leaves open", fontsize=10, loc="left", color="#555555"
        )
    legend(ax, len(result.strategies))
    return figure


def _kept_and_live(result: ReplayResult, whole: pl.DataFrame) -> Figure:
    figure, (top, bottom) = figure_of("What is kept, and what of it carries signal", rows=2)
    for name in result.strategies:
        colour, style = _colour(result, name), _style(result, name)
        if name != "none":
            _line(top, *_series(whole, name, "kept_frac"), colour, name, style)
        _line(bottom, *_series(whole, name, "signal_group_frac"), colour, name, style)
    top.set_ylabel("responses kept", fontsize=12)
    bottom.set_ylabel("groups with signal", fontsize=12)
    for ax in (top, bottom):
        ax.set_ylim(0, 1.05)
        in_percent(ax)
    legend(bottom, len(result.strategies))
    return figure


def _signal_scale(result: ReplayResult, whole: pl.DataFrame) -> Figure:
    figure, (ax,) = figure_of("Signal scale: the policy gradient against the uniform update's")
    ax.axhspan(0.8, 1.25, color="#000000", alpha=0.05, linewidth=0)
    ax.axhline(1.0, color=NONE_COLOUR, linewidth=1.2)
    for name in result.strategies:
        if name != "none":
            style = _style(result, name)
            _line(ax, *_series(whole, name, "signal_scale"), _colour(result, name), name, style)
    ax.set_ylabel("× uniform", fontsize=12)
    ax.set_ylim(bottom=0)
    ax.set_title("grey band: 0.8 – 1.25, no scale_shift", fontsize=10, loc="left", color="#555555")
    legend(ax, len(result.strategies))
    return figure
