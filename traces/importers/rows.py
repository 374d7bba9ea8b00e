"""One chunk's rows on their way to canonical columns, every value checked."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import polars as pl

from ..errors import TraceError, nearest
from ..schema import COLUMNS, NO_DOMAIN, REQUIRED, TOKEN_COLUMNS, WHOLE
from ..storage.store import dtype_of
from .base import IMPORT_ONLY, ImportOptions, ImportSummary
from .conventions import remedy_for, step_of, with_endings, with_split
from .lengths import Lengths
from .sources import PLACE, Chunk

MAX_TOKENS = 2**31 - 1
MAX_REWARD = 1e60


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
        self.frame = with_split(with_endings(self.frame))
        self._leave_out()
        if self.options.nan_reward != "fail":
            self._mark_missing_rewards()
        if self.options.domains is not None:
            self.frame = self.options.domains(self.frame)
        self._refuse_gaps()
        self._mask_tokens()
        self._collapse_advantage()
        self._identify_prompt()
        self._name_groups()
        self._flatten_text()
        self._number_rollouts()
        for name in self.frame.columns:
            if name in COLUMNS or name in IMPORT_ONLY:
                self._cast(name)
            elif name != PLACE:
                self.frame = self.frame.with_columns(pl.col(name).cast(pl.Float64))
        self._check_values()
        self.frame = measure(self.frame)
        self._list_outputs()
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
        for name in self.options.without:
            if name not in have:
                raise TraceError(
                    f"{self.chunk.path} has no column '{name}'{nearest(name, have)}, which "
                    f"--without {name} names; it has: {', '.join(have)}"
                )
        taken = {*self.options.columns.values(), *self.options.without}
        mapped = [pl.col(c).alias(n) for n, c in self.options.columns.items()]
        rest = [n for n in have if n not in taken and n not in self.options.columns]
        frame = self.frame.select(PLACE, *rest, *mapped)
        if "step" not in frame.columns:
            frame = self._with_step(frame)
        arrays = [n for n, dtype in frame.schema.items() if isinstance(dtype, pl.Array)]
        self.frame = frame.with_columns(pl.col(n).arr.to_list() for n in arrays)
        for name in REQUIRED:
            if name not in self.frame.columns:
                raise TraceError(
                    f"{self.chunk.path} has no column '{name}' ({COLUMNS[name].help}); "
                    f"{remedy_for(name, have)}. It has: {', '.join(have)}"
                )

    def _with_step(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The step of rows that say none: the user's, or that of their folder."""
        if self.options.step is not None:
            self.summary.note(f"The rows say no step: all are step {self.options.step} (--step).")
            return frame.with_columns(step=pl.lit(self.options.step))
        step = step_of(self.chunk.path.absolute())
        if step is None:
            return frame
        self.summary.note("The rows say no step: it is taken from the names of files or folders.")
        return frame.with_columns(step=pl.lit(step))

    def _drop_padding(self) -> None:
        if "is_padding" in self.frame.columns:
            self._cast("is_padding")
            before = self.frame.height
            real = pl.col("is_padding").fill_null(0) == 0
            self.frame = self.frame.filter(real).drop("is_padding")
            self.summary.padding += before - self.frame.height

    def _mark_missing_rewards(self) -> None:
        """NaN for a reward that is missing or infinite, and 0 for such a response's advantage."""
        self._cast("reward")
        finite = pl.col("reward").is_finite().fill_null(False)
        self.frame = self.frame.with_columns(
            pl.when(finite).then(pl.col("reward")).otherwise(float("nan")).alias("reward")
        )
        if _numeric(self.frame.schema.get("advantage")):
            self.frame = self.frame.with_columns(
                pl.when(finite).then(pl.col("advantage")).otherwise(0.0).alias("advantage")
            )

    def _refuse_gaps(self) -> None:
        """Refuse columns with values for some rows only; drop those without any."""
        for name in (*REQUIRED, *WHOLE, *IMPORT_ONLY):
            if name not in self.frame.columns:
                continue
            null = self.frame[name].is_null()
            if null.all() and name not in REQUIRED:
                self.frame = self.frame.drop(name)
            elif null.any():
                required = "every row needs one"
                if name == "reward":
                    required += ", or choose --nan-reward drop-response or drop-group"
                optional = "give every row one, or leave the column out"
                self._fail(_first(null), name, required if name in REQUIRED else optional)

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
            if (own != wanted).any():
                row = _first(own != wanted)
                self._fail(row, name, f"response_mask has {wanted[row]}", f"{own[row]} values")
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
        self._cast("advantage", pl.List(pl.Float64))
        column = pl.col("advantage")
        spread = self.frame.select((column.list.max() - column.list.min()).alias("s"))["s"]
        bad = (spread > 0).fill_null(False)
        if bad.any():
            remedy = "map it as advantages=COLUMN, one value a token"
            self._fail(_first(bad), "advantage", remedy, "different values in one response")
        if not {"num_tokens", *TOKEN_COLUMNS} & set(self.frame.columns):
            self.frame = self.frame.with_columns(num_tokens=column.list.len())
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
        digest = {key: _digest(key) for key in {str(v) for v in texts}}
        ids = [None if v is None else digest[str(v)] for v in texts]
        self.frame = frame.with_columns(pl.Series("prompt_id", ids, dtype=pl.String))

    def _name_groups(self) -> None:
        """A chat prompt as a group's key becomes its digest."""
        if self.frame.schema["group_uid"].is_nested():
            names = [None if v is None else _digest(str(v)) for v in self.frame["group_uid"]]
            self.frame = self.frame.with_columns(pl.Series("group_uid", names, dtype=pl.String))

    def _number_rollouts(self) -> None:
        """rollout_idx from text such as ``uid_2``: the number at its end."""
        if "rollout_idx" not in self.frame.columns:
            self.summary.note("Responses were numbered in the order of their rows.")
        if self.frame.schema.get("rollout_idx") != pl.String:
            return
        number = self.frame["rollout_idx"].str.extract(r"(\d+)$", 1).cast(pl.Int64, strict=False)
        if number.null_count():
            self._fail(
                _first(number.is_null()), "rollout_idx", "it must be, or end in, a whole number"
            )
        self.frame = self.frame.with_columns(rollout_idx=number)

    def _leave_out(self) -> None:
        """Drop what is no number and no canonical column, and say so."""
        schema, mapped = self.frame.schema, self.options.columns
        texts = [
            n
            for n, dtype in schema.items()
            if n not in COLUMNS and n not in IMPORT_ONLY and not _numeric(dtype)
        ]
        # A verifier's or trainer's mean may go by the name of a list.
        means = [n for n in TOKEN_COLUMNS if n not in mapped and _numeric(schema.get(n))]
        if texts:
            self.summary.note(f"Left out, as they hold no numbers: {', '.join(texts)}.")
        if means:
            self.summary.note(
                f"Left out, as they hold one number a row and not a list: {', '.join(means)}."
            )
        self.frame = self.frame.drop(*texts, *means)

    def _flatten_text(self) -> None:
        """Chats become JSON text where text is stored; a response's length needs real text."""
        for name in ("prompt", "response"):
            dtype = self.frame.schema.get(name)
            if dtype is None or not dtype.is_nested():
                continue
            if not self.options.keep_text and name not in self.options.columns:
                self.frame = self.frame.drop(name)
            elif name == "prompt":
                rows = [None if v is None else json.dumps(v) for v in self.frame[name].to_list()]
                self.frame = self.frame.with_columns(pl.Series(name, rows, dtype=pl.String))

    def _cast(self, name: str, target: Any = None) -> None:
        series = self.frame[name]
        kind = COLUMNS[name].kind if name in COLUMNS else "int"
        if target is None:
            target = dtype_of(name) if name in COLUMNS else pl.Int64
            if name == "response_mask":
                target = pl.List(pl.Int64)
            if name == "mini_batch" and not isinstance(series.dtype, pl.List):
                target = pl.Int64
        if series.dtype in (target, pl.Null):
            self.frame = self.frame.with_columns(series.cast(target))
            return
        valued = _first(series.is_not_null())
        needs_list, is_list = isinstance(target, pl.List), isinstance(series.dtype, pl.List)
        if needs_list != is_list or series.dtype in (pl.Struct, pl.Object):
            what = "a list with one value a token" if needs_list else "one value a row"
            self._fail(valued, name, f"it must be {what}")
        if kind != "str" and _inner(series.dtype).is_temporal():
            self._fail(valued, name, f"it must be {kind}, no time")
        try:
            cast = series.cast(target, strict=False)
        except pl.exceptions.PolarsError:
            self._fail(valued, name, f"it must be {kind}")
            return
        if is_list:
            gaps = pl.element().is_null()
            lost = cast.list.eval(gaps).list.sum() > series.list.eval(gaps).list.sum()
        else:
            lost = cast.is_null() & series.is_not_null()
        if kind == "int" and _numeric(_inner(series.dtype)):
            lost |= (cast.cast(series.dtype) != series).fill_null(False)
        if lost.any():
            self._fail(_first(lost), name, f"it must be {kind}")
        self.frame = self.frame.with_columns(cast.alias(name))

    def _check_values(self) -> None:
        columns = self.frame.columns
        if self.options.nan_reward == "fail":
            self._refuse(
                "reward",
                ~self.frame["reward"].is_finite(),
                "give it a finite reward, or choose --nan-reward drop-response or drop-group",
            )
        remedy = "give a finite one, or leave the column out: rewards say what it was"
        for name in (n for n in ("reward", "task_reward", "advantage") if n in columns):
            values = self.frame[name]
            beyond = values.is_finite() & (values.abs() > MAX_REWARD)
            self._refuse(name, beyond, f"give one of at most {MAX_REWARD:g} in size")
        if "advantage" in columns:
            self._refuse("advantage", ~self.frame["advantage"].is_finite(), remedy)
        if "advantages" in columns:
            unusable = ~pl.element().is_finite().fill_null(False)
            self._refuse(
                "advantages", self.frame["advantages"].list.eval(unusable).list.any(), remedy
            )
        if "num_tokens" in columns:
            beyond = ~self.frame["num_tokens"].is_between(0, MAX_TOKENS)
            self._refuse("num_tokens", beyond, f"lengths are ≥ 0 and ≤ {MAX_TOKENS}")
        if "domain" in columns:
            self.frame = self.frame.with_columns(pl.col("domain").fill_null(NO_DOMAIN))

    def _list_outputs(self) -> None:
        """Without output_idx every row is a response of one output."""
        schema = self.frame.schema
        if schema.get("mini_batch") == pl.Int64 and "output_idx" not in schema:
            names = {"mini_batch": "mini_batch"}
            if "num_tokens" in schema:
                names["output_tokens"] = "num_tokens"
            self.frame = self.frame.with_columns(
                pl.concat_list(source).alias(name) for name, source in names.items()
            )

    def _refuse(self, name: str, bad: pl.Series, remedy: str) -> None:
        if bad.any():
            self._fail(_first(bad), name, remedy)

    def _fail(self, row: int, column: str, remedy: str, shown: str | None = None) -> None:
        if shown is None:
            value = self.frame[column][row]
            value = value.to_list() if isinstance(value, pl.Series) else value
            shown = "no value" if value is None else repr(value)[:80]
        named = f"column '{self.options.columns.get(column, column)}'"
        if column in self.options.columns:
            named += f" (as {column})"
        place = Chunk(self.chunk.path, self.frame).place(row)
        raise TraceError(f"{place}: {named} holds {shown}; {remedy}")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _first(flags: pl.Series) -> int:
    """Position of the first true flag."""
    return int(flags.fill_null(False).arg_max() or 0)


def _numeric(dtype: Any) -> bool:
    return dtype is not None and (dtype.is_numeric() or dtype == pl.Boolean)


def _inner(dtype: Any) -> Any:
    return dtype.inner if isinstance(dtype, pl.List) else dtype
