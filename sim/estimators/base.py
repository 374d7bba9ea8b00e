"""What an estimator is: per-group parts that add up, and a value computed from their sums.

Because every estimator is a function of sums over groups, the same function gives the step's value,
a domain's value (sum over its groups) and each bootstrap resample (weighted sum over groups).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...traces.ragged import Float, ratio
from .terms import Weighted

Needs = Literal["lengths", "log_probs", "loss_scale_factor"]

MISSING: dict[Needs, str] = {
    "lengths": "the trace has no response lengths: import with --map num_tokens=COLUMN, "
    "--tokenizer FILE or --length chars",
    "log_probs": "the trace has no old_log_probs: capture token lists, or import with "
    "--map old_log_probs=COLUMN",
    "loss_scale_factor": "verl's loss_scale_factor is unset: it then divides by each micro-batch's "
    "padded width, which a trace does not hold; choose another --loss-agg-mode, or import with "
    "--set loss_scale_factor=VALUE",
}

LENGTHS: tuple[Needs, ...] = ("lengths",)
LOSS: tuple[Needs, ...] = ("loss_scale_factor",)
LOSS_AND_LOG_PROBS: tuple[Needs, ...] = ("log_probs", "loss_scale_factor")


@dataclass(frozen=True, eq=False)
class Part:
    """A quantity per group (G) that sums over groups.

    Attributes:
        of: computes it (K, G) from the sums of K decisions.
        baseline: evaluated on uniform weights instead of the decision's.
        largest: groups combine by their maximum, not their sum.
        across: domains combine as the root of their sums' squares: quantities along directions
            that differ from domain to domain. Inside a domain groups sum up as ever.
    """

    of: Callable[[Weighted], Any]
    baseline: bool = False
    largest: bool = False
    across: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimator:
    """One reported number.

    Attributes:
        name: as in every table and file.
        unit: what it counts.
        formula: how it is computed; symbols as in ``docs/numbers.md``.
        help: what it says, in a sentence or two.
        heading: of its column in tables of strategies; empty where they do not show it.
        parts: summands per group.
        value: sums of the parts, each of one shape, → value of that shape; NaN = not estimable.
        needs: what it can't be computed without, keys of ``MISSING``.
        nan_reason: why it may be NaN although the columns are there.
        run: how steps combine: their ``mean``, ``pooled`` sums, or ``cv`` (standard deviation over
            mean of the step values).
        interval: why the group bootstrap gives none, or an empty string.
        domain_parts: parts to use inside one domain where they differ.
        better: whether ``more`` or ``less`` of it orders strategies; ``None``: it orders nothing.
        headline: whether a live run logs it every step, and a verification shows it.
        grows: whether it grows with the groups of a step.
    """

    name: str
    unit: str
    formula: str
    help: str
    heading: str = ""
    parts: tuple[Part, ...]
    value: Callable[..., Any]
    needs: tuple[Needs, ...] = ()
    nan_reason: str = ""
    run: Literal["mean", "pooled", "cv"] = "mean"
    interval: str = ""
    domain_parts: tuple[Part, ...] | None = None
    better: Literal["more", "less"] | None = None
    headline: bool = False
    grows: bool = False


def kish(total: Any, squares: Any) -> Float:
    """Kish size (Σx)²/Σx² (Kish 1965); 0 where all x are 0."""
    size = ratio(np.square(total), squares)
    return np.where(np.asarray(squares) == 0, 0.0, size)


def ones(w: Weighted) -> Float:
    """1 per group."""
    return np.ones((1, w.terms.batch.num_groups))


GROUPS = Part(ones, baseline=True)
RESPONSES = Part(lambda w: w.terms.batch.group_size_G[None].astype(np.float64), baseline=True)
TOKENS = Part(lambda w: w.group_sum(w.terms.tokens_N[None].astype(np.float64)), baseline=True)
LIVE = Part(lambda w: w.terms.live_G[None].astype(np.float64), baseline=True)
SIGNAL = Part(lambda w: w.signal_KG)
SIGNAL_NONE = Part(lambda w: w.signal_KG, baseline=True)
SIGNAL_GROUPS = Part(lambda w: w.signal_group_KG.astype(np.float64))
