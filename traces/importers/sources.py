"""Files of a source on their way to chunks of rows, each row with its place of origin."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ..errors import TraceError
from ..schema import COLUMNS
from .base import ImportSummary

CHUNK_ROWS = 50_000
SAMPLE_ROWS = 200
SAMPLE_FILES = 20
PLACE = "__row"
SUFFIXES = (".csv", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Chunk:
    """Some rows of one file; column ``__row`` holds line numbers (JSONL) or row numbers."""

    path: Path
    frame: pl.DataFrame

    def place(self, row: int) -> str:
        """``file:line`` of a row of the frame."""
        return f"{self.path}:{self.frame[PLACE][row]}"

    def with_frame(self, frame: pl.DataFrame) -> Chunk:
        """The same place with other columns."""
        return Chunk(self.path, frame)


@dataclass(frozen=True)
class Sample:
    """The first rows of a source, to tell its format by."""

    path: Path
    frame: pl.DataFrame

    @property
    def columns(self) -> set[str]:
        """Names of the columns."""
        return set(self.frame.columns) - {PLACE}

    def text(self, name: str) -> pl.Series:
        """A column as text; empty where it holds lists or structs."""
        series = self.frame[name]
        if series.dtype.is_nested():
            return pl.repeat("", len(series), dtype=pl.String, eager=True)
        return series.cast(pl.String, strict=False)


def samples_of(source: Path) -> Iterator[Sample]:
    """Read the first rows of a source's files, of each set of columns once.

    Raises:
        TraceError: nothing there, nothing readable, or no row in it.
    """
    seen: list[set[str]] = []
    for path in source_files(source, SUFFIXES)[:SAMPLE_FILES]:
        chunk = next(read_chunks(path, SAMPLE_ROWS), None)
        if chunk is None:
            continue
        sample = Sample(path, chunk.frame)
        if sample.columns not in seen:
            seen.append(sample.columns)
            yield sample
    if not seen:
        raise TraceError(f"{source} holds no row; nothing to import")


def chunks_with(
    source: Path,
    suffixes: tuple[str, ...],
    names: Sequence[str],
    format: str,
    summary: ImportSummary,
    columns: Mapping[str, str] | None = None,
) -> Iterator[Chunk]:
    """Chunks of the files that hold given columns; files that hold none of them are left out.

    Args:
        source: file or folder.
        suffixes: of the files.
        names: columns that every row of the format has.
        format: what errors call it.
        summary: is told what was left out.
        columns: as of :func:`read_chunks`.

    Raises:
        TraceError: a file has some of the columns and lacks others.
    """
    for path in source_files(source, suffixes):
        for chunk in read_chunks(path, columns=columns):
            if not set(names) & set(chunk.frame.columns) and source.is_dir():
                summary.note(f"Left out, as it holds no rollouts: {path.name}.")
                break
            require(chunk, names, format)
            yield chunk


def require(chunk: Chunk, names: Iterable[str], format: str) -> None:
    """Make sure that every file has the columns that a format is told by.

    Raises:
        TraceError: a column is missing.
    """
    for name in names:
        if name not in chunk.frame.columns:
            have = ", ".join(n for n in chunk.frame.columns if n != PLACE)
            raise TraceError(
                f"{chunk.path} has no column '{name}', which {format} has; it has: {have}. Leave "
                "the file out, or import with --format flat"
            )


def source_files(source: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the file, or the files of a folder, with one of the suffixes; sorted by name.

    A folder that holds none itself is looked through with all folders below it.

    Raises:
        TraceError: nothing there, or no such file in the folder or below it.
    """
    if not source.exists():
        raise TraceError(f"{source} does not exist")
    wanted = " or ".join(suffixes)
    if source.is_file():
        if source.suffix.lower() not in suffixes:
            raise TraceError(f"{source} is no {wanted} file; convert it, or name one that is")
        return [source]
    for paths in (source.iterdir(), source.rglob("*")):
        found = sorted(p for p in paths if p.suffix.lower() in suffixes and _visible(p, source))
        if found:
            return found
    raise TraceError(f"{source} holds no {wanted} file, nor does a folder below it")


def _visible(path: Path, root: Path) -> bool:
    return path.is_file() and not any(p.startswith(".") for p in path.relative_to(root).parts)


def read_chunks(
    path: Path, rows: int = CHUNK_ROWS, *, columns: Mapping[str, str] | None = None
) -> Iterator[Chunk]:
    """Read a JSONL, Parquet or CSV file, ``rows`` at a time; ``columns`` as in the options.

    Raises:
        TraceError: a line is not a JSON object, or the file is not Parquet.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        ids = [(columns or {}).get(c.name, c.name) for c in COLUMNS.values() if c.kind == "str"]
        yield from _csv_chunks(path, rows, ids)
    else:
        yield from (_json_chunks if suffix == ".jsonl" else _parquet_chunks)(path, rows)


@contextlib.contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn what Polars raises over a broken file into one line.

    Raises:
        TraceError: Polars can't read the file.
    """
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise TraceError(
            f"{path} can't be read as {kind} ({_first_line(error)}); restore it, or write it again"
        ) from None


def _csv_chunks(path: Path, size: int, texts: Iterable[str]) -> Iterator[Chunk]:
    kept = dict.fromkeys(texts, pl.String)  # 007 and 7 are two names
    with reading(path, "CSV"):
        frame = pl.read_csv(path, infer_schema_length=None, schema_overrides=kept, glob=False)
    frame = frame.drop(PLACE, strict=False)
    for start in range(0, frame.height, size):
        yield Chunk(path, frame.slice(start, size).with_row_index(PLACE, offset=start + 2))


def _parquet_chunks(path: Path, size: int) -> Iterator[Chunk]:
    with reading(path, "Parquet"):
        scan = pl.scan_parquet(path, glob=False).drop(PLACE, strict=False)
        count = scan.select(pl.len()).collect().item()
    for start in range(0, count, size):
        with reading(path, "Parquet"):
            frame = scan.slice(start, size).collect()
        yield Chunk(path, frame.with_row_index(PLACE, offset=start + 1))


def _json_chunks(path: Path, size: int) -> Iterator[Chunk]:
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                rows.append({**_json_object(path, number, line), PLACE: number})
                if len(rows) == size:
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
            f"{path}:{number} is not JSON ({_first_line(error)}): {line.strip()[:40]!r}; fix or "
            "remove the line"
        ) from None
    if not isinstance(row, dict):
        raise TraceError(f"{path}:{number} is not a JSON object; each line must be {{…}}")
    return row


def _json_chunk(path: Path, rows: list[dict[str, Any]]) -> Chunk:
    names = {_text(name): name for row in rows for name in row}
    columns = []
    for name, key in names.items():
        values = [row.get(key) for row in rows]
        try:
            series = pl.Series(name, values, strict=False)
            mixed = series.dtype == pl.Object or series.null_count() > values.count(None)
        except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError):
            mixed = True
        if mixed:
            series = pl.Series(
                name, [None if v is None else _text(v) for v in values], dtype=pl.String
            )
        columns.append(series)
    return Chunk(path, pl.DataFrame(columns))


def _text(value: Any) -> str:
    """A JSON value as text, so that a column can hold values of several kinds."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "backslashreplace").decode()  # lone surrogates: no UTF-8


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
