"""Figures of a comparison: differences from the baseline with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...sim.compare.cells import title
from ...sim.compare.result import CellResult, CompareResult
from ...sim.compare.verdict import Scale, coverage, headline
from ..figures import COLOURS, NONE_COLOUR, figure_of, label_of, save_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_FIGURES = 40


def write_compare_figures(result: CompareResult, folder: Path) -> list[Path]:
    """Write ``differences_N`` of each cell as PNG and SVG; returns the PNG paths.

    Args:
        result: of a comparison; cells without a comparison get none, nor those after the fortieth.
        folder: an existing folder.
    """
    scale = Scale(**result.settings["scale"])
    drawn = {
        stem: partial(_differences, cell, scale, result.settings)
        for stem, cell in with_figures(result)
    }
    return save_figures(drawn, folder, "blue: separated after correction (Holm)")


def with_figures(result: CompareResult) -> list[tuple[str, CellResult]]:
    """Cells that have a figure, with its stem."""
    compared = [cell for cell in result.cells if cell.compared][:MOST_FIGURES]
    return [(f"differences_{number}", cell) for number, cell in enumerate(compared, start=1)]


def _differences(cell: CellResult, scale: Scale, settings: Mapping[str, Any]) -> Figure:
    """Overall differences, the best on top; separated ones in colour."""
    margin, alpha = settings["margin"], settings["alpha"]
    heading = f"Difference from {label_of(str(cell.baseline))}, overall score"
    unit = scale.unit.strip() or "units of the score"
    figure, (ax,) = figure_of(heading, x=f"{unit}, {coverage(alpha)} interval over seeds")
    if margin is not None:
        ax.axvspan(-margin, margin, color="#000000", alpha=0.05, linewidth=0)
    ax.axvline(0.0, color=NONE_COLOUR, linewidth=1.2)
    rows = [m for m in cell.compared if m.overall is not None][::-1]
    for place, method in enumerate(rows):
        c = method.overall
        assert c is not None
        apart = method.verdict in ("above", "below")
        colour = COLOURS[0] if apart else "#555555"
        ax.plot(headline(method), [place, place], color=colour, linewidth=2.2)
        ax.plot([c.difference], [place], "o", color=colour, markersize=7)
    ax.set_yticks(range(len(rows)), [label_of(m.name) for m in rows])
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", color="#dddddd", linewidth=0.8)
    taken = {**{k: ",".join(v) for k, v in settings["where"].items()}, **cell.name}
    grey = "" if margin is None else f" · grey band: ±{margin:g}, counts as none"
    ax.set_title(
        f"{title(taken)} · {len(cell.seeds)} seeds{grey}",
        fontsize=10,
        loc="left",
        color="#555555",
    )
    figure.set_size_inches(10, max(3.2, 1.8 + 0.38 * len(rows)))
    return figure
