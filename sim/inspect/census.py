"""What is in a trace: counts, rewards, lengths, anomalies, how prompts drift, what can run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...strategies.build import build
from ...strategies.catalog import WEIGHING
from ...traces.batch import RolloutBatch
from ...traces.checks.advantages import AdvantageReport, sentences
from ...traces.checks.group_sizes import GroupSizes
from ...traces.errors import MissingColumnError
from ...traces.findings import CHOSEN, Finding, plain
from ...traces.ragged import segment_span, segment_sum
from ...traces.storage.store import as_trace
from ..replay.data_check import COLUMNS, DataCheck, PolicyLag, Truncation
from ..replay.loop import replay
from ..result import Estimate
from ..success import Success
from ..types import Progress

if TYPE_CHECKING:
    import polars as pl

    from ...traces.storage.store import Trace

FORGOTTEN_DROP = 0.5
SCALE_RATIO = 5.0

STATUSES = ("never_solved", "mastered", "forgotten", "learning")
"""No response of any visit solved; every one of the last visit; the last visit's solve rate at
least .5 below the best earlier one; none of these."""


@dataclass
class _Prompt:
    domain: str | None
    first_step: int
    first: float = 0.0
    visits: int = 0
    responses: int = 0
    unused: int = 0
    solved: int = 0
    best_before: float = 0.0
    last_step: int = 0
    last_solved: int = 0
    last_size: int = 0

    @property
    def last(self) -> float:
        """Solve rate of the last visit."""
        return self.last_solved / self.last_size

    def visit(self, step: int, solved: int, size: int, constant: bool) -> None:
        """Add a group; groups of one step are one visit."""
        if not self.visits or step != self.last_step:
            if self.visits:
                self.best_before = max(self.best_before, self.last)
            self.visits += 1
            self.last_step, self.last_solved, self.last_size = step, 0, 0
        self.last_solved += solved
        self.last_size += size
        if self.visits == 1:
            self.first = self.last
        self.responses += size
        self.solved += solved
        self.unused += size if constant else 0

    @property
    def status(self) -> str:
        if self.solved == 0:
            return "never_solved"
        if self.last == 1.0:
            return "mastered"
        dropped = self.best_before - self.last >= FORGOTTEN_DROP - 1e-9
        return "forgotten" if dropped else "learning"


@dataclass
class _Domain:
    groups: int = 0
    responses: int = 0
    rewarded: int = 0
    constant: int = 0
    reward: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    @property
    def mean_reward(self) -> float:
        """Over the responses that have a reward; NaN where none has."""
        return self.reward / self.rewarded if self.rewarded else math.nan


@dataclass
class Census:
    """Everything ``dfsim inspect`` shows.

    Attributes:
        steps: step numbers.
        sizes: group size → groups.
        domains: name → counts and rewards.
        success: when a response counts as solved.
        levels: value of the success column → responses; empty beyond a dozen.
        lengths: quantiles of response length, or ``None``.
        constant_share: groups of two or more whose rewards are equal, of all groups.
        singleton_share: groups of one, of all groups.
        findings: what stands out in the data.
        advantages: what the stored advantages say, or ``None``.
        truncation: responses that ended by length, or ``None`` where the trace does not say.
        lag: how old the sampling policies were, or ``None`` likewise.
        chosen: whether rows were chosen by their outcome, so that they are no sample.
        drift: status → prompts; ``None`` without prompt ids, where no prompt came twice, where
            rows were chosen, or where rewards are continuous and nobody said when they are solved.
        revisited: prompts seen at more than one step.
        cannot_run: preset → what it needs.
        baseline: ``none``'s effective batch over the run.
    """

    success: Success = field(default_factory=Success)
    steps: list[int] = field(default_factory=list)
    sizes: Counter[int] = field(default_factory=Counter)
    domains: dict[str, _Domain] = field(default_factory=dict)
    levels: dict[float, int] = field(default_factory=dict)
    lengths: dict[str, float] | None = None
    groups: int = 0
    responses: int = 0
    reward_mean: float = math.nan
    constant_share: float = math.nan
    singleton_share: float = math.nan
    continuous: bool = False
    findings: list[Finding] = field(default_factory=list)
    advantages: AdvantageReport | None = None
    truncation: Truncation | None = None
    lag: PolicyLag | None = None
    prompts: dict[str, _Prompt] = field(default_factory=dict)
    chosen: bool = False
    drift: dict[str, int] | None = None
    revisited: int = 0
    cannot_run: dict[str, str] = field(default_factory=dict)
    baseline: Estimate | None = None

    def __repr__(self) -> str:
        found = ", ".join(finding.name for finding in self.findings) or "nothing stands out"
        return (
            f"Census of {len(self.steps)} steps, {self.groups:,} groups, {self.responses:,} "
            f"responses, mean reward {self.reward_mean:.3g}: {found}; .prompt_table(), .to_dict()"
        )

    @property
    def more_steps(self) -> int | None:
        """Further steps that would halve the future interval: it shrinks with √steps, so 3·S."""
        if self.baseline is None or math.isnan(self.baseline.future_low):
            return None
        return 3 * len(self.steps)

    def prompt_table(self) -> pl.DataFrame:
        """One row a prompt: visits, solve rates, responses, those in constant groups, status."""
        import polars as pl

        rows = [
            {
                "prompt_id": name,
                "domain": p.domain,
                "visits": p.visits,
                "first_step": p.first_step,
                "last_step": p.last_step,
                "first_solve_rate": p.first,
                "last_solve_rate": p.last,
                "solve_rate": p.solved / p.responses,
                "responses": p.responses,
                "constant_group_responses": p.unused,
                "status": p.status,
            }
            for name, p in self.prompts.items()
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def _advantage_record(self) -> dict[str, Any]:
        assert self.advantages is not None
        config = self.advantages.config
        figures = {n: plain(v) for n, v in vars(self.advantages).items() if n != "config"}
        return {**figures, "adv_estimator": None if config is None else config.adv_estimator}

    def advantage_sentences(self) -> list[str]:
        """What the stored advantages say, a line each."""
        return [] if self.advantages is None else list(sentences(self.advantages))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        baseline = None if self.baseline is None else self.baseline.to_dict()
        return {
            "steps": {"count": len(self.steps), "first": self.steps[0], "last": self.steps[-1]},
            "groups": self.groups,
            "responses": self.responses,
            "group_sizes": {str(n): c for n, c in sorted(self.sizes.items())},
            "domains": {
                name: {
                    "groups": d.groups,
                    "responses": d.responses,
                    "mean_reward": plain(d.mean_reward),
                    "constant_share": d.constant / d.groups,
                }
                for name, d in self.domains.items()
            },
            "reward": {
                "mean": plain(self.reward_mean),
                "levels": {f"{r:g}": c for r, c in sorted(self.levels.items())},
            },
            "success": {"column": self.success.column, "threshold": self.success.limit},
            "lengths": self.lengths,
            "truncation": None
            if self.truncation is None
            else {
                "frac": self.truncation.frac,
                "token_frac": plain(self.truncation.token_frac),
                "live_groups": self.truncation.live,
                "live_by_length": self.truncation.live_by_length,
            },
            "policy_lag": None
            if self.lag is None
            else {"mean": self.lag.mean, "max": self.lag.max, "in_steps": self.lag.by_step},
            "advantages": None if self.advantages is None else self._advantage_record(),
            "constant_share": self.constant_share,
            "singleton_share": self.singleton_share,
            "findings": [finding.to_dict() for finding in self.findings],
            "prompts": len(self.prompts) or None,
            "revisited_prompts": self.revisited,
            "prompt_drift": self.drift,
            "cannot_run": self.cannot_run,
            "effective_batch_none": baseline,
            "more_steps_to_halve_interval": self.more_steps,
        }


def census(
    trace: Trace | str | Path,
    progress: Progress | None = None,
    *,
    success: Success | None = None,
) -> Census:
    """Look at every response of a trace once.

    Args:
        trace: from :func:`dfsim.open_trace`, or its path.
        progress: called with (steps done, steps in all).
        success: when a response counts as solved; default: reward > 0.5.

    Returns:
        What the trace holds, what stands out, how prompts drift, and what can run.

    Raises:
        TraceError: the trace lacks the success column, or a file can't be read.

    Example:
        >>> dfsim.inspect("traces/").drift["mastered"] > 0
        True
    """
    trace = as_trace(trace)
    found = Census(success=success or Success())
    trace.require(found.success.columns, "the success rate")
    columns = ["domain", "prompt_id", "advantage", "old_log_probs", "rollout_log_probs"]
    columns += [*COLUMNS, *trace.extras]
    check = DataCheck(trace, [found.success], others=True)
    sizes = GroupSizes(int(trace.manifest.config["n"]) if trace.manifest.config.get("n") else None)
    lengths: list[Any] = []
    unusable = Counter[str]()
    total = len(trace.manifest.steps)
    reward_sum, rewarded, constant, singles = 0.0, 0, 0, 0
    for done, batch in enumerate(trace.batches(columns), start=1):
        found.steps.append(batch.step)
        found.groups += batch.num_groups
        found.responses += batch.num_responses
        found.sizes.update(batch.group_size_G.tolist())
        prompts = None if batch.prompt_id_G is None else batch.prompt_id_G.tolist()
        sizes.add(batch.step, batch.group_size_G.tolist(), prompts)
        check.add(batch)
        known = batch.reward_N[~np.isnan(batch.reward_N)]
        reward_sum += float(known.sum())
        rewarded += len(known)
        lacking = batch.num_responses - len(known)
        unusable["responses without a reward (NaN), which never train"] += lacking
        dull = ~batch.live_G & (batch.group_size_G > 1)
        constant += int(dull.sum())
        singles += int((batch.group_size_G == 1).sum())
        if batch.num_tokens_N is not None:
            lengths.append(batch.num_tokens_N.astype(np.int32))
            unusable["responses without a token"] += int((batch.num_tokens_N == 0).sum())
        for name in ("old_log_prob", "rollout_log_prob"):
            values = getattr(batch, f"{name}_T")
            if values is not None:
                unusable[f"tokens whose {name}s value is NaN or infinite"] += int(
                    (~np.isfinite(values)).sum()
                )
        _add_domains(found, batch, dull)
        _add_prompts(found, batch, dull)
        if progress is not None:
            progress(done, total)
    levels = check.levels[found.success]
    found.levels, found.continuous = levels.levels, levels.continuous
    found.advantages, found.truncation, found.lag = check.report(), check.truncation, check.lag
    found.reward_mean = reward_sum / rewarded if rewarded else math.nan
    found.constant_share = constant / found.groups
    found.singleton_share = singles / found.groups
    if lengths:
        every = np.concatenate(lengths)
        low, median, high = np.quantile(every, [0.05, 0.5, 0.95])
        found.lengths = {
            "mean": float(every.mean()),
            "p5": float(low),
            "median": float(median),
            "p95": float(high),
            "max": float(every.max()),
        }
    found.findings = _findings(trace, found, check, sizes, unusable)
    _judge_prompts(trace, found)
    found.cannot_run = cannot_run(trace)
    found.baseline = replay(trace, ["none"]).strategies["none"].estimates["effective_batch"]
    return found


def _findings(
    trace: Trace, found: Census, check: DataCheck, sizes: GroupSizes, unusable: Counter[str]
) -> list[Finding]:
    """Everything that stands out, each name once; what the import said comes first."""
    listed = list(check.findings())
    if sizes.n is not None or not trace.manifest.source.startswith("import"):
        listed += sizes.findings()
    listed += [
        Finding("unusable_values", f"{count:,} {what}.", {"count": count})
        for what, count in unusable.items()
        if count
    ]
    listed += [*_mixed_scales(found), *_step_findings(trace, found)]
    seen: dict[tuple[str, str], Finding] = {}
    for finding in listed:
        key = finding.message if finding.name == "unusable_values" else ""
        seen.setdefault((finding.name, key), finding)
    return list(seen.values())


def cannot_run(trace: Trace, names: Iterable[str] = WEIGHING) -> dict[str, str]:
    """Presets, by default those that weigh, that the trace can't run: name → what each needs."""
    reasons = {}
    for name in names:
        try:
            trace.require(build(name).columns, name)
        except MissingColumnError as error:
            reasons[name] = error.need
    return reasons


def _add_domains(found: Census, batch: RolloutBatch, dull: Any) -> None:
    if batch.domain_G is None:
        return
    low, high = segment_span(batch.reward_N, batch.group_offsets)
    known = ~np.isnan(batch.reward_N)
    sums = segment_sum(np.where(known, batch.reward_N, 0.0), batch.group_offsets)
    counts = segment_sum(known.astype(np.int64), batch.group_offsets)
    for code in np.unique(batch.domain_G):
        inside = batch.domain_G == code
        entry = found.domains.setdefault(batch.domains[code], _Domain())
        entry.groups += int(inside.sum())
        entry.responses += int(batch.group_size_G[inside].sum())
        entry.constant += int(dull[inside].sum())
        entry.reward += float(sums[inside].sum())
        entry.rewarded += int(counts[inside].sum())
        entry.low = min(entry.low, float(low[inside].min()))
        entry.high = max(entry.high, float(high[inside].max()))


def _add_prompts(found: Census, batch: RolloutBatch, dull: Any) -> None:
    if batch.prompt_id_G is None:
        return
    solves = found.success.solved_N(batch).astype(np.int64)
    solved = segment_sum(solves, batch.group_offsets).tolist()
    sizes = batch.group_size_G.tolist()
    for group, name in enumerate(batch.prompt_id_G):
        domain = None if batch.domain_G is None else batch.domains[batch.domain_G[group]]
        prompt = found.prompts.setdefault(name, _Prompt(domain, batch.step))
        prompt.visit(batch.step, solved[group], sizes[group], bool(dull[group]))


def _judge_prompts(trace: Trace, found: Census) -> None:
    again = [p for p in found.prompts.values() if p.visits > 1]
    found.revisited = len(again)
    found.chosen = bool({f.name for f in trace.manifest.findings} & CHOSEN)
    if again and not found.chosen and (found.success.given or not found.continuous):
        counts = Counter(p.status for p in again)
        found.drift = {status: counts[status] for status in STATUSES}


def _mixed_scales(found: Census) -> Iterator[Finding]:
    spans = {n: d.high - d.low for n, d in found.domains.items() if d.high > d.low}
    if len(spans) < 2:
        return
    small, large = min(spans, key=spans.__getitem__), max(spans, key=spans.__getitem__)
    if spans[large] < SCALE_RATIO * spans[small]:
        return
    a, b = found.domains[small], found.domains[large]
    yield Finding(
        "mixed_reward_scales",
        f"Mixed reward scales: domain '{small}' in [{a.low:g}, {a.high:g}], '{large}' in "
        f"[{b.low:g}, {b.high:g}]; batch-wide rules (topk, diffband, softmax) then compare them.",
        {"domains": {small: [a.low, a.high], large: [b.low, b.high]}},
    )


def _step_findings(trace: Trace, found: Census) -> Iterator[Finding]:
    same: dict[str, list[int]] = {}
    for entry in trace.manifest.steps:
        same.setdefault(entry.digest, []).append(entry.step)
    copies = [steps for steps in same.values() if len(steps) > 1]
    if copies:
        pairs = "; ".join(" = ".join(map(str, steps)) for steps in copies[:3])
        yield Finding(
            "duplicate_steps",
            f"Duplicate steps, the same rows under several numbers: {pairs}.",
            {"steps": copies},
        )
    gap = found.steps[-1] - found.steps[0] + 1 - len(found.steps)
    if gap:
        yield Finding(
            "absent_steps",
            f"{gap} step numbers between {found.steps[0]} and {found.steps[-1]} are absent.",
            {"absent": gap},
        )
