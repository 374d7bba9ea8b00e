"""Response lengths: from token lists, a tokenizer, or characters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from ..errors import TraceError
from ..schema import TOKEN_COLUMNS
from .base import ImportOptions, ImportSummary


class Lengths:
    """Measures responses where the source has no lengths, and records how."""

    def __init__(self, options: ImportOptions, summary: ImportSummary) -> None:
        self.options, self.summary = options, summary
        self.tokenizer = None if options.tokenizer is None else _tokenizer(options.tokenizer)

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add ``num_tokens`` where the rows allow it."""
        lists = [n for n in TOKEN_COLUMNS if n in frame.columns]
        if lists:
            frame = frame.with_columns(num_tokens=pl.col(lists[0]).list.len().cast(pl.Int64))
        elif "num_tokens" not in frame.columns and "output_tokens" in frame.columns:
            frame = frame.with_columns(num_tokens=pl.col("output_tokens").list.sum())
        if "num_tokens" in frame.columns:
            self._record("tokens")
            if self.tokenizer is not None or self.options.length is not None:
                self.summary.note("The rows have lengths, so responses were not measured.")
        elif self.tokenizer is not None and self._text(frame, "--tokenizer"):
            texts = frame["response"].fill_null("").to_list()
            counts = [
                len(e.ids) for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)
            ]
            frame = frame.with_columns(pl.Series("num_tokens", counts, dtype=pl.Int64))
            name = self.options.tokenizer.name if self.options.tokenizer else ""
            self._record(f"tokens of {name}")
        elif self.options.length == "chars" and self._text(frame, "--length chars"):
            chars = pl.col("response").fill_null("").str.len_chars()
            frame = frame.with_columns(num_tokens=chars.cast(pl.Int64))
            self._record("characters")
        return frame

    def _record(self, unit: str) -> None:
        if self.summary.lengths not in (None, unit):
            raise TraceError(
                f"some rows have lengths in {self.summary.lengths}, others in {unit}; import them "
                "apart, or measure all alike"
            )
        self.summary.lengths = unit

    def _text(self, frame: pl.DataFrame, flag: str) -> bool:
        if "response" not in frame.columns:
            raise TraceError(f"{flag} measures the text of column 'response'; name it with --map")
        return True


def _tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise TraceError(
            "--tokenizer needs the tokenizers library: pip install 'dfsim[tokenizer]'"
        ) from None
    if not path.is_file():
        raise TraceError(f"--tokenizer {path} does not exist; give a tokenizer.json")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        line = str(error).splitlines()[0]
        raise TraceError(f"--tokenizer {path} is no tokenizer.json ({line})") from None
