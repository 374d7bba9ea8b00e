"""The folder that ``screen --out`` writes."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ...sim.provenance import provenance
from ...sim.result import dump_json
from ...sim.screen.result import ScreenResult
from ...traces.storage.files import replacing_folder
from ..pages import SCREEN_JSON, write_page
from ..screen.figures import write_screen_figures


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
    with replacing_folder(folder, SCREEN_JSON, force) as scratch:
        text = dump_json(screen_record(result))
        (scratch / SCREEN_JSON).write_text(text + "\n", encoding="utf-8")
        result.table().write_csv(scratch / "screen.csv")
        steps = pl.concat(
            t.replay.steps().insert_column(0, pl.lit(str(t.replay.trace["path"])).alias("trace"))
            for t in result.traces
        )
        steps.write_parquet(scratch / "steps.parquet", compression="zstd")
        write_screen_figures(result, scratch)
        write_page(scratch)
