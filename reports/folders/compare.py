"""The folder of ``dfsim compare --out``."""

from __future__ import annotations

from pathlib import Path

from ...sim.compare.result import CompareResult
from ...sim.provenance import provenance
from ..compare.figures import write_compare_figures
from ..pages import COMPARE_JSON
from .result import writing_result


def compare_record(result: CompareResult) -> dict[str, object]:
    """The JSON of a comparison, and how it was made."""
    return {**result.to_dict(), "provenance": provenance()}


def write_compare(result: CompareResult, folder: Path, force: bool) -> None:
    """Write ``compare.json``, tables as CSV (methods, comparisons, means), figures, and the page.

    Args:
        result: of a comparison.
        folder: replaced only after success, and only with ``force``.
        force: replace an earlier result.

    Raises:
        DfsimError: the folder exists, or is not dfsim's.
    """
    with writing_result(COMPARE_JSON, compare_record(result), folder, force) as scratch:
        result.methods().write_csv(scratch / "methods.csv")
        result.table().write_csv(scratch / "comparisons.csv")
        result.means().write_csv(scratch / "means.csv")
        write_compare_figures(result, scratch)
