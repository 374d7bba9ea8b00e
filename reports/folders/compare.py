"""The folder of ``dfsim compare --out``."""

from __future__ import annotations

from pathlib import Path

from ...sim.compare.result import CompareResult
from ...sim.provenance import provenance
from ...sim.result import dump_json
from ...traces.storage.files import replacing_folder
from ..compare.figures import write_compare_figures
from ..pages import COMPARE_JSON, write_page


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
    with replacing_folder(folder, COMPARE_JSON, force) as scratch:
        text = dump_json(compare_record(result))
        (scratch / COMPARE_JSON).write_text(text + "\n", encoding="utf-8")
        result.methods().write_csv(scratch / "methods.csv")
        result.table().write_csv(scratch / "comparisons.csv")
        result.means().write_csv(scratch / "means.csv")
        write_compare_figures(result, scratch)
        write_page(scratch)
