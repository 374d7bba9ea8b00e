"""What each column of a table of runs is: method, seed, score, cell, setting."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ...traces.errors import DfsimError, nearest
from ...traces.runs import RUN, label

METHODS = ("method", "strategy", "algorithm", "algo", "config")
SEEDS = ("seed", "random_seed", "run_seed")
SETTINGS = frozenset(
    (
        *("step", "steps", "num_steps", "max_steps", "total_steps", "training_steps"),
        *("global_step", "epoch", "epochs", "num_epochs", "lr", "learning_rate", "warmup"),
        *("warmup_steps", "weight_decay", "batch_size", "train_batch_size", "mini_batch_size"),
        *("ppo_mini_batch_size", "micro_batch_size", "n", "rollout_n", "num_generations"),
        *("group_size", "temperature", "top_p", "top_k", "kl_coef", "kl_loss_coef", "beta"),
        *("clip_ratio", "entropy_coeff", "max_length", "max_response_length", "index", "id"),
        *("max_prompt_length", "response_length", "gpus", "n_gpus", "num_gpus", "nodes", "run_id"),
    )
)
"""Numeric columns that describe a run and are no score."""
TRAINING = frozenset(
    (
        *("train_reward", "reward", "train_loss", "loss", "val_loss", "kl", "entropy", "grad_norm"),
        *("runtime", "runtime_s", "seconds", "wall_s", "hours", "gpu_hours", "tokens"),
        *("num_tokens", "cost"),
    )
)
"""Numeric columns that are a score only if nothing else is."""
_ROW_NUMBER = re.compile(r"_step|_runtime|_timestamp|unnamed: ?\d+|column_\d+|", re.IGNORECASE)
"""W&B's own columns, and an index that pandas wrote without a name."""
_SPREAD = re.compile(r"(.*[\W_])?(std|stddev|stdev|std_?err|sem|ci95)(@\d+)?\W*", re.IGNORECASE)
"""The noise of a score, beside it."""
_WRITTEN = re.compile(r"[-+]?\d[\d.,]*\s*(%|±.*|\(.*\)|\+/-.*)?")
"""A number as people write it."""


@dataclass(frozen=True)
class Roles:
    """What each column is.

    Attributes:
        method: column of the method.
        seed: column of the seed.
        metrics: columns of scores.
        by: columns whose values separate cells.
        settings: other columns that describe a run, to see whether runs of a cell differ in them.
        notes: sentences about what was taken by itself.
    """

    method: str
    seed: str
    metrics: tuple[str, ...]
    by: tuple[str, ...]
    settings: tuple[str, ...]
    notes: tuple[str, ...]


def need(frame: pl.DataFrame, column: str, flag: str) -> str:
    """A column's name.

    Raises:
        DfsimError: the table has no such column (nearest given).
    """
    have = [c for c in frame.columns if c != RUN]
    if column not in have:
        shown = ", ".join(have[:20]) + (" …" if len(have) > 20 else "")
        hint = nearest(column, have) or f"; it has: {shown}"
        raise DfsimError(f"{flag}: the table has no column '{column}'{hint}")
    return column


def key_columns(frame: pl.DataFrame, method: str | None, seed: str | None) -> tuple[str, str]:
    """The columns of method and seed, as named or as usually called.

    Raises:
        DfsimError: there is none (nearest given).
    """
    found = []
    for flag, named, usual in (("--method", method, METHODS), ("--seed", seed, SEEDS)):
        if named is not None:
            found.append(need(frame, named, flag))
            continue
        lower = {c.lower(): c for c in reversed(frame.columns)}
        column = next((lower[n] for n in usual if n in lower), None)
        if column is None:
            have = [c for c in frame.columns if c != RUN]
            shown = ", ".join(have[:20]) + (" …" if len(have) > 20 else "")
            raise DfsimError(
                f"the table has no column '{usual[0]}'{nearest(usual[0], have)}; name the one that "
                f"holds it: {flag} COLUMN; it has: {shown}"
            )
        found.append(column)
    if found[0] == found[1]:
        raise DfsimError(f"--method and --seed are both '{found[0]}'; name two columns")
    return found[0], found[1]


def where(frame: pl.DataFrame, wanted: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Rows whose columns hold one of the values, compared as text.

    Raises:
        DfsimError: no such column or value (nearest given), or no row is left.
    """
    for column, values in wanted.items():
        need(frame, column, f"--where {column}={','.join(values)}")
        texts = pl.Series([label(v) for v in frame[column].to_list()], dtype=pl.String)
        have = sorted(set(texts.to_list()))
        for value in values:
            if value not in have:
                some = ", ".join(f"'{v}'" for v in have[:8]) + (" …" if len(have) > 8 else "")
                close = nearest(value, have)
                raise DfsimError(
                    f"--where {column}={value}: no row left holds that{close}; column '{column}' "
                    f"holds {some}"
                )
        frame = frame.filter(texts.is_in(list(values)))
    return frame


def roles_of(
    frame: pl.DataFrame,
    method: str,
    seed: str,
    metrics: Sequence[str] | None,
    by: Sequence[str] | None,
) -> Roles:
    """Say what each column is; what isn't named is found by name, kind and values.

    Args:
        frame: one row a run, filtered.
        method: column of the method.
        seed: column of the seed.
        metrics: columns of scores; default: every numeric one that is no setting.
        by: columns that separate cells; default: text and truth columns, except those that are
            constant, name each row, or would leave every method alone in its cell.

    Raises:
        DfsimError: an unknown column, one in two roles, no column of scores, or a text among them.
    """
    notes: list[str] = []
    for flag, named in (("--by", by), ("--metrics", metrics)):
        for column in named or ():
            need(frame, column, flag)
            if column in (method, seed) or (flag == "--metrics" and column in (by or ())):
                raise DfsimError(f"{flag}: '{column}' is already the column of something else")
    cells = tuple(by) if by is not None else _cell_columns(frame, method, seed, metrics, notes)
    scores = (
        tuple(dict.fromkeys(metrics))
        if metrics is not None
        else _score_columns(frame, (method, seed, *cells), notes)
    )
    for column in scores:
        _check_scores(frame, column)
    taken = {method, seed, RUN, *cells, *scores}
    settings = tuple(c for c in frame.columns if c not in taken and _describes(frame, c))
    return Roles(method, seed, scores, cells, settings, tuple(notes))


def _is_text(frame: pl.DataFrame, column: str) -> bool:
    return not frame[column].dtype.is_numeric() and not frame[column].dtype.is_nested()


def _names_rows(frame: pl.DataFrame, column: str) -> bool:
    return bool(frame[column].n_unique() == frame.height)


def _describes(frame: pl.DataFrame, column: str) -> bool:
    if _is_text(frame, column):
        return not _names_rows(frame, column)
    return column.lower() in SETTINGS and frame[column].dtype.is_numeric()


def _cell_columns(
    frame: pl.DataFrame,
    method: str,
    seed: str,
    metrics: Sequence[str] | None,
    notes: list[str],
) -> tuple[str, ...]:
    taken = {method, seed, RUN, *(metrics or ())}
    found = []
    for column in frame.columns:
        if column in taken or not _is_text(frame, column) or frame[column].n_unique() == 1:
            continue
        _refuse_spoilt(frame, column)
        if _names_rows(frame, column):
            notes.append(f"Column '{column}' names each row, so it separates nothing.")
            continue
        if frame.group_by(column).agg(pl.col(method).n_unique())[method].max() == 1:
            notes.append(f"Column '{column}' goes with the method, so it separates no cells.")
            continue
        found.append(column)
    if found:
        notes.append(f"Cells are separated by {', '.join(found)}; --by overrides.")
    return tuple(found)


def _refuse_spoilt(frame: pl.DataFrame, column: str) -> None:
    """Refuse text among numbers: a score that can't be read must not become a cell's name."""
    series = frame[column]
    if series.dtype != pl.String:
        return
    number = series.str.strip_chars().cast(pl.Float64, strict=False)
    if 2 * number.is_not_null().sum() < series.is_not_null().sum():
        _refuse_written(frame, column)
        return
    row = int((number.is_null() & series.is_not_null()).arg_max() or 0)
    raise DfsimError(
        f"{frame[RUN][row]}: column '{column}' holds '{series[row]}' among numbers; give a number "
        f"or nothing, or name the columns that separate cells: --by {column}"
    )


def _refuse_written(frame: pl.DataFrame, column: str) -> None:
    """Refuse scores such as ``60.1%``, ``60 ± 1`` or ``1,234.5``: text that hardly repeats."""
    texts = [str(v).strip() for v in frame[column].drop_nulls().to_list()]
    if 2 * len(set(texts)) <= len(texts) or not all(_WRITTEN.fullmatch(t) for t in texts):
        return
    raise DfsimError(
        f"{frame[RUN][0]}: column '{column}' holds '{texts[0]}', which is no plain number; write "
        f"it as 60.1, or name the columns that separate cells: --by {column}"
    )


def _score_columns(frame: pl.DataFrame, taken: Sequence[str], notes: list[str]) -> tuple[str, ...]:
    numeric = [c for c in frame.columns if c not in taken and frame[c].dtype.is_numeric()]
    empty = [c for c in numeric if frame[c].fill_nan(None).null_count() == frame.height]
    known = [c for c in numeric if c.lower() in SETTINGS or _ROW_NUMBER.fullmatch(c)]
    spread = [c for c in numeric if c not in known and _SPREAD.fullmatch(c)]
    scores = [c for c in numeric if c not in (*empty, *known, *spread)]
    training = [c for c in scores if c.lower() in TRAINING]
    if len(training) < len(scores):
        scores = [c for c in scores if c not in training]
    else:
        training = []
    if not scores:
        raise DfsimError(
            "the table has no numeric column of scores; name them: --metrics COLUMN,COLUMN"
        )
    aside = [f"{', '.join(known)} (settings)"] if known else []
    aside += [f"{', '.join(spread)} (spread)"] if spread else []
    aside += [f"{', '.join(training)} (training)"] if training else []
    aside += [f"{', '.join(empty)} (empty)"] if empty else []
    left = f"; not taken: {', '.join(aside)}" if aside else ""
    notes.append(f"Scores: {', '.join(scores)}{left}; --metrics overrides.")
    return tuple(scores)


def _check_scores(frame: pl.DataFrame, column: str) -> None:
    """Refuse what is no score.

    Raises:
        DfsimError: the column is text, or a value is infinite.
    """
    series = frame[column]
    if series.dtype.is_nested():
        raise DfsimError(f"--metrics: column '{column}' holds lists; give one number a row")
    if not series.dtype.is_numeric() and series.dtype != pl.Boolean:
        number = series.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
        row = int((number.is_null() & series.is_not_null()).arg_max() or 0)
        raise DfsimError(
            f"{frame[RUN][row]}: column '{column}' holds '{series[row]}', which is no number; give "
            "one, leave it empty, or leave the column out with --metrics"
        )
    for row, value in enumerate(series.to_list()):
        if isinstance(value, float) and math.isinf(value):
            raise DfsimError(
                f"{frame[RUN][row]}: column '{column}' is infinite; give a number, or nothing"
            )
