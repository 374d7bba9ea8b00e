"""One chunk's rows on their way to canonical columns, every value checked."""

from __future__ import annotations

import hashlib

import polars as pl

from ..errors import TraceError, nearest
from ..schema import COLUMNS, REQUIRED, TOKEN_COLUMNS
from ..store import dtype_of
from .base import IMPORT_ONLY, PLACE, Chunk, ImportOptions, ImportSummary
from .lengths import Lengths


class Rows:
    """One chunk on its way to canonical columns."""

    def __init__(self, chunk: Chunk, options: ImportOptions, summary: ImportSummary) -> None:
        self.chunk, self.options, self.summary = chunk, options, summary
        self.frame = chunk.frame

    def canonical(self, measure: Lengths) -> pl.DataFrame:
        """Rename, drop padding, keep trainable tokens, check every value, measure lengths."""
        self._rename()
        self._drop_padding()
        if self.frame.height == 0:
            return self.frame
        self._mask_tokens()
        self._collapse_advantage()
        self._identify_prompt()
        self._number_rollouts()
        for name in self.frame.columns:
            if name == PLACE:
                continue
            if name in COLUMNS or name in IMPORT_ONLY:
                self._cast(name)
            elif self._numeric(name):
                self.frame = self.frame.with_columns(pl.col(name).cast(pl.Float64))
            else:
                self.frame = self.frame.drop(name)
        self._check_values()
        if (
            self.frame.schema.get("mini_batch") == pl.Int64
            and "output_idx" not in self.frame.columns
        ):
            self.frame = self.frame.with_columns(output_idx=pl.lit(0, pl.Int64))
        self.frame = measure(self.frame)
        if not self.options.keep_text:
            self.frame = self.frame.drop("prompt", "response", strict=False)
        return self.frame.drop(PLACE)

    def _rename(self) -> None:
        have = [n for n in self.frame.columns if n != PLACE]
        for name, column in self.options.columns.items():
            if column not in have:
                raise TraceError(
                    f"{self.chunk.path} has no column '{column}'{nearest(column, have)}, which "
                    f"--map {name}={column} names; it has: {', '.join(have)}"
                )
        taken = set(self.options.columns.values())
        mapped = [pl.col(c).alias(n) for n, c in self.options.columns.items()]
        rest = [n for n in have if n not in taken and n not in self.options.columns]
        self.frame = self.frame.select(PLACE, *rest, *mapped)
        for name in REQUIRED:
            if name not in self.frame.columns:
                raise TraceError(
                    f"{self.chunk.path} has no column '{name}' ({COLUMNS[name].help}); name it "
                    f"with --map {name}=COLUMN{nearest(name, have)}. It has: {', '.join(have)}"
                )

    def _drop_padding(self) -> None:
        if "is_padding" in self.frame.columns:
            self._cast("is_padding")
            before = self.frame.height
            self.frame = self.frame.filter(pl.col("is_padding") == 0).drop("is_padding")
            self.summary.padding += before - self.frame.height

    def _mask_tokens(self) -> None:
        if "response_mask" not in self.frame.columns:
            return
        self._cast("response_mask")
        mask = self.frame["response_mask"]
        index = pl.int_range(pl.len()).alias("__i")
        lists = [
            n
            for n in (*TOKEN_COLUMNS, "advantage")
            if n in self.frame.columns and isinstance(self.frame.schema[n], pl.List)
        ]
        for name in lists:
            own, wanted = self.frame[name].list.len(), mask.list.len()
            bad = (own != wanted).fill_null(False).arg_max()
            if bad is not None and own[bad] != wanted[bad] and own[bad] is not None:
                self._fail(bad, name, f"{own[bad]} values", f"response_mask has {wanted[bad]}")
        if lists:
            long = self.frame.select(index, "response_mask", *lists).explode(
                "response_mask", *lists, empty_as_null=False, keep_nulls=False
            )
            kept = (
                long.filter(pl.col("response_mask") == 1)
                .group_by("__i", maintain_order=True)
                .agg(pl.col(n) for n in lists)
            )
            masked = self.frame.select(index).join(
                kept, on="__i", how="left", maintain_order="left"
            )
            empty = pl.lit([], dtype=pl.List(pl.Float64))
            self.frame = self.frame.with_columns(
                masked.select(pl.col(n).fill_null(empty) for n in lists)
            )
        if "num_tokens" not in self.frame.columns and not lists:
            self.frame = self.frame.with_columns(num_tokens=pl.col("response_mask").list.sum())
        self.frame = self.frame.drop("response_mask")

    def _collapse_advantage(self) -> None:
        """Turn a list of one repeated value into the value: GRPO gives a response one advantage."""
        if not isinstance(self.frame.schema.get("advantage"), pl.List):
            return
        column = pl.col("advantage")
        spread = self.frame.select((column.list.max() - column.list.min()).alias("s"))["s"]
        bad = (spread > 0).fill_null(False)
        if bad.any():
            row = int(bad.arg_max() or 0)
            self._fail(
                row,
                "advantage",
                "different values in one response",
                "map it as advantages=COLUMN, one value a token",
            )
        self.frame = self.frame.with_columns(column.list.first().fill_null(0.0))

    def _identify_prompt(self) -> None:
        """prompt_id from token ids, or from the prompt's text where there is no id."""
        frame = self.frame
        if "prompt_id" not in frame.columns and "prompt" in frame.columns:
            frame = frame.with_columns(prompt_id=pl.col("prompt"))
            self.summary.note("Prompts were told apart by their text.")
        elif not isinstance(frame.schema.get("prompt_id"), pl.List):
            return
        texts = frame["prompt_id"].to_list()
        digest: dict[str, str] = {}
        for value in texts:
            key = str(value)
            if key not in digest:
                digest[key] = hashlib.blake2b(
                    key.encode("utf-8", "replace"), digest_size=8
                ).hexdigest()
        ids = [None if v is None else digest[str(v)] for v in texts]
        self.frame = frame.with_columns(pl.Series("prompt_id", ids, dtype=pl.String))

    def _number_rollouts(self) -> None:
        """rollout_idx from text such as ``uid_2``: the number at its end."""
        if self.frame.schema.get("rollout_idx") != pl.String:
            return
        number = self.frame["rollout_idx"].str.extract(r"(\d+)$", 1)
        bad = (number.is_null() & self.frame["rollout_idx"].is_not_null()).arg_max()
        if bad is not None and number[bad] is None:
            self._fail(
                bad, "rollout_idx", repr(self.frame["rollout_idx"][bad]), "it ends in no number"
            )
        self.frame = self.frame.with_columns(rollout_idx=number.cast(pl.Int64))

    def _numeric(self, name: str) -> bool:
        dtype = self.frame.schema[name]
        return dtype.is_numeric() or dtype == pl.Boolean

    def _cast(self, name: str) -> None:
        target = dtype_of(name) if name in COLUMNS else pl.Int64
        if name == "response_mask":
            target = pl.List(pl.Int64)
        series = self.frame[name]
        if name == "mini_batch" and not isinstance(series.dtype, pl.List):
            target = pl.Int64
        if series.dtype == target:
            return
        needs_list, is_list = isinstance(target, pl.List), isinstance(series.dtype, pl.List)
        if series.dtype != pl.Null and needs_list != is_list:
            what = "a list with one value a token" if needs_list else "one value a row"
            self._fail(0, name, repr(series[0]), f"it must be {what}")
        try:
            cast = series.cast(target, strict=False)
        except pl.exceptions.PolarsError:
            self._fail(0, name, repr(series[0]), f"it must be {COLUMNS[name].kind}")
            return
        lost = cast.is_null() & series.is_not_null()
        if is_list and needs_list:
            lost = (
                cast.list.eval(pl.element().is_null()).list.any()
                & ~series.list.eval(pl.element().is_null()).list.any()
            )
        elif target == pl.Int64 and series.dtype.is_float():
            lost |= (cast.cast(pl.Float64) != series).fill_null(False) & series.is_not_nan()
        if lost.any():
            row = int(lost.fill_null(False).arg_max() or 0)
            kind = COLUMNS[name].kind if name in COLUMNS else "int"
            self._fail(row, name, repr(series[row]), f"it must be {kind}")
        self.frame = self.frame.with_columns(cast.alias(name))

    def _check_values(self) -> None:
        for name in REQUIRED:
            null = self.frame[name].is_null()
            if null.any():
                self._fail(int(null.arg_max() or 0), name, "no value", "every row needs one")
        reward = self.frame["reward"]
        bad = ~reward.is_finite()
        if bad.any():
            row = int(bad.arg_max() or 0)
            self._fail(row, "reward", repr(reward[row]), "drop the row, or give it a finite reward")
        if "num_tokens" in self.frame.columns:
            bad = (self.frame["num_tokens"] < 0).fill_null(False)
            if bad.any():
                row = int(bad.arg_max() or 0)
                self._fail(
                    row, "num_tokens", repr(self.frame["num_tokens"][row]), "lengths are ≥ 0"
                )
        if "domain" in self.frame.columns:
            self.frame = self.frame.with_columns(pl.col("domain").fill_null("unlabelled"))

    def _fail(self, row: int, column: str, value: str, remedy: str) -> None:
        place = f"{self.chunk.path}:{self.frame[PLACE][row]}"
        shown = self.options.columns.get(column, column)
        named = f"column '{shown}'" + ("" if shown == column else f" (as {column})")
        raise TraceError(f"{place}: {named} holds {value[:80]}; {remedy}")
