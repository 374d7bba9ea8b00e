"""The folder of a result: its JSON record, its page, and what else a kind writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...sim.provenance import provenance
from ...sim.result import RECORD_VERSION, dump_json
from ...traces.storage.files import replacing_folder
from ...traces.version import __version__
from ..pages import write_page


@contextmanager
def writing_result(
    name: str, record: Mapping[str, Any], folder: Path, force: bool
) -> Iterator[Path]:
    """Write a record, let the caller add tables and figures, then write the page.

    Args:
        name: of the JSON, a key of :data:`dfsim.reports.pages.PAGES`.
        record: the result.
        folder: replaced only after success, and only with ``force``.
        force: replace an earlier result.

    Yields:
        The temporary folder to add to.

    Raises:
        DfsimError: the folder exists, or is not dfsim's.
    """
    with replacing_folder(folder, name, force) as scratch:
        (scratch / name).write_text(dump_json(record) + "\n", encoding="utf-8")
        yield scratch
        write_page(scratch)


def write_record(
    name: str, record: Mapping[str, Any], settings: Mapping[str, Any], folder: Path, force: bool
) -> None:
    """Write a record and its page, where a result has no tables and figures of its own.

    Args:
        name: of the JSON, a key of :data:`dfsim.reports.pages.PAGES`.
        record: the result.
        settings: that it was made with.
        folder: replaced only after success, and only with ``force``.
        force: replace an earlier result.

    Raises:
        DfsimError: the folder exists, or is not dfsim's.
    """
    made = {"settings": dict(settings), "provenance": provenance()}
    whole = {"dfsim": __version__, "version": RECORD_VERSION, **record, **made}
    with writing_result(name, whole, folder, force):
        pass
