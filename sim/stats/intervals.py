"""Intervals: what resampling this trace's groups says, and what its steps say of steps to come."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...traces.ragged import AnyArray, Float, ratio

LEVEL = 0.95
MIN_FUTURE_STEPS = 12


def group_counts(groups: int, resamples: int, seed: int, step: int) -> NDArray[np.float32]:
    """How often each resample (R) holds each group (G) of a step: a bootstrap of whole groups."""
    rng = np.random.default_rng((seed, step % 2**63))
    drawn = rng.integers(0, groups, (resamples, groups), dtype=np.int32)
    drawn += (np.arange(resamples, dtype=np.int32) * groups)[:, None]
    flat = np.bincount(drawn.ravel(), minlength=resamples * groups)
    return flat.reshape(resamples, groups).astype(np.float32)


def block_weights(steps: int, resamples: int, seed: int) -> Float | None:
    """How often each resample (R) holds each step (S): moving blocks of length max(1, round(S^⅓)).

    ``None`` under 12 steps (Künsch 1989; too few blocks to say anything).
    """
    if steps < MIN_FUTURE_STEPS:
        return None
    length = max(1, round(steps ** (1 / 3)))
    rng = np.random.default_rng(seed)
    blocks = -(-steps // length)
    starts = rng.integers(0, steps - length + 1, (resamples, blocks))
    drawn = (starts[:, :, None] + np.arange(length)).reshape(resamples, -1)[:, :steps]
    drawn = drawn + np.arange(resamples)[:, None] * steps
    flat = np.bincount(drawn.ravel(), minlength=resamples * steps)
    return flat.reshape(resamples, steps).astype(np.float64)


def interval(resampled: Float, axis: int) -> tuple[Any, Any]:
    """Central 95 % percentile interval along ``axis``; NaN where every resample is NaN."""
    values = np.moveaxis(resampled, axis, -1)
    known = np.isfinite(values)
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(np.where(known, values, 0.0), ends, axis=-1)
    count = known.sum(axis=-1)
    for place in np.argwhere((count > 0) & (count < values.shape[-1])):
        at = tuple(place)
        low[at], high[at] = np.quantile(values[at][known[at]], ends)
    return np.where(count, low, np.nan), np.where(count, high, np.nan)


class Mean:
    """Running mean over steps, elementwise, NaN steps left out."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.total = np.zeros(shape)
        self.count = np.zeros(shape, dtype=np.int32)

    def add(self, values: AnyArray) -> None:
        """Add one step's values."""
        known = np.isfinite(values)
        np.add(self.total, values, out=self.total, where=known)
        self.count += known

    def __add__(self, other: Mean) -> Mean:
        both = Mean(self.total.shape)
        both.total = self.total + other.total
        both.count = self.count + other.count
        return both

    def mean(self) -> Float:
        """Mean; NaN where no step has a value."""
        return ratio(self.total, self.count)


def mean_of(series: Float) -> Float:
    """Mean over the steps (S, …), NaN steps left out."""
    known = np.isfinite(series)
    return ratio(np.where(known, series, 0.0).sum(axis=0), known.sum(axis=0))


def variation(values: Float, weights: Float) -> Float:
    """Standard deviation over mean of the steps' values (S, …), NaN left out, in each row (R, …).

    Args:
        values: one a step.
        weights: how often each row (R) holds each step (S).
    """
    known = np.isfinite(values)
    count = np.tensordot(weights, known.astype(np.float64), axes=1)
    centre = ratio(np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0))
    away = np.where(known, values - centre, 0.0)  # else equal values would differ by rounding
    off = ratio(np.tensordot(weights, away, axes=1), count)
    spread = np.tensordot(weights, away * away, axes=1) - count * off * off
    std = np.sqrt(ratio(np.maximum(spread, 0.0), np.maximum(count - 1, 0.0)))
    return ratio(std, centre + off)
