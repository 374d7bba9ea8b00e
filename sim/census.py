"""What is in a trace: counts, rewards, lengths, anomalies, how prompts drift, what can run."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..strategies.catalog import PRESETS, build
from ..traces.batch import RolloutBatch, reward_span
from ..traces.errors import TraceError
from ..traces.ragged import segment_sum
from .replay import Progress, replay
from .result import Estimate, plain

if TYPE_CHECKING:
    import polars as pl

    from ..traces.store import Trace

SUCCESS_THRESHOLD = 0.5
FORGOTTEN_DROP = 0.5
SCALE_RATIO = 5.0
MAX_LEVELS = 12

_STATUS = {
    "never_solved": "no response of any visit solved",
    "mastered": "every response of the last visit solved",
    "forgotten": "last visit's solve rate at least 0.5 below the best earlier one",
    "learning": "none of these",
}


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
        levels: reward → responses, up to a dozen distinct rewards; empty beyond.
        lengths: quantiles of response length, or ``None``.
        constant_share: groups of two or more whose rewards are equal, of all groups.
        singleton_share: groups of one, of all groups.
        anomalies: sentences.
        drift: status → prompts; ``None`` without prompt ids, or where no prompt came twice.
        revisited: prompts seen at more than one step.
        cannot_run: preset → reason.
        baseline: ``none``'s effective batch over the run.
    """

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
    anomalies: list[str] = field(default_factory=list)
    prompts: dict[str, _Prompt] = field(default_factory=dict)
    drift: dict[str, int] | None = None
    revisited: int = 0
    cannot_run: dict[str, str] = field(default_factory=dict)
    baseline: Estimate | None = None

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
            "lengths": self.lengths,
            "constant_share": self.constant_share,
            "singleton_share": self.singleton_share,
            "anomalies": self.anomalies,
            "prompts": len(self.prompts) or None,
            "revisited_prompts": self.revisited,
            "prompt_drift": self.drift,
            "cannot_run": self.cannot_run,
            "effective_batch_none": baseline,
            "more_steps_to_halve_interval": self.more_steps,
        }


def census(trace: Trace, progress: Progress | None = None) -> Census:
    """Look at every response of a trace once.

    Args:
        trace: from :func:`dfsim.open_trace`.
        progress: called with (steps done, steps in all).
    """
    found = Census()
    columns = ["num_tokens", "domain", "prompt_id", "old_log_probs", "rollout_log_probs"]
    lengths: list[Any] = []
    levels: Counter[float] = Counter()
    bad = Counter[str]()
    total = len(trace.manifest.steps)
    reward_sum, rewarded, constant, singles = 0.0, 0, 0, 0
    for done, batch in enumerate(trace.batches(columns), start=1):
        found.steps.append(batch.step)
        found.groups += batch.num_groups
        found.responses += batch.num_responses
        found.sizes.update(batch.group_size_G.tolist())
        known = batch.reward_N[~np.isnan(batch.reward_N)]
        reward_sum += float(known.sum())
        rewarded += len(known)
        bad["responses without a reward (NaN), which never train"] += batch.num_responses - len(
            known
        )
        dull = ~batch.live_G & (batch.group_size_G > 1)
        constant += int(dull.sum())
        singles += int((batch.group_size_G == 1).sum())
        if len(levels) <= MAX_LEVELS:
            levels.update(known.tolist())
        if batch.num_tokens_N is not None:
            lengths.append(batch.num_tokens_N.astype(np.int32))
            bad["responses without a token"] += int((batch.num_tokens_N == 0).sum())
        for name in ("old_log_prob", "rollout_log_prob"):
            values = getattr(batch, f"{name}_T")
            if values is not None:
                bad[f"tokens whose {name}s value is NaN or infinite"] += int(
                    (~np.isfinite(values)).sum()
                )
        _add_domains(found, batch, dull)
        _add_prompts(found, batch, dull)
        if progress is not None:
            progress(done, total)
    found.levels = dict(levels) if len(levels) <= MAX_LEVELS else {}
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
    found.anomalies = [f"{count} {what}" for what, count in bad.items() if count]
    found.anomalies += _scale_anomalies(found) + _step_anomalies(trace, found)
    _judge_prompts(found)
    found.cannot_run = cannot_run(trace)
    found.baseline = replay(trace, ["none"]).strategies["none"].estimates["effective_batch"]
    return found


def cannot_run(trace: Trace) -> dict[str, str]:
    """Presets that the trace can't run, with the reason."""
    reasons = {}
    for name in PRESETS:
        try:
            trace.require(build(name).columns, name)
        except TraceError as error:
            reasons[name] = str(error)
    return reasons


def _add_domains(found: Census, batch: RolloutBatch, dull: Any) -> None:
    if batch.domain_G is None:
        return
    low, high = reward_span(batch)
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
    solved = segment_sum(
        (batch.reward_N > SUCCESS_THRESHOLD).astype(np.int64), batch.group_offsets
    ).tolist()
    sizes = batch.group_size_G.tolist()
    for group, name in enumerate(batch.prompt_id_G):
        domain = None if batch.domain_G is None else batch.domains[batch.domain_G[group]]
        prompt = found.prompts.setdefault(name, _Prompt(domain, batch.step))
        prompt.visit(batch.step, solved[group], sizes[group], bool(dull[group]))


def _judge_prompts(found: Census) -> None:
    again = [p for p in found.prompts.values() if p.visits > 1]
    found.revisited = len(again)
    if again:
        counts = Counter(p.status for p in again)
        found.drift = {status: counts[status] for status in _STATUS}


def _scale_anomalies(found: Census) -> list[str]:
    spans = {n: d.high - d.low for n, d in found.domains.items() if d.high > d.low}
    if len(spans) < 2:
        return []
    small, large = min(spans, key=spans.__getitem__), max(spans, key=spans.__getitem__)
    if spans[large] < SCALE_RATIO * spans[small]:
        return []
    a, b = found.domains[small], found.domains[large]
    return [
        f"mixed reward scales: domain '{small}' in [{a.low:g}, {a.high:g}], '{large}' in "
        f"[{b.low:g}, {b.high:g}]; batch-wide rules (topk, diffband, softmax) then compare them"
    ]


def _step_anomalies(trace: Trace, found: Census) -> list[str]:
    out = []
    same: dict[str, list[int]] = {}
    for entry in trace.manifest.steps:
        same.setdefault(entry.digest, []).append(entry.step)
    copies = [steps for steps in same.values() if len(steps) > 1]
    if copies:
        pairs = "; ".join(" = ".join(map(str, steps)) for steps in copies[:3])
        out.append(f"duplicate steps, the same rows under several numbers: {pairs}")
    gap = found.steps[-1] - found.steps[0] + 1 - len(found.steps)
    if gap:
        out.append(f"{gap} step numbers between {found.steps[0]} and {found.steps[-1]} are absent")
    return out
