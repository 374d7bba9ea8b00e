"""Importing: a source's rows become a trace, one response a row, every value checked."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from .errors import TraceError
from .files import check_new_folder, replacing_folder
from .importers import choose
from .importers.base import Chunk, Importer, ImportOptions, ImportSummary
from .importers.domains import prompt_texts
from .importers.lengths import Lengths
from .importers.rows import Rows
from .manifest import MANIFEST, Manifest, checked_config
from .sessions import merge_outputs
from .store import TraceWriter
from .version import __version__

Progress = Callable[[int], None]

MANY_SINGLETONS = 0.95


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

    Raises:
        TraceError: an unknown format, a missing column, or a value that does not fit; names file,
            line, column, value and remedy.
    """
    options = options or ImportOptions()
    settings = checked_config(config)
    check_new_folder(out, MANIFEST, force)
    name, importer = choose(source, format, options)
    importer.refuse_unused(options)
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
        parts = _spool(_normalised(chunks, options, measure, summary, progress), Path(spool))
        if options.domains is not None:
            options.domains.report(summary)
        writer = TraceWriter(
            folder,
            Manifest(
                writer=f"dfsim {__version__}",
                source=f"import of {source.name} ({name})",
                label=label,
                lengths=summary.lengths,
                config=checked_config({**summary.config, **settings}),
            ),
            at_once=False,
        )
        sizes: Counter[int] = Counter()
        for step in sorted(parts):
            frame = pl.concat([pl.read_parquet(p) for p in parts[step]], how="diagonal_relaxed")
            try:
                frame = _whole_step(frame, options.nan_reward, summary)
                if frame.height:
                    summary.responses += writer.write_step(frame).responses
                    sizes.update(frame.group_by("group_uid").len()["len"].to_list())
            except TraceError as error:
                where = "" if str(error).startswith("step ") else f"step {step}: "
                raise TraceError(f"{source}, {where}{error}") from None
        summary.steps = len(writer.manifest.steps)
        if summary.steps == 0:
            raise TraceError(
                f"{source} holds nothing to import: of {summary.rows} rows {summary.padding} are "
                f"padding and {summary.dropped} have no finite reward"
            )
        writer.publish()
        _note_sizes(sizes, summary)
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


def _note_sizes(sizes: Counter[int], summary: ImportSummary) -> None:
    total = sum(sizes.values())
    singles = sizes[1] / total
    if singles >= MANY_SINGLETONS and total > 1 and not summary.singletons_said:
        summary.note(
            f"{singles:.0%} of the groups hold a single response: does group_uid name the "
            "trajectory instead of the prompt group? GRPO compares nothing in such groups."
        )
    usual, _ = sizes.most_common(1)[0]
    if usual > 1 and sizes[2 * usual]:
        summary.note(
            f"{sizes[2 * usual]} groups hold {2 * usual} responses where {usual} are usual: one "
            "prompt drawn twice in a step? Give each draw its own group_uid."
        )


def _spool(frames: Iterator[pl.DataFrame], folder: Path) -> dict[int, list[Path]]:
    """Sort rows into one file per chunk and step, so that memory holds one chunk at a time."""
    parts: dict[int, list[Path]] = {}
    for number, frame in enumerate(frames):
        for (step,), rows in frame.partition_by("step", as_dict=True).items():
            path = folder / f"{number:06d}-{len(parts):06d}-{step}.parquet"
            rows.write_parquet(path, compression="lz4")
            parts.setdefault(int(step), []).append(path)
    return parts


def _normalised(
    chunks: Iterator[Chunk],
    options: ImportOptions,
    measure: Lengths,
    summary: ImportSummary,
    progress: Progress | None,
) -> Iterator[pl.DataFrame]:
    for chunk in chunks:
        summary.rows += chunk.frame.height
        frame = Rows(chunk, options, summary).canonical(measure)
        if progress is not None:
            progress(summary.rows)
        if frame.height:
            yield frame
