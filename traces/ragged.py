"""Segment operations: values of all segments in one array, ``offsets`` (S+1) marking the cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
AnyArray = NDArray[Any]


def ratio(top: Any, bottom: Any) -> Float:
    """Elementwise top / bottom, NaN where bottom is not positive."""
    top, bottom = np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)
    shape = np.broadcast_shapes(top.shape, bottom.shape)
    return np.divide(top, bottom, out=np.full(shape, np.nan), where=bottom > 0)


def offsets_of(lengths: AnyArray) -> Int:
    """Offsets (S+1) of segments with the given lengths (S)."""
    out = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def _reduce(op: np.ufunc, values: AnyArray, offsets: Int, empty: float) -> AnyArray:
    starts, ends = offsets[:-1], offsets[1:]
    filled = ends > starts
    if filled.all():
        if len(starts) == 0:
            return np.zeros(0, dtype=values.dtype)
        return op.reduceat(values[: ends[-1]], starts)
    out = np.full(len(starts), empty, dtype=np.result_type(values.dtype, type(empty)))
    if filled.any():
        out[filled] = op.reduceat(values[: ends[-1]], starts[filled])
    return out


def segment_sum(values: AnyArray, offsets: Int) -> AnyArray:
    """Sum of each segment; 0 for an empty one. Depends on the segment's own values alone."""
    return _reduce(np.add, values, offsets, 0)


def segment_max(values: AnyArray, offsets: Int) -> AnyArray:
    """Maximum of each segment; −inf for an empty one."""
    return _reduce(np.maximum, values, offsets, -np.inf)


def segment_min(values: AnyArray, offsets: Int) -> AnyArray:
    """Minimum of each segment; +inf for an empty one."""
    return _reduce(np.minimum, values, offsets, np.inf)


def segment_span(values: AnyArray, offsets: Int) -> tuple[AnyArray, AnyArray]:
    """Minimum and maximum of each segment, NaN aside; +inf and −inf where nothing else is."""
    nan = np.isnan(values)
    low = segment_min(np.where(nan, np.inf, values), offsets)
    return low, segment_max(np.where(nan, -np.inf, values), offsets)


def segment_mean(values: AnyArray, offsets: Int) -> Float:
    """Mean of each segment; NaN for an empty one."""
    sizes = np.diff(offsets)
    sums = segment_sum(values.astype(np.float64, copy=False), offsets)
    return ratio(sums, sizes)


@dataclass(frozen=True, eq=False)
class Bucket:
    """All segments of one length.

    Attributes:
        size: the common length n.
        segments: indices (g) of the segments.
        rows: positions (g, n) of their values.
    """

    size: int
    segments: Int
    rows: Int


def buckets(offsets: Int) -> tuple[Bucket, ...]:
    """Group segments by length, so that a rule runs on (g, n) matrices instead of a loop."""
    sizes = np.diff(offsets)
    found = []
    for size in np.unique(sizes):
        segments = np.flatnonzero(sizes == size)
        rows = offsets[segments][:, None] + np.arange(size, dtype=np.int64)
        found.append(Bucket(int(size), segments, rows))
    return tuple(found)


def batch_sum(totals: AnyArray) -> float:
    """Sum over a batch that does not depend on the order of the rows."""
    return float(np.sort(totals).sum())


# Parsed, not computed: pow() is not correctly rounded and differs between machines.
_POWERS = np.array([float(f"1e{k}") for k in range(-300, 301)])
_CARRY = -np.log1p(-5e-7) / np.log(10)  # 9.999995 has the exponent of 10, which it rounds to


def round_significant(values: AnyArray) -> Float:
    """Values rounded to six significant digits: scores equal after it are *tied*.

    Zeros, infinities, NaN, and magnitudes outside 1e-290 … 1e290 are returned as they are.
    """
    values = np.asarray(values, dtype=np.float64)
    size = np.abs(values)
    if size.max(initial=0.0) < 1e6 and np.array_equal(values, np.rint(values)):
        return values
    regular = (size > 1e-290) & (size < 1e290)
    exponent = np.log10(size, out=np.zeros_like(size), where=regular)
    exponent = np.floor(exponent + _CARRY).astype(np.int64)
    scale = _POWERS[305 - exponent]
    return np.where(regular, np.rint(np.where(regular, values, 0.0) * scale) / scale, values)
