"""The folder that ``screen --out`` writes."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ...sim.provenance import provenance
from ...sim.screen.result import ScreenResult
from ..pages import SCREEN_JSON
from ..screen.figures import write_screen_figures
from .result import writing_result


def screen_record(result: ScreenResult) -> dict[str, object]:
    """The JSON of a screen, and how it was made."""
    return {**result.to_dict(), "provenance": provenance()}


def write_screen(result: ScreenResult, folder: Path, force: bool) -> None:
    """Write ``screen.json``, ``screen.csv``, the steps of every strategy, figures, and the page.

    Args:
        result: a screen.
        folder: replaced only after success, and only with ``force``.
        force: replace an earlier result.

    Raises:
        DfsimError: the folder exists, or is not dfsim's.
    """
    with writing_result(SCREEN_JSON, screen_record(result), folder, force) as scratch:
        result.table().write_csv(scratch / "screen.csv")
        steps = pl.concat(
            t.replay.steps().insert_column(0, pl.lit(str(t.replay.trace["path"])).alias("trace"))
            for t in result.traces
        )
        steps.write_parquet(scratch / "steps.parquet", compression="zstd")
        write_screen_figures(result, scratch)
