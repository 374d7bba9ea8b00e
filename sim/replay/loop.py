"""The replay loop: every step through every strategy, once, in memory of one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ...strategies.base import Decision, Scores, Strategy
from ...strategies.build import AnyStrategy, build
from ...strategies.sample.base import SamplingStrategy
from ...strategies.signals import SolveRate
from ...traces.advantage import REWARD_TOL, Estimator
from ...traces.batch import RolloutBatch
from ...traces.errors import DfsimError, StrategyError
from ...traces.schema import OUTPUT_COLUMNS, TOKEN_COLUMNS
from ...traces.storage.store import as_trace
from ..estimators import with_phi
from ..estimators.aggregation import LossAggMode, check_mode
from ..estimators.evenness import MODEL_ERROR, PHI
from ..estimators.step import BASELINE, StepSums
from ..mix.log import LogReader
from ..mix.result import play
from ..mix.simulate import CLOCKS, Candidates, Clock, clocks_of
from ..result import ReplayResult
from ..stats.intervals import group_counts
from ..success import Success
from ..types import Progress
from .data_check import COLUMNS as CHECKED
from .data_check import DataCheck
from .run import RunSums

if TYPE_CHECKING:
    from ...traces.storage.store import Trace

OnDecision = Callable[[RolloutBatch, Mapping[str, Decision]], None]

_ALWAYS = ("advantage", "advantages", "domain", "ref_kl", *CHECKED, *OUTPUT_COLUMNS)


def replay(
    trace: Trace | str | Path,
    strategies: Sequence[AnyStrategy | str],
    *,
    loss_agg_mode: str | None = None,
    resamples: int = 200,
    seed: int = 0,
    phi: float = PHI,
    reward_tol: float = REWARD_TOL,
    candidates: Candidates | str | None = None,
    clocks: Iterable[Clock] | str = CLOCKS,
    progress: Progress | None = None,
    on_decision: OnDecision | None = None,
) -> ReplayResult:
    """Replay strategies over a trace.

    Args:
        trace: from :func:`dfsim.open_trace`, or its path.
        strategies: built strategies of any kind, or names; ``none`` is added in front.
        loss_agg_mode: verl's loss aggregation; default: the run's own, else ``token-mean``.
        resamples: bootstrap resamples of groups, and of steps.
        seed: of the resampling.
        phi: response share of the noise in ``effective_batch``.
        reward_tol: rewards closer than this are one value.
        candidates: where a sampler's draws come from, as an object or as text (``sync``,
            ``prompts``, ``oversample=2``); default: drawn before rollout.
        clocks: what a reward depends on in a sampler's replay: ``step``, ``exposure``, or both.
        progress: called with (steps done, steps in all).
        on_decision: called with each batch and its decisions.

    Returns:
        Every estimator of every strategy with its intervals, by domain and phase, and findings; in
        ``mixers`` what each sampler would have asked for and got.

    Raises:
        TraceError: a strategy needs a column that the trace lacks, or a file can't be read.
        StrategyError: a name is unknown, two strategies share one, or a sampler can't start here.
        DfsimError: an unknown clock, kind of candidates or loss aggregation mode, or a setting out
            of range.

    Example:
        >>> result = dfsim.replay("traces/", ["maxvar"])
        >>> round(result.strategies["maxvar"].estimates["kept_frac"].mean, 2)
        0.5
    """
    trace = as_trace(trace)
    _check_settings(resamples, seed, phi, reward_tol)
    mode = check_mode(loss_agg_mode or trace.manifest.config.get("loss_agg_mode") or "token-mean")
    pool, played = Candidates.read(candidates), clocks_of(clocks)
    chosen, samplers = _with_baseline(strategies)
    for strategy in chosen:
        trace.require(strategy.columns, strategy.name)
    reader = LogReader(trace, samplers) if samplers else None
    domains = trace.manifest.domains
    estimators = with_phi(phi)
    steps = len(trace.manifest.steps)
    sums = RunSums(chosen, estimators, domains, steps, resamples)
    check = DataCheck(trace, _successes(chosen))
    for done, batch in enumerate(trace.batches(columns_for(trace, (*chosen, *samplers))), 1):
        scores = Scores(batch)
        decisions = {s.name: s.decide(batch, scores) for s in chosen}
        counts = group_counts(batch.num_groups, resamples, seed, batch.step)
        step = StepSums(batch, decisions, estimators, mode, reward_tol, len(domains))
        sums.add(step, counts)
        check.add(batch)
        if reader is not None:
            reader.add(batch, scores)
        if on_decision is not None:
            on_decision(batch, decisions)
        if progress is not None:
            progress(done, steps)
    return ReplayResult(
        trace=describe(trace),
        loss_agg_mode=mode,
        strategies=sums.results(seed, trace.manifest.config.get("optimizer")),
        findings=check.findings(),
        notes=_notes(trace, chosen, mode, sums),
        step_records=sums.step_records(),
        settings={"resamples": resamples, "seed": seed, "phi": phi, "reward_tol": reward_tol},
        mixers={} if reader is None else play(samplers, reader.log(), pool, played, seed),
    )


def _successes(strategies: Sequence[Strategy]) -> list[Success]:
    """The rules of success that strategies go by, each once."""
    rates = [s.scorer for s in strategies if isinstance(s.scorer, SolveRate)]
    return list(dict.fromkeys(Success(r.success, r.success_threshold) for r in rates))


def each_of(watchers: Sequence[OnDecision]) -> OnDecision:
    """One watcher that calls each in turn."""

    def watch(batch: RolloutBatch, decisions: Mapping[str, Decision]) -> None:
        for watcher in watchers:
            watcher(batch, decisions)

    return watch


def describe(trace: Trace) -> dict[str, Any]:
    """Path, fingerprint and sizes of a trace, as results carry them."""
    return {
        "path": str(trace.path),
        "label": trace.manifest.label,
        "fingerprint": trace.manifest.fingerprint,
        "steps": len(trace.manifest.steps),
        "responses": trace.count("responses"),
        "groups": trace.count("groups"),
        "tokens": trace.count("tokens"),
        "domains": list(trace.manifest.domains),
    }


def _check_settings(resamples: int, seed: int, phi: float, reward_tol: float) -> None:
    if resamples < 2:
        raise DfsimError(f"resamples={resamples} is too few; give at least 2")
    if seed < 0:
        raise DfsimError(f"seed={seed} is not allowed; give a value ≥ 0")
    if not 0 <= phi <= 1:
        raise DfsimError(f"phi={phi} is not allowed; give a value in [0, 1]")
    if not reward_tol >= 0:
        raise DfsimError(f"reward_tol={reward_tol} is not allowed; give a value ≥ 0")


def _with_baseline(
    strategies: Iterable[AnyStrategy | str],
) -> tuple[list[Strategy], list[SamplingStrategy]]:
    """What weighs, the baseline first, and what samples."""
    weighing: list[Strategy] = []
    sampling: list[SamplingStrategy] = []
    names = set()
    for given in strategies:
        strategy = build(given) if isinstance(given, str) else given
        if strategy.name == BASELINE:
            continue
        if strategy.name in names:
            raise StrategyError(f"strategy '{strategy.name}' is given twice; name it once")
        names.add(strategy.name)
        if isinstance(strategy, SamplingStrategy):
            sampling.append(strategy)
        else:
            weighing.append(strategy)
    baseline = build(BASELINE)
    assert isinstance(baseline, Strategy)
    return [baseline, *weighing], sampling


def columns_for(trace: Trace, strategies: Sequence[AnyStrategy]) -> list[str]:
    """Columns to read so that strategies decide, and estimators see, what the run saw."""
    wanted = [*_ALWAYS, *(c for s in strategies for c in (*s.columns, *s.optional_columns))]
    per_token = "advantages" in trace.columns or any(
        c in TOKEN_COLUMNS for c in wanted[len(_ALWAYS) :]
    )
    return [*wanted, "old_log_probs"] if per_token else wanted


def _notes(
    trace: Trace, strategies: Sequence[Strategy], mode: LossAggMode, sums: RunSums
) -> list[str]:
    manifest, columns = trace.manifest, trace.columns
    notes = []
    if manifest.label:
        notes.append(manifest.label)
    if manifest.evaluation:
        notes.append(
            f"An evaluation ({manifest.evaluation}): its responses never trained, so what is said "
            "here is what these weights would do to responses like them."
        )
    if not trace.has("num_tokens"):
        notes.append(
            "Lengths are unknown: every response counts as equally long, and token figures are "
            "null. Import with --tokenizer FILE, --length chars or --map num_tokens=COLUMN."
        )
    elif manifest.lengths not in (None, "tokens"):
        notes.append(f"Lengths were measured in {manifest.lengths}, not in the run's own tokens.")
    if "mini_batch" not in columns and not sums.one_update:
        notes.append(
            "The trace does not say its mini-batches: one mini-batch a step, one output a "
            "response is assumed, so tokens of different mini-batches count alike."
        )
    if sums.updates > 1:
        notes.append(
            f"One rollout step is {sums.updates:.3g} optimizer updates an epoch: an update's "
            "effective batch is the step's divided by that."
        )
    if "prompt_id" not in columns and any("prompt_id" in s.optional_columns for s in strategies):
        notes.append(
            "Without prompt ids, ties across groups are broken by group_uid, which is random per "
            "run: another run of the same prompts may keep other tied rows."
        )
    if "advantage" not in columns and "advantages" not in columns:
        config = manifest.advantage_config
        notes.append(
            f"Advantages were recomputed from rewards ({config.adv_estimator}, eps {config.eps:g})."
        )
    estimator = manifest.config.get("adv_estimator", "grpo")
    if estimator not in get_args(Estimator) and any(
        s.params.get("renormalise") for s in strategies
    ):
        notes.append(
            f"The run's estimator is {estimator}, which is not recomputed: rules that re-normalise "
            "advantages inside a subset use grpo's."
        )
    rules = [str(s) for s in _successes(strategies)]
    if rules:
        notes.append(f"Solved: {'; '.join(rules)}.")
    if mode == "seq-mean-token-sum-norm" and manifest.config.get("loss_scale_factor") is None:
        notes.append(
            "loss_scale_factor is unset: verl then divides by each micro-batch's padded width, "
            "which a trace does not hold, so figures that rest on the loss are null."
        )
    if len(strategies) > 1:
        notes.append(MODEL_ERROR)
    if any(s.scorer.level == "token" for s in strategies):
        notes.append(
            "effective_batch of token weights (ar) fell below its bracket in trials where "
            "responses carry free reasoning tokens: don't count on more than none's."
        )
    notes.append(
        "A fixed log shows what these weights do to the updates that were logged. It can't show "
        "where training under them would have gone."
    )
    return notes
