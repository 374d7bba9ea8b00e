"""What importers share: options, rows with their place of origin, and typed errors."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import polars as pl

from ..errors import TraceError, nearest
from ..findings import Finding
from ..schema import COLUMNS

CHUNK_ROWS = 50_000
SAMPLE_ROWS = 200
SAMPLE_FILES = 20
PLACE = "__row"

IMPORT_ONLY = {
    "output_idx": "index of an output inside its session; outputs merge into one response",
    "is_padding": "whether a row is padding; such rows are dropped",
    "response_mask": "1 for trainable response tokens; token lists keep those only",
}
"""Canonical names that steer the import and are not stored."""


NanReward = Literal["fail", "drop-response", "drop-group"]
NAN_REWARDS: tuple[NanReward, ...] = get_args(NanReward)
GroupIds = Literal["run", "file"]
GROUP_IDS: tuple[GroupIds, ...] = get_args(GroupIds)
Purpose = Literal["auto", "training", "evaluation"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
Length = Literal["chars"]
LENGTHS: tuple[Length, ...] = get_args(Length)


class GivesDomains(Protocol):
    """Adds the column ``domain`` to rows, by their prompts (see ``domains``)."""

    @property
    def needs_fit(self) -> bool:
        """Whether all prompts must be seen first."""
        ...

    def fit(self, prompts: Iterable[str], summary: ImportSummary) -> None:
        """See all prompts."""
        ...

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the column."""
        ...

    def report(self, summary: ImportSummary) -> None:
        """Say how well it worked."""
        ...


@dataclass(frozen=True)
class ImportOptions:
    """How to read a source.

    Attributes:
        columns: canonical name → column of the source.
        tokenizer: ``tokenizer.json`` to measure responses with.
        length: ``chars`` measures responses in characters where no lengths are known.
        keep_text: store prompt and response text.
        reward_weights: reward column → weight, for formats with several reward functions.
        group_by: column whose values tell groups apart, where the format does not.
        group_size: rows a block that is a group, where the format does not say.
        nan_reward: what to do with a response whose reward is missing, NaN or infinite.
        domains: gives rows a domain by their prompt.
        without: columns that are not read.
        step: training step of rows that say none.
        group_ids: whether group ids hold over all files of a step, or each file numbers its own;
            ``None``: told by the rows, and asked where they can't tell.
        purpose: whether the rows trained; ``auto``: told by the rows.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    tokenizer: Path | None = None
    length: Length | None = None
    keep_text: bool = False
    reward_weights: Mapping[str, float] = field(default_factory=dict)
    group_by: str | None = None
    group_size: int | None = None
    nan_reward: NanReward = "fail"
    domains: GivesDomains | None = None
    without: tuple[str, ...] = ()
    step: int | None = None
    group_ids: GroupIds | None = None
    purpose: Purpose = "auto"

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
        dropped: responses dropped for want of a reward.
        config: settings of the run that the format implies.
        reward_is_score: whether every row so far has verl's ``reward`` beside an equal ``score``.
        derived: whether the format's own rule was seen to give the stored advantages.
        evaluation: why the rows are an evaluation that never trained, or empty.
        notes: sentences about what was inferred.
        findings: what stands out in the rows.
    """

    rows: int = 0
    padding: int = 0
    outputs: int = 0
    responses: int = 0
    steps: int = 0
    lengths: str | None = None
    dropped: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    reward_is_score: bool | None = None
    derived: bool = False
    evaluation: str = ""
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

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


@dataclass(frozen=True)
class Importer:
    """A format.

    Attributes:
        about: what it is, in words.
        recognise: whether a sample is of this format.
        read: yields a source's rows with canonical names where the format has them.
        uses: options that only some formats have a use for, and this one has.
        trainer: what made such rows, as in the manifest; empty where rows of any trainer look so.
    """

    about: str
    recognise: Callable[[Sample], bool]
    read: Callable[[Path, ImportOptions, ImportSummary], Iterator[Chunk]]
    uses: tuple[str, ...] = ()
    trainer: str = ""

    def refuse_unused(self, options: ImportOptions) -> None:
        """Refuse an option that would change nothing.

        Raises:
            TraceError: an option is given that this format has no use for.
        """
        for name in ("reward_weights", "group_by", "group_size"):
            if getattr(options, name) and name not in self.uses:
                flag = "--" + name.replace("_", "-")
                raise TraceError(f"{flag} has no use for {self.about}; leave it out")


SUFFIXES = (".csv", ".jsonl", ".parquet")


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
