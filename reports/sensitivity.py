"""What a swept parameter changes: one picture a sweep."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..sim.mix_result import MixResult
from ..sim.result import ReplayResult
from .figures import COLOURS, figure_of, legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SWEPT = re.compile(r"\[[^\[\]/]*=[^\[\]/]*\]$")


def write_sensitivity(
    result: ReplayResult, mixers: Sequence[MixResult], folder: Path, footer: str
) -> list[Path]:
    """Write a picture of every sweep over one numeric parameter; returns the PNG paths.

    Args:
        result: a replay.
        mixers: replayed mixers.
        folder: an existing folder.
        footer: which trace, and its caution.
    """
    figures = []
    selected = {n: (s.params, s) for n, s in result.strategies.items()}
    for base, parameter, points in _sweeps(selected):
        figures.append(_strategies(base, parameter, points))
    mixed = {m.name: (m.params, m) for m in mixers}
    for base, parameter, points in _sweeps(mixed):
        figures.append(_mixers(base, parameter, points))
    paths = []
    for index, figure in enumerate(figures, start=1):
        figure.supxlabel(footer, fontsize=9, color="#555555", x=0.01, ha="left")
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"sensitivity_{index}.{suffix}", dpi=160)
        paths.append(folder / f"sensitivity_{index}.png")
    return paths


def _sweeps(
    named: Mapping[str, tuple[Mapping[str, Any], Any]],
) -> Iterator[tuple[str, str, list[tuple[float, Any]]]]:
    """Base name, swept parameter, and (value, result) in order, of each one-parameter sweep."""
    groups: dict[str, list[tuple[Mapping[str, Any], Any]]] = {}
    for name, entry in named.items():
        if _SWEPT.search(name):
            groups.setdefault(_SWEPT.sub("", name), []).append(entry)
    for base, entries in groups.items():
        first = entries[0][0]
        varying = [k for k in first if any(p[k] != first[k] for p, _ in entries)]
        numeric = len(varying) == 1 and all(
            isinstance(p[varying[0]], (int, float)) for p, _ in entries
        )
        if numeric and len(entries) > 1:
            pairs = [(float(p[varying[0]]), found) for p, found in entries]
            yield base, varying[0], sorted(pairs, key=lambda pair: pair[0])


def _strategies(base: str, parameter: str, points: Sequence[tuple[float, Any]]) -> Figure:
    figure, (top, bottom) = figure_of(f"{base}: what {parameter} changes", 2, parameter)
    at = [value for value, _ in points]

    def mean(name: str) -> list[float]:
        return [found.estimates[name].mean for _, found in points]

    low, high = mean("effective_batch_low"), mean("effective_batch_high")
    top.fill_between(at, low, high, color=COLOURS[0], alpha=0.15, linewidth=0)
    top.plot(at, mean("effective_batch"), color=COLOURS[0], marker="o", linewidth=2)
    top.set_ylabel("effective batch", fontsize=12)
    top.set_ylim(bottom=0)
    top.set_title("band: what the noise model leaves open", fontsize=10, loc="left")
    names = ("trained_token_frac", "signal_scale", "group_bias")
    for colour, name in zip(COLOURS[1:], names, strict=False):
        bottom.plot(at, mean(name), color=colour, marker="o", linewidth=2, label=name)
    bottom.set_ylim(bottom=0)
    legend(bottom, len(names))
    return figure


def _mixers(base: str, parameter: str, points: Sequence[tuple[float, MixResult]]) -> Figure:
    figure, (top, bottom) = figure_of(f"{base}: what {parameter} changes", 2, parameter)
    at = [value for value, _ in points]
    clock = next(iter(points[0][1].runs))
    summaries = [found.summaries()[clock] for _, found in points]
    for d, domain in enumerate(points[0][1].log.domains):
        shares = [s.last_target.get(domain, np.nan) for s in summaries]
        colour = COLOURS[d % len(COLOURS)]
        top.plot(at, shares, color=colour, marker="o", linewidth=2, label=domain)
    top.set_ylabel("last target", fontsize=12)
    top.yaxis.set_major_formatter("{x:.0%}")
    top.set_ylim(0, 1)
    top.set_title(f"{clock} clock", fontsize=10, loc="left", color="#555555")
    legend(top, len(points[0][1].log.domains))
    volatility = [s.volatility for s in summaries]
    bottom.plot(at, volatility, color="#555555", marker="o", linewidth=2)
    bottom.set_ylabel("moves a step", fontsize=12)
    bottom.yaxis.set_major_formatter("{x:.1%}")
    bottom.set_ylim(bottom=0)
    return figure
