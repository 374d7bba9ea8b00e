"""One cell: every method against the baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...traces.ragged import Float
from ..stats.bootstrap import bootstrap, interquartile_mean, probability_of_improvement
from ..stats.intervals import mean_of
from ..stats.paired import adjusted, equivalence_p, paired_t, sign_flips, steps_of
from ..stats.power import detectable_range, needed_range, spread_range
from ..stats.ranks import MIN_METHODS, RankStability, leave_one_out, rank_stability
from .cells import Cell, capped
from .overall import Overall, overall_weights, rank_pairs
from .result import CellResult, Comparison, MethodResult, Precision

IF_NORMAL = "if differences are normal"


@dataclass(frozen=True)
class Standard:
    """What runs are judged by.

    Attributes:
        margin: differences up to this count as none, in the score's units; ``None`` if not known.
        alpha: level of tests; intervals cover 1 − alpha.
        power: asked for.
        resamples: of the bootstrap.
        rng_seed: of everything random; each cell starts from it anew.
    """

    margin: float | None
    alpha: float
    power: float
    resamples: int
    rng_seed: int


def judge(cell: Cell, baseline: str | None, overall: Overall, by: Standard) -> CellResult:
    """Compare the methods of a cell with its baseline, without sentences.

    A method is ``above`` or ``below`` if Holm's p over the cell's methods is at most alpha on the
    paired t-test of the overall score, with the reason "if differences are normal" where its own
    sign-flip p is not; ``equivalent`` if Holm's p of the equivalence test is; else ``open``. Where
    all differences of a method are equal its sign-flip p takes the place of t's.

    Args:
        cell: runs.
        baseline: a method of the cell, or ``None``: then only means are given.
        overall: how scores become one.
        by: level, margin, power.
    """
    weight_M = overall_weights(cell.metrics, overall.domains)
    overall_SK = _weighted(cell.score_SKM, weight_M)
    result = CellResult(
        name=cell.name,
        baseline=baseline,
        seeds=cell.seeds,
        metrics=cell.metrics,
        weights=dict(zip(cell.metrics, weight_M.tolist(), strict=True)),
        methods=_methods(cell, overall_SK),
        comparisons=(),
        ranks=(),
        precision=None,
        reference=(
            None
            if cell.reference_M is None
            else dict(zip(cell.metrics, cell.reference_M.tolist(), strict=True))
        ),
        cautions=cell.cautions,
    )
    if baseline is not None:
        result = _against(result, cell, overall_SK, baseline, by)
    ranks, left_out = _ranks(cell, weight_M, overall, np.random.default_rng((by.rng_seed, 1)))
    order = sorted(result.methods, key=lambda m: (m.name != baseline, -_finite(m.mean), m.name))
    return replace(result, methods=order, ranks=ranks, cautions=[*result.cautions, *left_out])


def _finite(value: float) -> float:
    return value if np.isfinite(value) else -np.inf


def _weighted(score_SKM: Float, weight_M: Float) -> Float:
    """Overall score of each run; NaN where a benchmark that counts is missing."""
    used_M = weight_M > 0
    return np.asarray(score_SKM[..., used_M] @ weight_M[used_M])


def _methods(cell: Cell, overall_SK: Float) -> list[MethodResult]:
    mean_KM, mean_K = mean_of(cell.score_SKM), mean_of(overall_SK)
    return [
        MethodResult(
            name,
            int(cell.ran_SK[:, k].sum()),
            float(mean_K[k]),
            dict(zip(cell.metrics, mean_KM[k].tolist(), strict=True)),
        )
        for k, name in enumerate(cell.methods)
    ]


def _against(
    result: CellResult, cell: Cell, overall_SK: Float, baseline: str, by: Standard
) -> CellResult:
    base = cell.methods.index(baseline)
    others = [k for k in range(len(cell.methods)) if k != base]
    d_SKM = cell.score_SKM[:, others] - cell.score_SKM[:, [base]]
    d_SK = overall_SK[:, others] - overall_SK[:, [base]]
    seeds, methods = d_SK.shape
    d_SF = np.concatenate([d_SK, d_SKM.reshape(seeds, -1)], axis=1)
    rng = np.random.default_rng((by.rng_seed, 0))
    boot = bootstrap(d_SF, d_SKM, by.alpha, by.resamples, rng)
    names = [cell.methods[k] for k in others]
    labels = [(n, None) for n in names]
    labels_FM = [(n, m) for n in names for m in cell.metrics]
    step_K = np.repeat(steps_of(overall_SK.reshape(-1, 1)), methods)
    step_M = steps_of(cell.score_SKM.reshape(-1, len(cell.metrics)))
    tests = Families(by, rng)
    overall = tests.family(labels, d_SK, boot.mean_2F[:, :methods], step_K)
    each = tests.family(
        labels_FM, d_SF[:, methods:], boot.mean_2F[:, methods:], np.tile(step_M, methods)
    )
    iqm_K, improve_K = interquartile_mean(d_SKM), probability_of_improvement(d_SKM)
    found = {m.name: m for m in result.methods}
    found[baseline] = replace(found[baseline], verdict="baseline")
    for k, comparison in enumerate(overall):
        name = names[k]
        pooled = replace(
            found[name],
            iqm=float(iqm_K[k]),
            iqm_low=float(boot.iqm_2K[0, k]),
            iqm_high=float(boot.iqm_2K[1, k]),
            improve=float(improve_K[k]),
            improve_low=float(boot.improve_2K[0, k]),
            improve_high=float(boot.improve_2K[1, k]),
        )
        found[name] = _judged(pooled, comparison, cell, baseline, by)
    return replace(
        result,
        methods=list(found.values()),
        comparisons=[c for c in each if c.seeds],
        precision=_precision(overall, by),
        cautions=[*result.cautions, *_unpaired(cell, baseline), *_equal(overall)],
    )


@dataclass(frozen=True)
class Families:
    """Tests of families of differences."""

    by: Standard
    rng: np.random.Generator

    def family(
        self,
        labels: Sequence[tuple[str, str | None]],
        d_SF: Float,
        boot_2F: Float,
        step_F: Float,
    ) -> list[Comparison]:
        """Tests of differences (S, F) that are corrected together.

        Args:
            labels: method and metric of each.
            d_SF: differences.
            boot_2F: their bootstrap intervals.
            step_F: steps of the scores.
        """
        t = paired_t(d_SF, self.by.alpha, step_F)
        flips = sign_flips(d_SF, self.rng)
        equal_F = (t.n_F > 1) & (t.std_F == 0)
        p_F = np.where(equal_F, flips.p_F, t.p_F)
        margin = self.by.margin
        within_F = np.full(p_F.shape, np.nan) if margin is None else equivalence_p(t, margin)
        columns = {
            "difference": t.mean_F,
            "std": t.std_F,
            "low": t.low_F,
            "high": t.high_F,
            "boot_low": boot_2F[0],
            "boot_high": boot_2F[1],
            "p": p_F,
            "p_holm": adjusted(p_F, "holm"),
            "p_bh": adjusted(p_F, "bh"),
            "p_sign_flip": flips.p_F,
            "p_sign_flip_min": flips.smallest_F,
            "p_max_t": flips.max_t_p_F,
            "p_equivalence": within_F,
            "p_equivalence_holm": adjusted(within_F, "holm"),
        }
        return [
            Comparison(
                method=method,
                metric=metric,
                seeds=int(t.n_F[i]),
                test="sign-flip" if equal_F[i] else "t",
                **{name: float(values[i]) for name, values in columns.items()},
            )
            for i, (method, metric) in enumerate(labels)
        ]


def _judged(
    method: MethodResult, c: Comparison, cell: Cell, baseline: str, by: Standard
) -> MethodResult:
    if not c.seeds:
        k, base = cell.methods.index(method.name), cell.methods.index(baseline)
        shared = (cell.ran_SK[:, k] & cell.ran_SK[:, base]).any()
        lack = " has every score" if shared else ""
        return replace(method, reason=f"no seed in common with {baseline}{lack}")
    spread = spread_range(c.std, c.seeds - 1)
    verdict: str = "open"
    reason: str | None = None
    if c.seeds < 2:
        reason = "one pair: no interval, no test"
    elif c.p_holm <= by.alpha:
        verdict = "above" if c.difference > 0 else "below"
        if c.p_sign_flip > by.alpha:
            reason = IF_NORMAL
    elif c.p_equivalence_holm <= by.alpha:
        verdict = "equivalent"
    elif c.test == "sign-flip":
        reason = "all differences are equal"
    return replace(
        method,
        overall=c,
        detectable=detectable_range(spread, c.seeds, by.alpha, by.power),
        seeds_needed=(
            None if by.margin is None else needed_range(spread, by.margin, by.alpha, by.power)
        ),
        verdict=verdict,
        reason=reason,
    )


def _precision(overall: Sequence[Comparison], by: Standard) -> Precision | None:
    paired = [c for c in overall if c.seeds > 1]
    if not paired:
        return None
    counts = Counter(c.seeds for c in paired)
    seeds = min(counts, key=lambda n: (-counts[n], n))
    std = spread_range(float(np.sqrt(np.mean([c.std**2 for c in paired]))), seeds - 1)
    step = by.alpha / len(paired)
    return Precision(
        seeds,
        std,
        detectable_range(std, seeds, by.alpha, by.power),
        detectable_range(std, seeds, step, by.power),
        None if by.margin is None else needed_range(std, by.margin, by.alpha, by.power),
    )


def _equal(overall: Sequence[Comparison]) -> list[str]:
    """A sentence on methods whose differences are all equal."""
    names = [c.method for c in overall if c.test == "sign-flip"]
    if not names:
        return []
    return [
        f"Equal differences at every seed, so that t has no spread, and p is the sign-flip's: "
        f"{capped(names)}."
    ]


def _unpaired(cell: Cell, baseline: str) -> list[str]:
    """Sentences on methods that lack seeds of the baseline, or have others."""
    base_S = cell.ran_SK[:, cell.methods.index(baseline)]
    lacking = []
    for k, name in enumerate(cell.methods):
        gone = [s for s, b, r in zip(cell.seeds, base_S, cell.ran_SK[:, k], strict=True) if b != r]
        if gone:
            common = int((base_S & cell.ran_SK[:, k]).sum())
            lacking.append(f"{name} ({common} in common, not {capped(gone)})")
    if not lacking:
        return []
    return [f"Not the same seeds as {baseline}, paired on the common ones: {capped(lacking)}."]


def _ranks(
    cell: Cell, weight_M: Float, overall: Overall, rng: np.random.Generator
) -> tuple[list[RankStability], list[str]]:
    """Rank stability over complete blocks, and why there is none."""
    complete_SK = np.asarray(np.isfinite(cell.score_SKM).all(axis=2))
    kept_K = np.asarray(complete_SK.any(axis=0))
    seeds_S = np.asarray(complete_SK[:, kept_K].all(axis=1))
    pairs = rank_pairs(cell.metrics, overall)
    counted = int(np.count_nonzero(weight_M))
    if len(cell.methods) < MIN_METHODS or (not pairs and counted < 3):
        return [], []
    if kept_K.sum() < MIN_METHODS or seeds_S.sum() < 2:  # permuting one seed changes nothing
        return [], [
            "No rank stability: it takes two seeds that have every score of all methods (of three "
            "at least) that have a complete run."
        ]
    score_SKM = cell.score_SKM[np.ix_(seeds_S, kept_K)]
    left_out = [m for m, kept in zip(cell.methods, kept_K, strict=True) if not kept]
    said = [f"Without a complete run, so not ranked: {capped(left_out)}."] if left_out else []
    if pairs:
        return rank_stability(score_SKM, pairs, rng), said
    return [leave_one_out(score_SKM, weight_M, cell.metrics, rng)], said
