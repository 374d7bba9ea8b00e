"""Parameters chosen on the first half of a run and judged on the second."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...strategies.build import AnyStrategy
from ...strategies.spec import Spec
from ...traces.ragged import Float
from ..stats.intervals import mean_of

MIN_GAP = 5
MIN_HALF = 5


@dataclass(frozen=True)
class Choice:
    """One sweep: the point that was best on the first half, and how it did on the second.

    Attributes:
        base: the strategy that was swept.
        points: its points' names.
        chosen: the best of them on the first half; ``None`` where the run is too short.
        first_steps: first and last step that chose.
        second_steps: first and last step that judged.
        chosen_on: the chosen point's mean on the first half.
        judged: its mean on the second half.
        judged_baseline: the baseline's mean there.
        judged_rank: its place among the points there, 1 = best.
        reason: why nothing was chosen, or ``None``.
    """

    base: str
    points: Sequence[str]
    chosen: str | None
    first_steps: tuple[int, int] | None = None
    second_steps: tuple[int, int] | None = None
    chosen_on: float = np.nan
    judged: float = np.nan
    judged_baseline: float = np.nan
    judged_rank: int | None = None
    reason: str | None = None


def halves(steps: int, gap: int) -> tuple[slice, slice] | None:
    """Two equal parts of a run with ``gap`` steps left out between; ``None`` where too short."""
    half = (steps - gap) // 2
    return (slice(0, half), slice(steps - half, steps)) if half >= MIN_HALF else None


def gap_of(strategies: Sequence[AnyStrategy]) -> int:
    """Steps to leave out between the halves: max(5, the longest ``window`` of any strategy)."""
    windows = [s.params.get("window") for s in strategies]
    return max([MIN_GAP, *(math.ceil(w) for w in windows if isinstance(w, (int, float)))])


def choose(
    steps: Sequence[int],
    series: Mapping[str, Float],
    sign: int,
    baseline: str,
    gap: int,
) -> list[Choice]:
    """Choose a point of every sweep.

    Args:
        steps: step numbers (S).
        series: strategy → its value at each step (S).
        sign: 1 where more is better, -1 where less is.
        baseline: the strategy to compare with.
        gap: steps left out between the halves.
    """
    sweeps: dict[str, list[str]] = {}
    for name in series:
        base = str(Spec.parse(name).unswept)
        if base != name:
            sweeps.setdefault(base, []).append(name)
    return [
        _choose(base, points, steps, series, sign, baseline, gap)
        for base, points in sweeps.items()
        if len(points) > 1
    ]


def _choose(
    base: str,
    points: list[str],
    steps: Sequence[int],
    series: Mapping[str, Float],
    sign: int,
    baseline: str,
    gap: int,
) -> Choice:
    parts = halves(len(steps), gap)
    if parts is None:
        needed = 2 * MIN_HALF + gap
        reason = f"{len(steps)} steps; {needed} are needed to choose on one half and judge on the"
        return Choice(base, points, None, reason=f"{reason} other")
    first, second = parts
    early = {p: float(mean_of(series[p][first])) for p in points}
    late = {p: float(mean_of(series[p][second])) for p in points}
    known = [p for p in points if np.isfinite(early[p]) and np.isfinite(late[p])]
    if not known:
        return Choice(base, points, None, reason="no point can be estimated on both halves")
    chosen = max(known, key=lambda p: sign * early[p])
    return Choice(
        base,
        points,
        chosen,
        (steps[first][0], steps[first][-1]),
        (steps[second][0], steps[second][-1]),
        early[chosen],
        late[chosen],
        float(mean_of(series[baseline][second])),
        1 + sum(sign * late[p] > sign * late[chosen] for p in known),
    )
