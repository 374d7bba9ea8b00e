"""Writing a live run's steps into a trace, in the background, without ever holding up training."""

from __future__ import annotations

import json
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ...traces.errors import DfsimError
from ...traces.ragged import offsets_of
from ...traces.schema import TOKEN_COLUMNS
from ...traces.storage.manifest import MANIFEST, VERL, Manifest, checked_config, read_manifest
from ...traces.storage.store import TraceWriter
from ...traces.version import __version__
from .delivery import Applied
from .log import LIVE_LOG, append_record
from .rows import Responses
from .settings import CaptureSettings

AUTO_TOKENS = 4_000_000
"""``capture.tokens=auto`` keeps token lists where a step can hold at most this many tokens."""

_WAIT_SECONDS = 60.0
_LEFT_OVER = re.compile(rf"\.|step_\d+\S*\.parquet$|{LIVE_LOG}$")  # of a run killed at once


@dataclass(frozen=True)
class CapturedStep:
    """What one step leaves: its responses as columns, and a record of what dfsim did.

    Attributes:
        columns: canonical columns, list columns as (values, lengths).
        record: JSON: decisions' digests, delivery, what a mixer drew, seconds.
    """

    columns: Mapping[str, Any]
    record: Mapping[str, Any]


def columns_of(
    responses: Responses, applied: Applied | None, tokens: bool, text: bool
) -> dict[str, Any]:
    """Columns that a trace keeps of one step.

    Args:
        responses: the step.
        applied: what was delivered, or ``None``.
        tokens: keep token lists.
        text: keep prompt and response text.
    """
    found = dict(responses.columns)
    if applied is not None:
        found["weight"] = applied.weight_N
        if applied.token_weight_T is not None:
            found["token_weight"] = (applied.token_weight_T, responses.num_tokens_N)
        if applied.advantage_N is not None:
            found["advantage_applied"] = applied.advantage_N.astype(np.float64)
    if not tokens:
        found = {n: v for n, v in found.items() if n not in TOKEN_COLUMNS or n == "token_weight"}
    if text:
        found.update(responses.texts())
    return found


def to_frame(columns: Mapping[str, Any]) -> pl.DataFrame:
    """One row a response; a pair (values, lengths) becomes a list column."""
    count = len(columns["group_uid"])
    series = []
    for name, value in columns.items():
        if isinstance(value, tuple):
            values, lengths = value
            lists = pa.LargeListArray.from_arrays(offsets_of(lengths), pa.array(values))
            series.append(pl.Series(name, lists))
        elif np.ndim(value) == 0:
            series.append(pl.Series(name, np.full(count, value)))
        else:
            array = np.asarray(value)
            values = array.tolist() if array.dtype == object else array
            series.append(pl.Series(name, values))
    return pl.DataFrame(series)


class Capture:
    """The background writer of one run.

    Args:
        settings: where and what.
        config: the run's settings, for the manifest.
        say: prints one line where the user looks.

    Attributes:
        failed: steps that could not be written.

    Raises:
        DfsimError: the folder holds something else, or another run's capture.
    """

    def __init__(
        self, settings: CaptureSettings, config: Mapping[str, Any], say: Callable[[str], None]
    ) -> None:
        self.settings, self._say = settings, say
        self.failed = 0
        self._stuck = False
        self._error: Exception | None = None
        self._manifest = Manifest(
            writer=f"dfsim {__version__}",
            source="captured live from verl",
            label=settings.label,
            lengths="tokens",
            config=json.loads(json.dumps(checked_config(config))),
            trainer=VERL,
        )
        self._known = self._check_folder()
        self._queue: queue.Queue[CapturedStep | None] = queue.Queue(settings.queue_steps)
        self._thread = threading.Thread(target=self._run, name="dfsim-capture", daemon=True)
        self._writer: TraceWriter | None = None
        self._started = False

    def _check_folder(self) -> set[int]:
        """Steps that are there already; refuse a folder this run can't continue."""
        folder = self.settings.dir
        if not folder.exists():
            return set()
        if not folder.is_dir():
            raise DfsimError(f"+dfsim.capture.dir={folder} is a file; name a folder")
        if not (folder / MANIFEST).exists():
            others = [p.name for p in folder.iterdir() if not _LEFT_OVER.match(p.name)]
            if others:
                raise DfsimError(
                    f"+dfsim.capture.dir={folder} holds other files ({min(others)}); name an "
                    "empty folder"
                )
            return set()
        old = read_manifest(folder)
        mine = self._manifest.config
        names = sorted({*mine, *old.config} - {"seed"})
        for name in names:
            was, now = old.config.get(name), mine.get(name)
            if name == "dfsim" and isinstance(was, Mapping) and isinstance(now, Mapping):
                keys = [key for key in now if was.get(key) != now[key]]
                name, was, now = (
                    (f"dfsim.{keys[0]}", was.get(keys[0]), now[keys[0]])
                    if keys
                    else (name, None, None)
                )
            if was != now:
                raise DfsimError(
                    f"+dfsim.capture.dir={folder} holds the capture of a run with another {name} "
                    f"({_short(was)} there, {_short(now)} here); name an empty folder"
                )
        return {s.step for s in old.steps}

    def check_start(self, fresh: bool) -> None:
        """Refuse early what :meth:`start` would refuse after models have loaded.

        Args:
            fresh: whether the run is certain to begin at step 1.

        Raises:
            DfsimError: see :meth:`start`; or no folder can be made there.
        """
        folder = self.settings.dir
        parent = next(p for p in (folder, *folder.absolute().parents) if p.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise DfsimError(f"+dfsim.capture.dir={folder}: {parent} is no folder to write in")
        if fresh and self._known:
            raise DfsimError(
                f"+dfsim.capture.dir={folder} holds steps {min(self._known)}–{max(self._known)} of "
                "an earlier run, and this run starts at 1; name an empty folder, or move that one"
            )

    def start(self, first_step: int, estimate: str) -> None:
        """Create the folder, say where it is, and begin to write.

        Args:
            first_step: the step that training begins with.
            estimate: how large a step is at most.

        Raises:
            DfsimError: a run that begins at step 1 would mix with one that is there, or the folder
                can't be created.
        """
        folder = self.settings.dir
        overlap = sorted(s for s in self._known if s >= first_step)
        self.check_start(first_step <= 1)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DfsimError(
                f"+dfsim.capture.dir={folder} can't be created ({error.strerror}); name another"
            ) from None
        self._say(f"dfsim captures to {socket.gethostname()}:{folder.resolve()}, {estimate}")
        if overlap:
            self._say(
                f"dfsim: steps {overlap[0]}–{overlap[-1]} were captured before the run was "
                f"resumed at {first_step}; each is replaced when it is trained again"
            )
        for torn in folder.glob(".step_*.tmp-*"):
            torn.unlink(missing_ok=True)
        self._writer = TraceWriter(folder, self._manifest)
        self._thread.start()
        self._started = True

    def put(self, step: CapturedStep) -> None:
        """Hand a step over; waits for a slow disk up to a minute, once, then gives steps up.

        Raises:
            DfsimError: an earlier write failed and ``on_error=raise``.
        """
        if self._error is not None and self.settings.on_error == "raise":
            raise DfsimError(f"dfsim capture failed: {self._error}") from self._error
        patience = 0.001 if self._stuck else _WAIT_SECONDS
        try:
            self._queue.put(step, timeout=patience)
            self._stuck = False
        except queue.Full:
            self._stuck = True  # later steps don't wait until one got through
            number = step.record.get("step")
            self._lost(TimeoutError(f"step {number} waited {_WAIT_SECONDS:.0f} s for the disk"))

    def close(self) -> None:
        """Write what is left.

        Raises:
            DfsimError: a write failed and ``on_error=raise``.
        """
        if not self._started:
            return
        self._started = False
        try:
            self._queue.put(None, timeout=_WAIT_SECONDS)
            self._thread.join(timeout=_WAIT_SECONDS)
        except queue.Full:
            pass
        if self._thread.is_alive():
            left = self._queue.qsize()
            self._lost(TimeoutError(f"the disk hangs; about {left} steps were given up at the end"))
        if self._error is not None and self.settings.on_error == "raise":
            raise DfsimError(f"dfsim capture failed: {self._error}") from self._error
        if self.failed:
            self._say(f"dfsim: {self.failed} steps were not captured ({self._error})")

    def _run(self) -> None:
        assert self._writer is not None
        while (step := self._queue.get()) is not None:
            began = time.perf_counter()
            try:
                self._writer.write_step(to_frame(step.columns))
                seconds = time.perf_counter() - began
                append_record(self.settings.dir, {**step.record, "write_seconds": seconds})
            except Exception as error:  # this thread must outlive whatever a step holds
                self._lost(error)

    def _lost(self, error: Exception) -> None:
        self.failed += 1
        if self._error is None:
            self._error = error
            self._say(
                f"dfsim: a step was not captured ({type(error).__name__}: {error}); training goes "
                "on, further losses are counted in dfsim/capture/failed_steps"
            )


def estimate_size(
    responses: int, max_response_length: int | None, token_lists: int
) -> tuple[int | None, str]:
    """Most tokens a step can hold, and its size in words, before compression."""
    if max_response_length is None:
        return None, "size unknown"
    tokens = responses * max_response_length
    size = responses * 200 + tokens * 4 * token_lists
    unit, scale = ("GB", 1e9) if size >= 1e9 else ("MB", 1e6)
    return tokens, f"at most {size / scale:.3g} {unit} a step before compression"


def _short(value: Any) -> str:
    """A setting's value in few words: a strategy by its name."""
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"])
    return "none" if value is None else str(value)[:60]
