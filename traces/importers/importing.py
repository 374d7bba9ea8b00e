"""Importing: a source's rows become a trace, one response a row, every value checked."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from ..errors import TraceError
from ..storage.files import check_new_folder, replacing_folder
from ..storage.manifest import MANIFEST, Manifest, checked_config
from ..storage.store import TraceWriter
from ..version import __version__
from . import choose
from .base import ImportOptions, ImportSummary
from .domains import prompt_texts
from .formats.base import Importer
from .lengths import Lengths
from .rows import Rows
from .run_checks import FILE, RunChecks
from .sessions import merge_outputs
from .sources import Chunk

Progress = Callable[[int], None]


def import_trace(
    source: Path,
    out: Path,
    *,
    format: str = "auto",
    options: ImportOptions | None = None,
    config: Mapping[str, Any] | None = None,
    label: str = "",
    force: bool = False,
    progress: Progress | None = None,
) -> ImportSummary:
    """Import a source into a new trace folder.

    Args:
        source: file or folder.
        out: the trace folder; replaced only after success, and only with ``force``.
        format: key of ``IMPORTERS``, or ``auto``: told by the source's content.
        options: columns, tokenizer, text.
        config: the run's settings for the manifest, by verl's names.
        label: a caution to print beside every result.
        force: replace an existing trace.
        progress: called with the number of rows read so far.

    Returns:
        What was read, dropped, inferred, and what stands out.

    Raises:
        TraceError: an unknown format, a missing column, or a value that does not fit; names file,
            line, column, value and remedy.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> table = folder / "table.csv"
        >>> _ = table.write_text("prompt_id,num_correct,num_samples\\np1,3,8\\np2,0,8\\n")
        >>> dfsim.import_trace(table, folder / "trace").responses
        16
    """
    options = options or ImportOptions()
    settings = checked_config(config)
    check_new_folder(out, MANIFEST, force)
    name, importer = choose(source, format, options)
    importer.check(options)
    summary = ImportSummary()
    if format == "auto":
        summary.note(f"Read as {importer.about} (--format {name}).")
    measure = Lengths(options, summary)
    with (
        _as_refusals(source, importer),
        replacing_folder(out, MANIFEST, force) as folder,
        tempfile.TemporaryDirectory(prefix=".spool-", dir=folder) as spool,
    ):
        if options.domains is not None and options.domains.needs_fit:
            options.domains.fit(_prompts(importer, source, options), summary)
        chunks = importer.read(source, options, summary)
        spooled = _Spool(Path(spool))
        spooled.fill(_normalised(chunks, options, measure, summary, progress))
        if options.domains is not None:
            options.domains.report(summary)
        config = checked_config({**summary.config, **settings})
        checks = RunChecks(options, config, summary, spooled.files)
        checks.survey(path for paths in spooled.parts.values() for path in paths)
        writer = TraceWriter(
            folder,
            Manifest(
                writer=f"dfsim {__version__}",
                source=f"import of {source.name} ({name})",
                label=label,
                lengths=summary.lengths,
                config=config,
                trainer=importer.trainer,
            ),
            at_once=False,
        )
        for step in sorted(spooled.parts):
            frame = spooled.read(step)
            try:
                frame = _whole_step(frame, options.nan_reward, summary)
                frame = checks.step(frame) if frame.height else frame
                if frame.height:
                    summary.responses += writer.write_step(frame).responses
            except TraceError as error:
                where = "" if str(error).startswith("step ") else f"step {step}: "
                raise TraceError(f"{source}, {where}{error}") from None
        summary.steps = len(writer.manifest.steps)
        if summary.steps == 0:
            raise TraceError(
                f"{source} holds nothing to import: of {summary.rows} rows {summary.padding} are "
                f"padding and {summary.dropped} have no finite reward"
            )
        told = checks.finish()
        summary.evaluation = checks.evaluation()
        writer.manifest = replace(
            writer.manifest,
            config=checked_config({**config, **told}),
            evaluation=summary.evaluation,
            findings=tuple(summary.findings),
        )
        writer.publish()
    return summary


@contextlib.contextmanager
def _as_refusals(source: Path, importer: Importer) -> Iterator[None]:
    """Refuse values that no check foresaw and Polars can't handle."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TraceError(f"{source} can't be read as {importer.about} ({line})") from None


def _prompts(importer: Importer, source: Path, options: ImportOptions) -> Iterator[str]:
    column = options.columns.get("prompt", "prompt")
    for chunk in importer.read(source, options, ImportSummary()):
        if column not in chunk.frame.columns:
            raise TraceError("domains are told by the prompt; name its text: --map prompt=COLUMN")
        yield from (t for t in prompt_texts(chunk.frame[column]) if t.strip())  # no padding


def _whole_step(frame: pl.DataFrame, nan_reward: str, summary: ImportSummary) -> pl.DataFrame:
    """Merge outputs, and drop what has no reward as the user said."""
    before = frame.height
    if "output_idx" in frame.columns:
        frame = merge_outputs(frame)
    summary.outputs += before - frame.height
    lacking = frame["reward"].is_nan()
    if not lacking.any():
        return frame
    if nan_reward == "drop-group":
        lacking = frame["group_uid"].is_in(frame.filter(lacking)["group_uid"].unique().implode())
    else:
        alone = (pl.col("reward").is_not_nan().sum() == 1) & (pl.len() > 1)
        left = frame.select(alone.over("group_uid")).to_series()
        if (left & ~lacking).any():
            summary.note(
                "Where --nan-reward left one response of a group, that one was dropped too: alone "
                "it has nothing to be compared with, and its raw reward would pass as an advantage."
            )
        lacking |= left
    summary.dropped += int(lacking.sum())
    return frame.filter(~lacking)


class _Spool:
    """Rows sorted into one file per chunk and step, so that memory holds one chunk at a time.

    Attributes:
        parts: step → files.
        files: the source's files, in the order that rows name them by.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.parts: dict[int, list[Path]] = {}
        self.files: list[Path] = []

    def fill(self, frames: Iterator[tuple[Path, pl.DataFrame]]) -> None:
        """Take in a source's rows, with the file that each comes from."""
        for number, (source, frame) in enumerate(frames):
            if source not in self.files:
                self.files.append(source)
            frame = frame.with_columns(pl.lit(self.files.index(source)).alias(FILE))
            for (step,), rows in frame.partition_by("step", as_dict=True).items():
                path = self._folder / f"{number:06d}-{len(self.parts):06d}-{step}.parquet"
                rows.write_parquet(path, compression="lz4")
                self.parts.setdefault(int(step), []).append(path)

    def read(self, step: int) -> pl.DataFrame:
        """All rows of a step."""
        frames = [pl.read_parquet(path) for path in self.parts[step]]
        return pl.concat(frames, how="diagonal_relaxed")


def _normalised(
    chunks: Iterator[Chunk],
    options: ImportOptions,
    measure: Lengths,
    summary: ImportSummary,
    progress: Progress | None,
) -> Iterator[tuple[Path, pl.DataFrame]]:
    for chunk in chunks:
        summary.rows += chunk.frame.height
        frame = Rows(chunk, options, summary).canonical(measure)
        if progress is not None:
            progress(summary.rows)
        if frame.height:
            yield chunk.path, frame
