"""Stored advantages held against rewards and groups, by a test that assumes no estimator.

Inside a group every estimator that compares responses of one prompt gives an advantage that is
linear in the reward and has mean 0: A = b·(r − m). Where that holds, b tells which estimator it
was; where it does not, the way in which it fails tells the cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..advantage import AdvantageConfig, advantage_scales, live_groups
from ..findings import Finding, counted
from ..ragged import Bool, Float, Int, offsets_of, ratio, segment_max, segment_sum
from ..spelling import option

TOLERANCE = 0.01
"""Of a group's largest |A|: how far its advantages may lie from linear, from mean 0, and from an
estimator's scale. Logs are often rounded, and bfloat16 holds two to three digits."""
NEARLY_ALL = 0.99
"""Share of the groups in which a rule must hold to be the run's: the last group may be cut off."""
UNRELATED = 0.5
"""A mean correlation of reward and advantage inside groups below this is another quantity's."""
ZERO = 1e-6
"""An advantage is 0 up to this share of the largest reward in size: floats leave residue."""
MAX_DRAWS = 8

CANDIDATES = (
    *(AdvantageConfig("grpo", eps, ddof) for ddof in (1, 0) for eps in (1e-6, 1e-4, 1e-8, 1e-5)),
    AdvantageConfig("dr_grpo"),
    AdvantageConfig("rloo"),
    *(AdvantageConfig("grpo_batch", eps, ddof) for ddof in (1, 0) for eps in (1e-4, 1e-6, 1e-8)),
)
"""Estimators that are looked for."""

Verdict = Literal["untold", "zero", "fits", "scaled", "mismatch"]
Cause = Literal["reward_column", "groups", "estimator"]


@dataclass(frozen=True, eq=False)
class GroupTest:
    """The test of every group of one step (G).

    Attributes:
        live_G: rewards differ.
        zero_G: live, and every advantage is 0.
        linear_G: live, not zero, and A is linear in r.
        centred_G: live, not zero, and A has mean 0.
        unequal_G: live, and two equal rewards have different advantages.
        dead_moved_G: of two or more, rewards equal, and an advantage is not 0.
        slope_G: b; NaN where not live.
        correlation_G: of r and A; NaN where not live, or all A are equal.
    """

    live_G: Bool
    zero_G: Bool
    linear_G: Bool
    centred_G: Bool
    unequal_G: Bool
    dead_moved_G: Bool
    slope_G: Float
    correlation_G: Float

    @property
    def fits_G(self) -> Bool:
        """Live groups whose advantages can stem from their rewards."""
        return self.linear_G & self.centred_G & (self.slope_G > 0)

    @property
    def broken_G(self) -> Bool:
        """Groups that contradict their rewards."""
        return (self.live_G & ~self.zero_G & ~self.fits_G) | self.dead_moved_G


def check_groups(reward_N: Float, advantage_N: Float, group_offsets: Int) -> GroupTest:
    """Test every group; a row whose reward is NaN takes no part.

    Args:
        reward_N: rewards (N), rows of a group contiguous.
        advantage_N: stored advantages.
        group_offsets: cuts (G+1).
    """
    known = ~np.isnan(reward_N)
    if not known.all():
        kept = np.concatenate(([0], np.cumsum(known)))[group_offsets].astype(np.int64)
        return check_groups(reward_N[known], advantage_N[known], kept)
    sizes = np.diff(group_offsets)
    group_N = np.repeat(np.arange(len(sizes)), sizes)
    live = live_groups(reward_N, group_offsets)
    size = segment_max(np.abs(reward_N), group_offsets)
    largest = segment_max(np.abs(advantage_N), group_offsets)
    zero = live & (largest <= ZERO * np.maximum(size, 1.0))
    mean_r = ratio(segment_sum(reward_N, group_offsets), sizes)
    mean_a = ratio(segment_sum(advantage_N, group_offsets), sizes)
    d, e = reward_N - mean_r[group_N], advantage_N - mean_a[group_N]
    dd, de, ee = (segment_sum(x, group_offsets) for x in (d * d, d * e, e * e))
    slope = np.where(live, ratio(de, dd), np.nan)
    off = segment_max(np.abs(e - np.where(live, slope, 0.0)[group_N] * d), group_offsets)
    tested = live & ~zero
    typical = np.median(largest[tested]) if tested.any() else 0.0
    return GroupTest(
        live_G=live,
        zero_G=zero,
        linear_G=tested & (off <= TOLERANCE * largest),
        centred_G=tested & (np.abs(mean_a) <= TOLERANCE * largest),
        unequal_G=tested & _equal_rewards_differ(reward_N, advantage_N, group_N, largest),
        dead_moved_G=~live & (sizes > 1) & (largest > max(TOLERANCE * typical, 1e-3)),
        slope_G=slope,
        correlation_G=np.where(live, ratio(de, np.sqrt(dd * ee)), np.nan),
    )


def _equal_rewards_differ(
    reward_N: Float, advantage_N: Float, group_N: Int, largest_G: Float
) -> Bool:
    order = np.lexsort((advantage_N, reward_N, group_N))
    r, a, g = reward_N[order], advantage_N[order], group_N[order]
    same = (r[1:] == r[:-1]) & (g[1:] == g[:-1])
    jumps = same & (a[1:] - a[:-1] > TOLERANCE * largest_G[g[1:]])
    return np.bincount(g[1:][jumps], minlength=len(largest_G)) > 0


def count_draws(reward_N: Float, advantage_N: Float) -> int:
    """How many draws of one prompt the rows of a group are, as their advantages say.

    Equal blocks of two rows or more, in the order of the rows, of which none contradicts its
    rewards, where the group as a whole does.

    Returns:
        The smallest number of blocks that fits; 1 where the group is whole, or nothing fits.
    """
    count = len(reward_N)
    for draws in range(1, min(MAX_DRAWS, count // 2) + 1):
        if count % draws:
            continue
        cuts = offsets_of(np.full(draws, count // draws))
        if not check_groups(reward_N, advantage_N, cuts).broken_G.any():
            return draws
    return 1


@dataclass(frozen=True)
class AdvantageReport:
    """What stored advantages say of a run.

    Attributes:
        verdict: ``untold``: no live group; ``zero``: all advantages of live groups are 0; ``fits``:
            those of ``config``; ``scaled``: linear with mean 0, by a scale of no known estimator;
            ``mismatch``: rewards and advantages do not belong together.
        config: the estimator that fits, or ``None``.
        live: live groups tested.
        zero: live groups whose advantages are all 0.
        broken: groups, live or not, that contradict their rewards.
        linear: share of the tested live groups in which A is linear in r.
        centred: share in which it has mean 0.
        unequal: share in which equal rewards have different advantages.
        correlation: mean correlation of reward and advantage inside a group.
        error: largest relative error of the estimator's scale; NaN without one.
        explained_by: another numeric column that A is linear in, or ``None``.
        cause: of a mismatch, as far as the figures tell it.
    """

    verdict: Verdict
    config: AdvantageConfig | None
    live: int
    zero: int
    broken: int
    linear: float
    centred: float
    unequal: float
    correlation: float
    error: float
    explained_by: str | None
    cause: Cause | None

    @property
    def belongs(self) -> bool:
        """Whether rewards, groups and advantages belong together."""
        return self.verdict in ("fits", "scaled")


@dataclass
class AdvantageCheck:
    """Adds up the tests of a run's steps.

    Args:
        preferred: the estimator that the run's settings name; taken where it fits as well as any.
    """

    preferred: AdvantageConfig | None = None
    live: int = 0
    zero: int = 0
    broken: int = 0
    _linear: int = 0
    _centred: int = 0
    _unequal: int = 0
    _fitting: int = 0
    _correlated: int = 0
    _correlation: float = 0.0
    _error: dict[AdvantageConfig, float] = field(default_factory=dict)
    _columns: dict[str, list[int]] = field(default_factory=dict)

    def add(
        self,
        reward_N: Float,
        advantage_N: Float,
        group_offsets: Int,
        others: Mapping[str, Float] | None = None,
    ) -> GroupTest:
        """Test one step.

        Args:
            reward_N: rewards (N), rows of a group contiguous.
            advantage_N: stored advantages.
            group_offsets: cuts (G+1).
            others: numeric columns (N) that might be the reward instead.
        """
        test = check_groups(reward_N, advantage_N, group_offsets)
        self.live += int(test.live_G.sum())
        self.zero += int(test.zero_G.sum())
        self.broken += int(test.broken_G.sum())
        self._linear += int(test.linear_G.sum())
        self._centred += int(test.centred_G.sum())
        self._unequal += int(test.unequal_G.sum())
        self._fitting += int(test.fits_G.sum())
        told = np.isfinite(test.correlation_G) & ~test.zero_G
        self._correlated += int(told.sum())
        self._correlation += float(test.correlation_G[told].sum())
        self._add_scales(reward_N, group_offsets, test)
        for name, values in (others or {}).items():
            other = check_groups(values, advantage_N, group_offsets)
            counts = self._columns.setdefault(name, [0, 0])
            counts[0] += int(other.fits_G.sum())
            counts[1] += int(other.broken_G.sum())
        return test

    def _add_scales(self, reward_N: Float, group_offsets: Int, test: GroupTest) -> None:
        fits = test.fits_G
        if not fits.any():
            return
        known = ~np.isnan(reward_N)
        kept = np.concatenate(([0], np.cumsum(known)))[group_offsets].astype(np.int64)
        reward_N = reward_N[known]
        sizes = np.diff(kept)
        mean = ratio(segment_sum(reward_N, kept), sizes)
        centred = reward_N - np.repeat(mean, sizes)
        for config in dict.fromkeys((*CANDIDATES, *([self.preferred] if self.preferred else []))):
            scale = advantage_scales(reward_N, centred, kept, config)
            error = np.abs(test.slope_G[fits] / scale[fits] - 1).max()
            self._error[config] = max(self._error.get(config, 0.0), float(error))

    @property
    def tested(self) -> int:
        """Live groups that have an advantage."""
        return self.live - self.zero

    def report(self) -> AdvantageReport:
        """What all steps together say."""
        config, error = self._best()
        tested = max(self.tested, 1)
        correlation = self._correlation / self._correlated if self._correlated else np.nan
        explained = next(
            (n for n, (fits, broken) in self._columns.items() if fits and not broken), None
        )
        verdict: Verdict = "mismatch"
        if not self.live and not self.broken:
            verdict = "untold"
        elif self.live and self.zero == self.live:
            verdict = "zero"
        elif self._fitting >= NEARLY_ALL * tested and self.broken <= (1 - NEARLY_ALL) * tested:
            verdict = "scaled" if config is None else "fits"
        return AdvantageReport(
            verdict=verdict,
            config=config if verdict == "fits" else None,
            live=self.live,
            zero=self.zero,
            broken=self.broken,
            linear=self._linear / tested,
            centred=self._centred / tested,
            unequal=self._unequal / tested,
            correlation=float(correlation),
            error=error if verdict == "fits" else np.nan,
            explained_by=explained if verdict == "mismatch" else None,
            cause=self._cause(correlation, explained) if verdict == "mismatch" else None,
        )

    def _best(self) -> tuple[AdvantageConfig | None, float]:
        """The estimator whose scale errs least; the preferred one where it errs hardly more."""
        if not self._error:
            return None, np.nan
        best = min(self._error, key=lambda c: self._error[c])
        own = self.preferred
        if own is not None and self._error[own] <= max(2 * self._error[best], 1e-4):
            best = own
        error = self._error[best]
        return (best, error) if error <= TOLERANCE else (None, np.nan)

    def _cause(self, correlation: float, explained: str | None) -> Cause:
        if explained is not None or not correlation >= UNRELATED:
            return "reward_column"
        if self._unequal + self.broken and self._linear < NEARLY_ALL * max(self.tested, 1):
            return "groups" if 2 * self._unequal > self.tested - self._linear else "reward_column"
        return "estimator"


def contradictions(report: AdvantageReport | None, named: str | None) -> Iterator[Finding]:
    """What stored advantages say that a user must hear.

    Args:
        report: of the check, or ``None`` where there was nothing to check.
        named: the estimator that the run's settings name, or ``None``.
    """
    if report is None:
        return
    figures = {k: v for k, v in vars(report).items() if k != "config"}
    own = None if report.config is None else report.config.adv_estimator
    said = list(sentences(report))
    if report.verdict == "mismatch":
        yield Finding("advantage_mismatch", said[-1], figures)
    if report.zero:
        yield Finding("advantages_zero", said[0], figures)
    if own is not None and named not in (None, own):
        yield Finding(
            "estimator_differs",
            f"The settings name {named}, the stored advantages are {own}'s: rules that "
            f"re-normalise follow the settings; an import with "
            f"{option('config', own, key='adv_estimator')} follows the run.",
            {**figures, "adv_estimator": own},
        )


def sentences(report: AdvantageReport) -> Iterator[str]:
    """What to tell a user: one line each."""
    if report.zero and report.verdict != "zero":
        yield (
            f"In {report.zero:,} of {report.live:,} groups whose rewards differ, every stored "
            "advantage is 0: nothing was trained there, or the log does not hold the run's own."
        )
    if report.verdict == "zero":
        yield (
            f"Every stored advantage is 0, in all {report.live:,} groups whose rewards differ: the "
            f"log does not hold the run's advantages. Import it with "
            f"{option('without', 'advantage')}, and they are recomputed from rewards."
        )
    elif report.verdict == "fits" and report.config is not None:
        yield (
            f"The stored advantages are {report.config.adv_estimator}'s, {report.config.formula}, "
            f"within {max(report.error, 1e-6):.0e} in {counted(report.live, 'group')}."
        )
    elif report.verdict == "scaled":
        yield (
            "The stored advantages are linear in the reward with mean 0 in every group, by a scale "
            "that is none of grpo's, dr_grpo's, rloo's and grpo_batch's: rules that re-normalise "
            "use grpo's."
        )
    elif report.verdict == "mismatch":
        yield _mismatch(report)


def _mismatch(report: AdvantageReport) -> str:
    likely = {
        "reward_column": "a wrong reward column",
        "groups": "merged or split groups",
        "estimator": "another estimator",
        None: "none of them more than another",
    }[report.cause]
    other = ""
    if report.explained_by is not None:
        remedy = option("columns", report.explained_by, key="reward")
        other = f"; column '{report.explained_by}' fits: {remedy}"
    correlation = "–" if np.isnan(report.correlation) else f"{report.correlation:.2f}"
    return (
        f"Rewards and advantages do not belong together in {counted(report.broken, 'group')} "
        f"({report.live:,} have rewards that differ; there A must be linear in r with mean 0, "
        f"within {TOLERANCE:.0%} of the largest, and 0 elsewhere). Either another estimator "
        f"(linear in {report.linear:.0%}, mean 0 in {report.centred:.0%} of them), or merged or "
        f"split groups (equal rewards with different advantages in {report.unequal:.0%}), or a "
        f"wrong reward column (correlation inside groups {correlation.replace('-', '−')}{other}). "
        f"Most likely {likely}."
    )
