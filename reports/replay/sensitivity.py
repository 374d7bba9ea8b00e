"""What a swept parameter changes: one picture a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...sim.mix.result import MixResult
from ...sim.result import ReplayResult
from ...strategies.spec import Spec
from ..figures import COLOURS, figure_of, in_percent, label_of, legend, save_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEM = "sensitivity"


def write_sensitivity(result: ReplayResult, folder: Path, footer: str) -> list[Path]:
    """Write a picture of every sweep over one numeric parameter; returns the PNG paths.

    Args:
        result: a replay.
        folder: an existing folder.
        footer: which trace, and its caution.
    """
    draws: list[Callable[[], Figure]] = []
    selected = {n: (s.params, s) for n, s in result.strategies.items()}
    draws += [partial(_strategies, *sweep) for sweep in sweeps(selected)]
    mixed = {m.name: (m.params, m) for m in result.mixers.values()}
    draws += [partial(_mixers, *sweep) for sweep in sweeps(mixed)]
    drawn = {f"{STEM}_{index}": draw for index, draw in enumerate(draws, start=1)}
    return save_figures(drawn, folder, footer)


def sweeps(
    named: Mapping[str, tuple[Mapping[str, Any], Any]],
) -> Iterator[tuple[str, str, list[tuple[float, Any]]]]:
    """Base name, swept parameter, and (value, result) in order, of each one-parameter sweep."""
    groups: dict[str, list[tuple[Mapping[str, Any], Any]]] = {}
    for name, entry in named.items():
        base = str(Spec.parse(name).unswept)
        if base != name:
            groups.setdefault(base, []).append(entry)
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
    figure, (top, bottom) = figure_of(f"{label_of(base)}: what {parameter} changes", 2, parameter)
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
    figure, (top, bottom) = figure_of(f"{label_of(base)}: what {parameter} changes", 2, parameter)
    at = [value for value, _ in points]
    clock = next(iter(points[0][1].runs))
    summaries = [found.summaries()[clock] for _, found in points]
    for d, domain in enumerate(points[0][1].log.domains):
        shares = [s.last_target.get(domain, np.nan) for s in summaries]
        colour = COLOURS[d % len(COLOURS)]
        top.plot(at, shares, color=colour, marker="o", linewidth=2, label=label_of(domain))
    top.set_ylabel("last target", fontsize=12)
    in_percent(top)
    top.set_ylim(0, 1)
    top.set_title(f"{clock} clock", fontsize=10, loc="left", color="#555555")
    legend(top, len(points[0][1].log.domains))
    volatility = [s.volatility for s in summaries]
    bottom.plot(at, volatility, color="#555555", marker="o", linewidth=2)
    bottom.set_ylabel("moves a step", fontsize=12)
    in_percent(bottom)
    bottom.set_ylim(bottom=0)
    return figure
