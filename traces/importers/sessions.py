"""Several outputs of one agent-loop session are one response."""

from __future__ import annotations

import polars as pl

from ..errors import TraceError
from ..schema import TOKEN_COLUMNS

_KEY = ["step", "group_uid", "rollout_idx"]


def merge_outputs(frame: pl.DataFrame) -> pl.DataFrame:
    """Merge rows that are outputs of one session: tokens join in output order.

    A session's score is copied to each of its outputs, so reward and advantage must agree.

    Args:
        frame: one row an output, with ``output_idx``; canonical columns.

    Returns:
        One row a response, with ``output_tokens`` (and ``mini_batch``) listing its outputs.

    Raises:
        TraceError: outputs of one session disagree on reward or advantage.
    """
    if "rollout_idx" not in frame.columns:
        raise TraceError("outputs can't be merged without rollout_idx, the index of their session")
    frame = frame.sort(*_KEY, "output_idx")
    repeated = frame.select(*_KEY, "output_idx").is_duplicated()
    if repeated.any():
        row = frame.row(int(repeated.arg_max() or 0), named=True)
        raise TraceError(
            f"group '{row['group_uid']}' rollout_idx={row['rollout_idx']} has output_idx="
            f"{row['output_idx']} twice; drop the copy"
        )
    # An output without a trainable token has no advantage to agree on.
    trained = pl.col("num_tokens") > 0 if "num_tokens" in frame.columns else pl.lit(True)
    if "advantage" in frame.columns:
        _refuse_disagreement(frame.filter(trained), "advantage")
    _refuse_disagreement(frame, "reward")
    lists = [n for n in TOKEN_COLUMNS if n in frame.columns]
    rules = [pl.col(n).list.explode(empty_as_null=False, keep_nulls=False) for n in lists]
    if "num_tokens" in frame.columns:
        rules += [pl.col("num_tokens").alias("output_tokens"), pl.col("num_tokens").sum()]
    if "mini_batch" in frame.columns:
        rules.append(pl.col("mini_batch"))
    if "advantage" in frame.columns:
        own = pl.col("advantage")
        rules.append(pl.coalesce(own.filter(trained).first(), own.first()).alias("advantage"))
    done = {*_KEY, "output_idx", "num_tokens", "mini_batch", "advantage", *lists}
    rules += [pl.col(n).first() for n in frame.columns if n not in done]
    merged = frame.group_by(_KEY, maintain_order=True).agg(rules)
    single = frame.height == merged.height and "mini_batch" not in frame.columns
    return merged.drop("output_tokens", strict=False) if single else merged


def _refuse_disagreement(frame: pl.DataFrame, name: str) -> None:
    spread = frame.group_by(_KEY, maintain_order=True).agg(
        (pl.col(name).max() - pl.col(name).min()).alias("spread")
    )
    bad = spread.filter(pl.col("spread") > 1e-6)
    if bad.height:
        row = bad.row(0, named=True)
        raise TraceError(
            f"the outputs of group '{row['group_uid']}' rollout_idx={row['rollout_idx']} differ in "
            f"{name} by {row['spread']:g}; a session has one {name}, copied to its outputs"
        )
