"""Writing and reading traces: a folder with ``manifest.json`` and one Parquet file per step."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..assemble import Runs, from_columns
from ..batch import RolloutBatch, missing_column, one_minus_prob_sq
from ..errors import TraceError
from ..ragged import offsets_of, segment_sum
from ..schema import COLUMNS, NO_DOMAIN, OUTPUT_COLUMNS, REQUIRED, TOKEN_COLUMNS, WHOLE
from .files import sha256_of, temporary
from .manifest import MANIFEST, FileEntry, Manifest, StepEntry, read_manifest, write_manifest

_SCALAR = {"int": pl.Int64, "float64": pl.Float64, "float32": pl.Float32, "str": pl.String}
DERIVED = ("one_minus_prob_sq", "output_one_minus_prob_sq", "ref_kl")


def dtype_of(name: str) -> Any:
    """Polars type of a column in a trace; numeric extras are Float64."""
    column = COLUMNS.get(name)
    if column is None:
        return pl.Float64
    scalar = _SCALAR[column.kind]
    return scalar if column.level == "response" else pl.List(scalar)


class TraceWriter:
    """Writes steps one by one; each is visible only when whole.

    Args:
        folder: an existing folder; a trace that is already there is continued.
        manifest: source, label, settings of a new trace.
        at_once: publish every step as it is written, or all of them with :meth:`publish`.
    """

    def __init__(self, folder: Path, manifest: Manifest, *, at_once: bool = True) -> None:
        self.folder, self._at_once = folder, at_once
        exists = (folder / MANIFEST).exists()
        self.manifest = read_manifest(folder) if exists else manifest

    def write_step(self, frame: pl.DataFrame) -> StepEntry:
        """Append one step's responses, in any row order; a step already there is replaced.

        A replaced step's rows get a file of another name, so that a reader finds the old step or
        the new one, whenever the writer is stopped.

        Args:
            frame: one row a response, canonical columns (see ``schema``) and numeric extras.

        Raises:
            TraceError: a required column is missing, a value does not fit its column, a response
                occurs twice, or a column has values for some responses only.
        """
        return self.write_steps([frame])[0]

    def write_steps(self, frames: Sequence[pl.DataFrame]) -> list[StepEntry]:
        """Append several steps in one file; otherwise as :meth:`write_step`."""
        frames = [_canonical(frame) for frame in frames]
        numbers = [int(frame["step"][0]) for frame in frames]
        if len(set(numbers)) < len(numbers):
            raise TraceError(f"steps {numbers} hold one twice; write it once")
        stem = f"step_{numbers[0]:06d}"
        if len(frames) > 1:
            stem += f"_{numbers[-1]:06d}"
        whole = pl.concat(frames, how="diagonal") if len(frames) > 1 else frames[0]
        name, entry = self._write_file(stem, whole)
        starts = offsets_of(np.array([len(frame) for frame in frames]))
        written = [
            StepEntry(
                step=step,
                file=name,
                first_row=int(start),
                responses=frame.height,
                groups=frame["group_uid"].n_unique(),
                tokens=int(frame["num_tokens"].sum()) if "num_tokens" in frame.columns else None,
                digest=content_digest(frame),
            )
            for step, start, frame in zip(numbers, starts[:-1], frames, strict=True)
        ]
        old = self.manifest
        domains = whole["domain"].drop_nulls().unique().to_list() if "domain" in whole else []
        steps = [s for s in old.steps if s.step not in numbers] + written
        known = {**old.files, name: entry}
        files = {s.file: known[s.file] for s in steps}
        self.manifest = replace(
            old,
            columns={**old.columns, **{n: str(t) for n, t in whole.schema.items()}},
            domains=tuple(sorted({*old.domains, *domains})),
            steps=tuple(sorted(steps, key=lambda s: s.step)),
            files=files,
        )
        if self._at_once:
            self.publish()
        for replaced in set(old.files) - set(files):
            (self.folder / replaced).unlink(missing_ok=True)
        return written

    def publish(self) -> None:
        """Make every step written so far visible."""
        write_manifest(self.folder, self.manifest)

    def _write_file(self, stem: str, frame: pl.DataFrame) -> tuple[str, FileEntry]:
        scratch = temporary(self.folder / stem)
        try:
            frame.write_parquet(scratch, compression="zstd")
            entry = FileEntry(sha256_of(scratch), scratch.stat().st_size)
            name = f"{stem}.parquet"
            if name in self.manifest.files:
                name = f"{stem}_{entry.sha256[:12]}.parquet"
            os.replace(scratch, self.folder / name)
        finally:
            scratch.unlink(missing_ok=True)
        return name, entry


def _canonical(frame: pl.DataFrame) -> pl.DataFrame:
    if frame.height == 0:
        raise TraceError("a step without a response can't be written")
    frame = frame.select(_typed(c) for c in frame.get_columns() if c.null_count() < len(c))
    for name in REQUIRED:
        if name not in frame.columns:
            raise TraceError(f"column '{name}' is missing; every trace needs it")
    where = f"step {frame['step'][0]}"
    for name in WHOLE:
        nulls = frame[name].null_count() if name in frame.columns else 0
        if nulls:
            raise TraceError(
                f"{where}: column '{name}' has no value in {nulls} of {frame.height} responses; "
                "give every response one, or leave the column out"
            )
    if "rollout_idx" not in frame.columns:
        frame = frame.with_columns(rollout_idx=pl.int_range(pl.len()).over("group_uid"))
    if "domain" in frame.columns:
        frame = frame.with_columns(pl.col("domain").fill_null(NO_DOMAIN))
    lists = [n for n in TOKEN_COLUMNS if n in frame.columns]
    if lists and "num_tokens" not in frame.columns:
        frame = frame.with_columns(num_tokens=pl.col(lists[0]).list.len().cast(pl.Int64))
    frame = frame.sort("group_uid", "rollout_idx")
    known = [n for n in COLUMNS if n in frame.columns]
    frame = frame.select(known + sorted(set(frame.columns) - set(known)))
    _batch(frame, frame.columns, where)  # refuses what no batch can hold
    return _with_sums(frame)


def _typed(series: pl.Series) -> pl.Series:
    try:
        return series.cast(dtype_of(series.name))
    except pl.exceptions.PolarsError as error:
        line = str(error).splitlines()[0]
        raise TraceError(f"column '{series.name}' does not fit a trace ({line})") from None


def _with_sums(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the per-response sums that replay needs when token lists are not read."""
    sums: dict[str, pl.Series] = {}
    if "old_log_probs" in frame.columns:
        values, lengths = _ragged(frame["old_log_probs"])
        per_token = one_minus_prob_sq(values)
        sums["one_minus_prob_sq"] = pl.Series(segment_sum(per_token, offsets_of(lengths)))
        if "output_tokens" in frame.columns:
            cuts, per_response = _ragged(frame["output_tokens"])
            totals = segment_sum(per_token, offsets_of(cuts)).tolist()
            starts = offsets_of(per_response).tolist()
            rows = [totals[a:b] for a, b in pairwise(starts)]
            sums["output_one_minus_prob_sq"] = pl.Series(rows, dtype=pl.List(pl.Float64))
        if "ref_log_probs" in frame.columns:
            reference, ref_lengths = _ragged(frame["ref_log_probs"])
            if np.array_equal(ref_lengths, lengths):
                with np.errstate(invalid="ignore"):  # −inf − −inf
                    gap = reference.astype(np.float64) - values.astype(np.float64)
                gap = np.clip(np.nan_to_num(gap, nan=0.0), -20, 20)
                k3 = np.exp(gap) - gap - 1
                sums["ref_kl"] = pl.Series(segment_sum(k3, offsets_of(lengths)))
    return frame.with_columns(**sums)


def content_digest(frame: pl.DataFrame) -> str:
    """Digest of a step's captured content in canonical order; its number and sums stay out."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(set(frame.columns) - {"step", *DERIVED}):
        series = frame[name]
        digest.update(f"{name}:{series.dtype}:{len(series)};".encode())
        if isinstance(series.dtype, pl.List):
            digest.update(series.list.len().fill_null(-1).to_numpy().astype(np.int64).tobytes())
            series = series.explode(empty_as_null=False, keep_nulls=False)
        digest.update(series.is_null().to_numpy().tobytes())
        if series.dtype == pl.String:
            digest.update("\x00".join(series.fill_null("").to_list()).encode())
        else:
            digest.update(np.ascontiguousarray(series.fill_null(0).to_numpy()).tobytes())
    return digest.hexdigest()


def _ragged(series: pl.Series) -> tuple[Any, Any]:
    lengths = series.list.len().fill_null(0).to_numpy().astype(np.int64)
    return series.explode(empty_as_null=False, keep_nulls=False).to_numpy(), lengths


def _batch(frame: pl.DataFrame, names: Iterable[str], where: str, **options: Any) -> RolloutBatch:
    columns: dict[str, Any] = {}
    texts = [name for name in names if frame.schema[name] == pl.String]
    runs = frame.select(
        pl.col(name).rle().struct.field(part).implode().alias(f"{name}:{part}")
        for name in texts
        for part in ("value", "len")
    )
    for name in names:
        series = frame[name]
        if name in texts:
            values, lengths = (runs[f"{name}:{part}"][0] for part in ("value", "len"))
            held = np.array(values.to_list(), dtype=object)
            columns[name] = Runs(held, lengths.to_numpy().astype(np.int64))
        elif isinstance(series.dtype, pl.List):
            columns[name] = _ragged(series)
        elif series.dtype in (pl.Float32, pl.Float64) or series.null_count() == 0:
            columns[name] = series.to_numpy()
    return from_columns(columns, where=where, **options)


class Trace:
    """A trace on disk, read step by step; memory holds one step's columns at a time.

    Attributes:
        path: the folder.
        manifest: its verified manifest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        if not self.manifest.steps:
            raise TraceError(f"{path}: the trace has no finished step yet")
        self._verified: set[str] = set()

    def __repr__(self) -> str:
        steps = self.manifest.steps
        sizes = ", ".join(
            f"{count:,} {what}"
            for what in ("groups", "responses", "tokens")
            if (count := self.count(what)) is not None
        )
        lines = [
            f"Trace {self.path}: {len(steps)} steps ({steps[0].step} … {steps[-1].step}), {sizes}",
            f"  columns: {', '.join(self.columns)}",
        ]
        if self.manifest.domains:
            lines.append(f"  domains: {', '.join(self.manifest.domains)}")
        cautions = (self.manifest.label, self.manifest.evaluation)
        lines += [f"  {text}" for text in cautions if text]
        return "\n".join(lines)

    @property
    def columns(self) -> Mapping[str, str]:
        """Columns that occur in at least one step."""
        return self.manifest.columns

    @property
    def extras(self) -> tuple[str, ...]:
        """Numeric columns of the verifier."""
        return tuple(n for n in self.columns if n not in COLUMNS)

    def count(self, what: str) -> int | None:
        """Total of ``responses``, ``groups`` or ``tokens`` over the steps; None where unknown."""
        values = [getattr(s, what) for s in self.manifest.steps]
        return None if None in values else sum(values)

    def require(self, names: Iterable[str], wanted_by: str) -> None:
        """Raise ``TraceError`` for the first column that the trace lacks, naming the remedy."""
        for name in names:
            if not self.has(name):
                raise missing_column(name, wanted_by, dict.fromkeys(self.extras))

    def refuse_evaluation(self, what: str) -> None:
        """Refuse to do what only rollouts that trained allow.

        Args:
            what: what would be done, as a clause: "a screen orders strategies by …".

        Raises:
            TraceError: the trace is an evaluation.
        """
        why = self.manifest.evaluation
        if why:
            raise TraceError(
                f"{self.path} is an evaluation ({why}): its responses never trained, and {what}. "
                "Import the training rollouts; --purpose training overrides where these are"
            )

    def has(self, name: str) -> bool:
        """Whether a column can be read or derived (advantages come from rewards)."""
        if name == "num_tokens" and "old_log_probs" in self.columns:
            return True
        return name in self.columns or name == "advantage"

    def frames(self, names: Iterable[str]) -> Iterator[tuple[StepEntry, pl.DataFrame]]:
        """Yield each step's rows with the given columns, those it has.

        Raises:
            TraceError: a file is missing, changed, or can't be read.
        """
        wanted = list(dict.fromkeys([*REQUIRED, "rollout_idx", *names]))
        name, frame = "", pl.DataFrame()
        for entry in self.manifest.steps:
            if entry.file != name:
                name, frame = entry.file, self._read(self.path / entry.file, wanted)
            if len(frame) == entry.responses:
                yield entry, frame
                continue
            rows = frame.slice(entry.first_row, entry.responses)
            yield entry, rows.select(c for c in rows.get_columns() if c.null_count() < len(c))

    def _read(self, path: Path, wanted: Sequence[str]) -> pl.DataFrame:
        self._verify(path)
        try:
            have = pl.scan_parquet(path, glob=False).collect_schema()
            return pl.read_parquet(path, columns=[n for n in wanted if n in have], glob=False)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise TraceError(f"{path} can't be read ({line}); restore it") from None

    def batches(self, names: Iterable[str]) -> Iterator[RolloutBatch]:
        """Yield each step as a ``RolloutBatch`` with the given columns, those it has."""
        names = set(names)
        if names & {"num_tokens", "old_log_probs", *OUTPUT_COLUMNS}:
            names |= {"num_tokens", "one_minus_prob_sq", *OUTPUT_COLUMNS}
        manifest = self.manifest
        for entry, frame in self.frames(sorted(names)):
            yield _batch(
                frame,
                frame.columns,
                f"{self.path / entry.file}",
                domains=manifest.domains if "domain" in frame.columns else None,
                advantage_config=manifest.advantage_config,
                mini_batch_rows=manifest.mini_batch_rows,
                loss_scale_factor=manifest.config.get("loss_scale_factor"),
            )

    def _verify(self, path: Path) -> None:
        if path.name in self._verified:
            return
        entry = self.manifest.files.get(path.name)
        if entry is None or not path.is_file():
            raise self._broken(path, "is missing from the trace")
        if path.stat().st_size != entry.size or sha256_of(path) != entry.sha256:
            raise self._broken(path, "was changed after dfsim wrote it")
        self._verified.add(path.name)

    def _broken(self, path: Path, what: str) -> TraceError:
        if read_manifest(self.path) != self.manifest:
            return TraceError(f"{path} was replaced while the trace was read; run it again")
        return TraceError(f"{path} {what}; restore it or re-import")


def as_trace(trace: Trace | str | Path) -> Trace:
    """The trace itself, or the one that a path names (see :func:`open_trace`)."""
    return trace if isinstance(trace, Trace) else open_trace(trace)


def open_trace(path: str | Path) -> Trace:
    """Open a trace, or the only trace below a folder.

    Args:
        path: the folder.

    Returns:
        The trace; its rows are read step by step when asked for.

    Raises:
        TraceError: nothing there, no trace below it, or several (listed).

    Example:
        >>> dfsim.open_trace("traces/").count("groups")
        1440
    """
    root = Path(path)
    if not root.exists():
        raise TraceError(f"{root} does not exist")
    if not root.is_dir():
        raise TraceError(
            f"{root} is a file, not a trace; import it first: dfsim import {root} --out TRACE"
        )
    if (root / MANIFEST).is_file():
        return Trace(root)
    found = sorted(p.parent for p in root.rglob(MANIFEST) if not _hidden(p.relative_to(root)))
    if not found:
        raise TraceError(
            f"{root} holds no trace (no {MANIFEST} below it); make one with "
            "dfsim import SRC --out DIR"
        )
    if len(found) > 1:
        listed = ", ".join(str(p) for p in found)
        raise TraceError(f"{root} holds {len(found)} traces; name one of: {listed}")
    return Trace(found[0])


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
