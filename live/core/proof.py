"""Did the weights reach the loss? What the driver expects, against what the loss says it saw.

The loss reports sums over the tokens of its micro-batch. Trainers average metrics over
micro-batches, so sums are compared as ratios to the mask's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...traces.findings import plain
from ...traces.ragged import AnyArray

RATIO_TOL = 1e-5
"""Relative error of a ratio of float32 sums where micro-batches are equal."""


@dataclass(frozen=True)
class Seen:
    """Sums over the step's trained tokens, as the driver expects or the loss reports them."""

    seen: float
    mask: float
    weight: float
    weight_sq: float
    signal: float

    @property
    def ratios(self) -> tuple[float, float, float]:
        """Mean weight, mean squared weight, mean of weight·|advantage|."""
        return self.weight / self.mask, self.weight_sq / self.mask, self.signal / self.mask

    def to_dict(self) -> dict[str, float | None]:
        """As JSON: what is not finite becomes null."""
        return {name: plain(value) for name, value in vars(self).items()}


def expected(
    weight_F: AnyArray, advantage_F: AnyArray, mask_F: AnyArray, mini_batch_F: AnyArray
) -> list[Seen]:
    """What the loss must report for the weights and advantages written to the queue.

    Args:
        weight_F: weights written.
        advantage_F: advantages written.
        mask_F: what the loss trains on.
        mini_batch_F: mini-batch of each token.

    Returns:
        Sums of each mini-batch that trains on something.
    """
    code = mini_batch_F[mask_F]
    weight = weight_F[mask_F].astype(np.float64)
    signal = weight * np.abs(advantage_F[mask_F].astype(np.float64))
    sums = [np.bincount(code, v) for v in (np.ones(len(code)), weight, weight * weight, signal)]
    rows = np.stack(sums, axis=1)
    return [Seen(1.0, *map(float, row)) for row in rows if row[0] > 0]


def whole(parts: Sequence[Seen]) -> Seen:
    """Sums over a step's mini-batches."""
    totals = np.array([[p.mask, p.weight, p.weight_sq, p.signal] for p in parts]).reshape(-1, 4)
    return Seen(1.0, *map(float, totals.sum(axis=0)))


@dataclass(frozen=True)
class Verdict:
    """Whether the weights reached the loss.

    Attributes:
        delivered: 1, 0, or ``None`` where it can't be checked.
        reason: why not, or what differed.
        pg_loss: second witness: ``agrees``, ``differs`` or ``no power``.
    """

    delivered: int | None
    reason: str = ""
    pg_loss: str = "no power"


def judge(want: Sequence[Seen], got: Seen | None, *, dynamic: bool, shuffled: bool) -> Verdict:
    """Compare what was written with what the loss saw.

    A metric is averaged over a mini-batch's micro-batches and then over mini-batches. With equal
    micro-batches the ratios of sums are those of the whole step. Where micro-batches are cut by
    tokens, mini-batches have different numbers of them, and a reported ratio is some average of the
    mini-batches' own: it must lie between their extremes.

    Args:
        want: from :func:`expected`.
        got: what the loss reported, ``None`` where it did not run.
        dynamic: whether micro-batches are cut by tokens.
        shuffled: whether rows are shuffled, so that nobody knows which mini-batch holds what.
    """
    if got is None:
        return Verdict(None, "the policy loss did not run in this step")
    if got.seen < 1:
        return Verdict(0, "the loss got no rollout_is_weights")
    if not want or got.mask == 0:
        return Verdict(None, "no token trains in this step")
    total = whole(want)
    if not np.isfinite([*total.ratios, *got.ratios]).all():
        return Verdict(None, "an advantage or a weight is not finite")
    if dynamic and shuffled:
        return Verdict(
            None, "use_dynamic_bsz with shuffle: only that weights are there can be seen, not which"
        )
    parts = [part.ratios for part in want] if dynamic else [total.ratios]
    names = ("mean weight", "mean squared weight", "mean weight·|advantage|")
    for name, ours, theirs in zip(names, zip(*parts, strict=True), got.ratios, strict=True):
        low, high = min(ours), max(ours)
        tol = RATIO_TOL * max(abs(low), abs(high), abs(theirs), 1e-12)
        if not low - tol <= theirs <= high + tol:
            written = f"{low:.8g}" if low == high else f"between {low:.8g} and {high:.8g}"
            return Verdict(0, f"{name} written {written}, seen by the loss {theirs:.8g}")
    return Verdict(1)


def pg_loss_witness(
    pg_loss: float | None, weighted: float, unweighted: float, tol: float = 1e-6
) -> str:
    """Say whether the logged ``pg_loss`` speaks for the weights.

    At the first update of a step the ratio is 1 and pg_loss is −Σ(w·A)/Σmask. GRPO's advantages
    nearly cancel, so it has power only where weighted and unweighted sums differ clearly.

    Args:
        pg_loss: as logged, or ``None``.
        weighted: −Σ(w·A)/Σmask with the weights written.
        unweighted: the same with weights as they were before.
        tol: what float32 sums may be off by.
    """
    if pg_loss is None or not abs(weighted - unweighted) >= 100 * tol:
        return "no power"
    if abs(pg_loss - weighted) <= 10 * tol + 1e-3 * abs(weighted):
        return "agrees"
    return "differs"


def as_metrics(verdict: Verdict) -> Mapping[str, float]:
    """What goes to the trainer's logger: 1 or 0; nothing where it can't be checked."""
    return {} if verdict.delivered is None else {"dfsim/delivered": float(verdict.delivered)}
