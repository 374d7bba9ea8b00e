"""Made tables of finished runs."""

from __future__ import annotations

import numpy as np
import polars as pl


def runs(effects, seeds=3, metrics=3, noise=1.0, rng=None, centre=50.0, **columns):
    """One row a run: ``centre`` + effect of the method + noise, in each metric."""
    rng = rng or np.random.default_rng(0)
    rows = [
        {
            "method": method,
            "seed": seed,
            **columns,
            **{f"x{i}": centre + effect + noise * rng.standard_normal() for i in range(metrics)},
        }
        for method, effect in effects.items()
        for seed in range(1, seeds + 1)
    ]
    return pl.DataFrame(rows)


def written(folder, frame, name="runs.csv"):
    path = folder / name
    frame.write_csv(path)
    return path


def long_of(frame, metrics, keys=("method", "seed")):
    return frame.unpivot(
        on=list(metrics), index=list(keys), variable_name="benchmark", value_name="score"
    )


def of(result, method, cell=0):
    return next(m for m in result.cells[cell].methods if m.name == method)
