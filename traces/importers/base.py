"""What importers share: options, rows with their place of origin, and typed errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from ..errors import TraceError, nearest
from ..schema import COLUMNS

CHUNK_ROWS = 50_000
PLACE = "__row"

IMPORT_ONLY = {
    "output_idx": "index of an output inside its session; outputs merge into one response",
    "is_padding": "whether a row is padding; such rows are dropped",
    "response_mask": "1 for trainable response tokens; token lists keep those only",
}
"""Canonical names that steer the import and are not stored."""


@dataclass(frozen=True)
class ImportOptions:
    """How to read a source.

    Attributes:
        columns: canonical name → column of the source.
        tokenizer: ``tokenizer.json`` to measure responses with.
        length: ``chars`` measures responses in characters where no lengths are known.
        keep_text: store prompt and response text.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    tokenizer: Path | None = None
    length: Literal["chars"] | None = None
    keep_text: bool = False

    def __post_init__(self) -> None:
        known = {**COLUMNS, **IMPORT_ONLY}
        for name in self.columns:
            if name not in known:
                raise TraceError(
                    f"--map {name}=…: no canonical column is called '{name}'{nearest(name, known)}"
                )


@dataclass
class ImportSummary:
    """What an import did, for the user.

    Attributes:
        rows: rows read.
        padding: padding rows dropped.
        outputs: output rows merged into another output's response.
        responses: responses written.
        steps: steps written.
        lengths: where response lengths came from, or ``None``.
        notes: sentences about what was inferred.
    """

    rows: int = 0
    padding: int = 0
    outputs: int = 0
    responses: int = 0
    steps: int = 0
    lengths: str | None = None
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a sentence once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Chunk:
    """Some rows of one file; column ``__row`` holds line numbers (JSONL) or row numbers."""

    path: Path
    frame: pl.DataFrame

    def place(self, row: int) -> str:
        """``file:line`` of a row of the frame."""
        return f"{self.path}:{self.frame[PLACE][row]}"


def source_files(source: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the file, or the files of a folder, with one of the suffixes; sorted by name.

    Raises:
        TraceError: nothing there, or no such file in the folder.
    """
    if not source.exists():
        raise TraceError(f"{source} does not exist")
    wanted = " or ".join(suffixes)
    if source.is_file():
        if source.suffix.lower() not in suffixes:
            raise TraceError(f"{source} is no {wanted} file; convert it, or name one that is")
        return [source]
    found = sorted(
        p for p in source.iterdir() if p.suffix.lower() in suffixes and not p.name.startswith(".")
    )
    if not found:
        raise TraceError(f"{source} holds no {wanted} file; name the folder that holds them")
    return found


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Read a JSONL or Parquet file a chunk at a time.

    Raises:
        TraceError: a line is not a JSON object, or the file is not Parquet.
    """
    yield from (_json_chunks if path.suffix.lower() == ".jsonl" else _parquet_chunks)(path)


def _parquet_chunks(path: Path) -> Iterator[Chunk]:
    try:
        scan = pl.scan_parquet(path, glob=False)
        count = scan.select(pl.len()).collect().item()
        for start in range(0, count, CHUNK_ROWS):
            frame = scan.slice(start, CHUNK_ROWS).collect()
            yield Chunk(path, frame.with_row_index(PLACE, offset=start + 1))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError(f"{path} can't be read as Parquet ({_first_line(error)})") from None


def _json_chunks(path: Path) -> Iterator[Chunk]:
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                rows.append({**_json_object(path, number, line), PLACE: number})
                if len(rows) == CHUNK_ROWS:
                    yield _json_chunk(path, rows)
                    rows = []
    except (UnicodeDecodeError, OSError) as error:
        raise TraceError(f"{path} can't be read as UTF-8 text ({_first_line(error)})") from None
    if rows:
        yield _json_chunk(path, rows)


def _json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"{path}:{number} is not JSON ({_first_line(error)}); fix the line"
        ) from None
    if not isinstance(row, dict):
        raise TraceError(f"{path}:{number} is not a JSON object; each line must be {{…}}")
    return row


def _json_chunk(path: Path, rows: list[dict[str, Any]]) -> Chunk:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            series = pl.Series(name, values, strict=False)
            mixed = series.dtype == pl.Object or series.null_count() > values.count(None)
        except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError):
            mixed = True
        if mixed:
            series = pl.Series(name, [_text(v) for v in values], dtype=pl.String)
        columns.append(series)
    return Chunk(path, pl.DataFrame(columns))


def _text(value: Any) -> str | None:
    """A JSON value as text, so that a column can hold values of several kinds."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "backslashreplace").decode()  # lone surrogates: no UTF-8


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
