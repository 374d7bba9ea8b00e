"""Pages of result folders: which JSON makes which page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..sim.result import RECORD_VERSION
from ..traces.errors import DfsimError
from ..traces.storage.files import replacing_file
from .compare.page import compare_page
from .html import PAGE, Page, render
from .inspect.page import inspect_page
from .replay.page import replay_page
from .screen.page import screen_page
from .verify.page import verify_page

REPLAY_JSON = "replay.json"
SCREEN_JSON = "screen.json"
COMPARE_JSON = "compare.json"
INSPECT_JSON = "inspect.json"
VERIFY_JSON = "verify.json"

PAGES: Mapping[str, Callable[[Mapping[str, Any]], Page]] = {
    REPLAY_JSON: replay_page,
    SCREEN_JSON: screen_page,
    COMPARE_JSON: compare_page,
    INSPECT_JSON: inspect_page,
    VERIFY_JSON: verify_page,
}
"""Name of a result's JSON → what builds its page."""


def write_page(folder: Path) -> Path:
    """Write ``index.html`` from the JSON and the figures of a result folder; returns its path.

    Raises:
        DfsimError: no folder, no result in it, or one that is damaged or of another version.
    """
    name = _kind(folder)
    text = render(PAGES[name](_read(folder / name)), folder)
    with replacing_file(folder / PAGE) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return folder / PAGE


def write_page_again(folder: Path) -> Path:
    """:func:`write_page` of a folder that anybody may have touched since.

    Raises:
        DfsimError: as there, or the JSON holds no result.
    """
    try:
        return write_page(folder)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, DfsimError):
            raise
        name = _kind(folder)
        raise DfsimError(
            f"{folder / name} holds no result of dfsim's ({type(error).__name__}: {error}); "
            f"{_again(name)}"
        ) from error


def _kind(folder: Path) -> str:
    """Name of the JSON that a folder holds."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise DfsimError(f"{folder} {what}; name a folder that --out wrote")
    for name in PAGES:
        if (folder / name).is_file():
            return name
    raise DfsimError(
        f"{folder} holds no result ({', '.join(PAGES)}); name a folder that --out wrote"
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        line = str(error).splitlines()[0]
        raise DfsimError(f"{path} is no JSON ({line}); {_again(path.name)}") from None
    if not isinstance(record, dict) or "dfsim" not in record:
        raise DfsimError(f"{path} holds no result of dfsim's; {_again(path.name)}")
    version = record.get("version")
    if version != RECORD_VERSION:
        raise DfsimError(
            f"{path}: result format version {version}; this dfsim reads version {RECORD_VERSION}. "
            f"Upgrade dfsim, or {_again(path.name)}"
        )
    return record


def _again(name: str) -> str:
    return f"write it again with dfsim {Path(name).stem} --out"
