"""Traces that tests make: synthetic columns on their way to disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from dfsim.traces.storage.manifest import Manifest
from dfsim.traces.storage.store import Trace, TraceWriter, open_trace
from dfsim.traces.synthetic import exact_step

# Names of the reported numbers, as they were specified.
ESTIMATORS = [
    "num_responses",
    "num_groups",
    "num_tokens",
    "live_group_frac",
    "singleton_share",
    "kept_frac",
    "kept_token_frac",
    "kept_group_frac",
    "signal_group_frac",
    "weight_mean",
    "weight_std",
    "weight_max",
    "ess_responses",
    "ess_tokens",
    "kish_groups",
    "kish_responses",
    "signal_to_noise",
    "effective_batch",
    "effective_batch_low",
    "effective_batch_high",
    "loss_scale",
    "signal_scale",
    "signal_scale_cv",
    "energy_scale_low",
    "energy_scale_high",
    "group_bias",
    "one_sided_frac",
    "positive_share",
    "trained_token_frac",
    "wasted_token_frac",
    "refill_factor",
    "updates_per_step",
]


def frame_of(columns) -> pl.DataFrame:
    """Columns as ``dfsim.traces.synthetic`` gives them, one row a response."""
    count = len(columns["group_uid"])
    series = {}
    for name, value in columns.items():
        if isinstance(value, tuple):
            cuts = np.cumsum(value[1])[:-1]
            series[name] = pl.Series([part.tolist() for part in np.split(value[0], cuts)])
        elif np.ndim(value) == 0:
            series[name] = pl.Series([value] * count)
        else:
            series[name] = pl.Series(list(value))
    return pl.DataFrame(series)


def trace_of(folder: Path, steps, **manifest) -> Trace:
    """Write steps (columns) as a trace; keyword arguments go to its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = TraceWriter(folder, Manifest(writer="test", **manifest))
    for columns in steps:
        writer.write_step(frame_of(columns))
    return open_trace(folder)


def solved_trace(folder: Path, solved_by_step, n: int, *, drop=(), **manifest) -> Trace:
    """Binary rewards: step t holds groups with exactly ``solved_by_step[t]`` of n solved."""
    steps = [exact_step(solved, n, step=t + 1) for t, solved in enumerate(solved_by_step)]
    kept = [{k: v for k, v in s.items() if k not in drop} for s in steps]
    return trace_of(folder, kept, **manifest)
