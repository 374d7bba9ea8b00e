"""Screening: many strategies replayed over traces, compared, and sorted into a shortlist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from ...strategies.build import AnyStrategy, build
from ...strategies.sample.base import SamplingStrategy
from ...traces.errors import DfsimError, MissingColumnError, TraceError, nearest
from ...traces.ragged import Float
from ...traces.spelling import option
from ...traces.storage.store import as_trace
from ..estimators import CATALOG
from ..estimators.evenness import PHI
from ..estimators.step import BASELINE
from ..mix.screened import screen_sampler
from ..mix.simulate import CLOCKS, Candidates, Clock
from ..replay.loop import replay
from ..result import ReplayResult
from ..stats.ranks import spearman
from ..stats.series import ALPHA, Differences, compare_series
from ..types import Progress
from .agreement import Agreement
from .choice import choose, gap_of
from .front import beaten_by, cost_of, scores
from .result import Difference, RankAgreement, Screened, ScreenResult, TraceScreen
from .shortlist import NO_CHANGE, judge, sentences

if TYPE_CHECKING:
    from ...traces.storage.store import Trace


BY = "effective_batch_low"

ORDERS = tuple(estimator.name for estimator in CATALOG.values() if estimator.better)
"""Estimators that a screen can go by."""


def screen(
    traces: Trace | str | Path | Sequence[Trace | str | Path],
    strategies: Sequence[AnyStrategy | str],
    *,
    by: str = BY,
    baseline: str = BASELINE,
    loss_agg_mode: str | None = None,
    resamples: int = 200,
    seed: int = 0,
    phi: float = PHI,
    candidates: Candidates | str | None = None,
    clocks: Iterable[Clock] | str = CLOCKS,
    progress: Progress | None = None,
) -> ScreenResult:
    """Replay strategies over traces, compare them in pairs, and say which are worth a live run.

    Args:
        traces: one, or several (or their paths) whose orders are then compared.
        strategies: built strategies of any kind, or names; ``none`` is added in front. One that a
            trace can't run is listed with its reason.
        by: the estimator that orders them and that differences and choices rest on.
        baseline: the strategy that differences are taken to.
        loss_agg_mode: verl's loss aggregation; default: each run's own.
        resamples: bootstrap resamples of groups, and of steps.
        seed: of the resampling.
        phi: response share of the noise in ``effective_batch``.
        candidates: where a sampler's draws come from; see :func:`dfsim.replay`.
        clocks: what a reward depends on in a sampler's replay.
        progress: called with (steps done, steps in all) over all traces.

    Returns:
        A verdict and a sentence on every strategy, paired differences, and the shortlist; of a
        sampler how far it steers, against the noise of its own signal.

    Raises:
        TraceError: a file can't be read, or a trace can run none of the strategies.
        StrategyError: a name is unknown, or two strategies share one.
        DfsimError: an unknown estimator, baseline or setting.

    Example:
        >>> result = dfsim.screen("traces/", ["dapo", "diffband"])
        >>> {row.name: row.verdict for row in result.traces[0].rows}
        {'none': 'baseline', 'dapo': 'splits_nothing', 'diffband': 'no_op'}
    """
    given = traces if isinstance(traces, Sequence) and not isinstance(traces, str) else [traces]
    listed = [as_trace(trace) for trace in given]
    if not listed:
        raise DfsimError("no trace is named; give one, or several of different runs")
    if by not in ORDERS:
        have = ", ".join(ORDERS)
        raise DfsimError(
            f"{option('by', by)} orders nothing{nearest(by, ORDERS)}; it takes: {have}"
        )
    built = [build(s) if isinstance(s, str) else s for s in strategies]
    weighing = [s for s in built if not isinstance(s, SamplingStrategy)]
    names = [BASELINE, *(s.name for s in weighing if s.name != BASELINE)]
    if baseline not in names:
        raise DfsimError(
            f"{option('baseline', baseline)} is not among the strategies"
            f"{nearest(baseline, names)}; they are: {', '.join(names)}"
        )
    for trace in listed:
        trace.refuse_evaluation("a screen advises on training")
    for one, other in combinations(listed, 2):
        if one.manifest.fingerprint == other.manifest.fingerprint:
            raise TraceError(f"{one.path} and {other.path} hold the same run; name it once")
    lengths = [len(t.manifest.steps) for t in listed]
    found: list[TraceScreen] = []
    for trace in listed:
        done = sum(lengths[: len(found)])
        runnable, reasons = _runnable(trace, built)
        if baseline in reasons:
            raise TraceError(
                f"{option('baseline', baseline)} can't run: it needs {reasons[baseline]}"
            )
        agreement = Agreement([n for n in names if n not in reasons])
        result = replay(
            trace,
            runnable,
            loss_agg_mode=loss_agg_mode,
            resamples=resamples,
            seed=seed,
            phi=phi,
            candidates=candidates,
            clocks=clocks,
            progress=_shifted(progress, done, sum(lengths)),
            on_decision=agreement.add,
        )
        found.append(
            _screened(result, runnable, reasons, trace.manifest.foreign, agreement, by, baseline)
        )
    return ScreenResult(
        by=by,
        baseline=baseline,
        settings={
            "resamples": resamples,
            "seed": seed,
            "phi": phi,
            "tie_seed": max((s.tie_seed for s in built), default=0),
        },
        traces=found,
        agreement=_rank_agreement(found),
    )


def _shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    return None if progress is None else lambda done, _: progress(before + done, total)


def _runnable(
    trace: Trace, strategies: Sequence[AnyStrategy]
) -> tuple[list[AnyStrategy], dict[str, str]]:
    """Strategies that the trace can run, and what the others need."""
    runnable: list[AnyStrategy] = []
    needs: dict[str, MissingColumnError] = {}
    for strategy in strategies:
        try:
            trace.require(strategy.columns, strategy.name)
            runnable.append(strategy)
        except MissingColumnError as error:
            needs[strategy.name] = error
    if needs and not any(s.name != BASELINE for s in runnable):
        raise next(iter(needs.values()))
    return runnable, {name: error.need for name, error in needs.items()}


def _screened(
    result: ReplayResult,
    strategies: Sequence[AnyStrategy],
    reasons: dict[str, str],
    foreign: bool,
    agreement: Agreement,
    by: str,
    baseline: str,
) -> TraceScreen:
    names = list(result.strategies)
    sign = 1 if CATALOG[by].better == "more" else -1
    series_SK = step_values(result, by)
    differences = compare_series(series_SK)
    steps = sorted(set(result.step_records["step"]))
    series = {name: series_SK[:, k] for k, name in enumerate(names)}
    choices = choose(steps, series, sign, baseline, gap_of(strategies))
    lost = {p for c in choices if c.chosen is not None for p in c.points if p != c.chosen}
    cost = cost_of(result.strategies[BASELINE].estimates)
    criteria = {**_BATCH, cost: -1, "group_bias": -1}
    score_4K = scores(
        *(np.array([s.estimates[n].mean for s in result.strategies.values()]) for n in criteria)
    )
    eligible = np.array([name not in lost or name == baseline for name in names])
    beaten = beaten_by(score_4K, eligible)
    beaten_low = beaten_by(np.delete(score_4K, 1, axis=0), eligible)
    told = {n: differences if n == by else compare_series(step_values(result, n)) for n in criteria}
    value_K = np.array([s.estimates[by].mean for s in result.strategies.values()])
    order = np.argsort(np.where(np.isfinite(value_K), -sign * value_K, np.inf), kind="stable")
    base = names.index(baseline)
    rows = [
        Screened(
            result=result.strategies[names[k]],
            rank=rank,
            beaten_by=_named(names, beaten[k]),
            beaten_low_by=_named(names, beaten_low[k]),
            told_apart=any(
                found.claimed(winner, k, ALPHA / len(criteria)) == criteria[n]
                for c, (n, found) in enumerate(told.items())
                if (winner := beaten[k]) is not None and score_4K[c, winner] > score_4K[c, k] + 1
            ),
            difference=_difference(differences, k, base, names),
        )
        for rank, k in enumerate(order.tolist(), start=1)
    ]
    judged = judge(rows, names, agreement.shares_KK(), choices, by, baseline)
    return TraceScreen(
        replay=result,
        rows=judged,
        differences=differences,
        names=names,
        choices=choices,
        cannot_run=reasons,
        foreign=foreign,
        mixers=[
            screen_sampler(one, result.settings["resamples"], result.settings["seed"])
            for one in result.mixers.values()
        ],
        shortlist=sentences(judged, differences, choices, by, baseline),
        by=by,
        baseline=baseline,
    )


def _named(names: Sequence[str], k: int | None) -> str | None:
    return None if k is None else names[k]


_BATCH = {"effective_batch_low": 1, "effective_batch_high": 1}


def step_values(result: ReplayResult, estimator: str) -> Float:
    """An estimator's value at each step (S) and strategy (K), over all domains."""
    names = list(result.strategies)
    scopes = 1 + len(result.trace["domains"])
    values = np.array(result.step_records[estimator], dtype=np.float64)
    return values.reshape(-1, scopes, len(names))[:, 0]


def _difference(found: Differences, k: int, base: int, names: Sequence[str]) -> Difference:
    return Difference(
        mean=float(found.mean_KK[k, base]) + 0.0,
        low=float(found.low_KK[k, base]),
        high=float(found.high_KK[k, base]),
        p_adjusted=float(found.p_KK[k, base]),
        claimed=found.claimed(k, base),
        above=[n for j, n in enumerate(names) if found.claimed(k, j) > 0],
        below=[n for j, n in enumerate(names) if found.claimed(k, j) < 0],
    )


def _rank_agreement(traces: Sequence[TraceScreen]) -> list[RankAgreement]:
    """Spearman's rank correlation of every pair of traces over the strategies both ran.

    Strategies that change nothing tie with ``none`` everywhere, so they say nothing about orders.
    """
    found = []
    for one, other in combinations(traces, 2):
        first, second = (
            {
                r.name: r.result.estimates[side.by].mean
                for r in side.rows
                if r.verdict not in NO_CHANGE
            }
            for side in (one, other)
        )
        shared = [
            n
            for n in one.names
            if n in first and n in second and np.isfinite([first[n], second[n]]).all()
        ]
        values = [np.array([side[n] for n in shared]) for side in (first, second)]
        rho, p = _rank_correlation(*values)
        labels = (str(one.replay.trace["path"]), str(other.replay.trace["path"]))
        found.append(RankAgreement(labels, len(shared), rho, p))
    return found


def _rank_correlation(one: Float, other: Float) -> tuple[float, float]:
    """Spearman's, and its two-sided p by permutation: exact for up to seven strategies.

    NaN for fewer than three strategies, and where all are equal on one trace.
    """

    def statistic(values: Float, axis: int) -> Float:
        return spearman(values, np.broadcast_to(other, values.shape))

    if len(one) < 3 or np.isnan(statistic(one[None], -1)).any():
        return np.nan, np.nan
    found = stats.permutation_test(
        (one,), statistic, permutation_type="pairings", vectorized=True, random_state=0
    )
    return float(found.statistic), float(found.pvalue)
