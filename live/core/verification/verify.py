"""Does a live run do what was promoted? Its decisions, draws and deliveries, recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ....sim.replay.loop import columns_for
from ....sim.types import Progress
from ....strategies.base import Scores
from ....strategies.build import AnyStrategy
from ....strategies.sample.base import SamplingStrategy
from ....strategies.spec import Spec
from ....traces.batch import RolloutBatch
from ....traces.errors import DfsimError, TraceError
from ....traces.findings import plain
from ....traces.storage.store import Trace
from ..delivery import Applied, apply, tokens_of
from ..log import read_records
from ..promotion import Promotion
from ..record import rebuild, strategy_record
from .check import Check
from .draws import check_draws
from .forecast import Comparison, compare_forecast, compare_mix, forecast_notes


@dataclass(frozen=True)
class Verification:
    """What ``dfsim verify`` found.

    Attributes:
        gates: each must hold.
        comparisons: forecast beside observed; no gate, since another policy makes other data.
        notes: what holds for the comparison.
        trace: path, fingerprint and steps of the live trace.
    """

    gates: Sequence[Check]
    comparisons: Sequence[Comparison]
    notes: Sequence[str]
    trace: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        """Whether no gate failed and one could be checked."""
        return {gate.passed for gate in self.gates} - {None} == {True}

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "passed": self.passed,
            "trace": dict(self.trace),
            "gates": [vars(g) for g in self.gates],
            "estimates": [{k: plain(v) for k, v in vars(c).items()} for c in self.comparisons],
            "notes": list(self.notes),
        }


def verify(
    trace: Trace, promotion: Promotion | None = None, *, progress: Progress | None = None
) -> Verification:
    """Verify a capture of a live run.

    Args:
        trace: the live run's capture.
        promotion: what it was to do; without one only the run's own records are recomputed.
        progress: called with (steps done, steps in all).

    Raises:
        DfsimError: the trace was not captured live, or the promotion's code no longer matches.
    """
    run = trace.manifest.config.get("dfsim")
    if not isinstance(run, Mapping):
        raise DfsimError(
            f"{trace.path} was not captured by a live run of dfsim, so there is no decision to "
            "verify; capture one with +dfsim.capture.dir=FOLDER"
        )
    gates = [] if promotion is None else [_same_strategy(run, promotion)]
    delivered = None
    if run.get("strategy"):
        delivered = rebuild(run["strategy"]) if promotion is None else promotion.build()
    shadows = [rebuild(record) for record in run.get("shadow", ())]
    if delivered is None and not shadows and promotion is None:
        raise DfsimError(
            f"{trace.path} is of a run that delivered and shadowed nothing, so there is "
            "no decision to verify; dfsim replay says what strategies would have done"
        )
    log = read_records(trace.path)
    gates += _decisions(trace, run, delivered, shadows, log, progress)
    for strategy in (*([delivered] if delivered else []), *shadows):
        if isinstance(strategy, SamplingStrategy):
            gates.append(check_draws(trace, run, strategy, strategy is delivered, log))
    if delivered is not None and delivered.weighs:
        gates.append(_delivery(trace, log))
    comparisons: list[Comparison] = []
    notes: list[str] = []
    if promotion is not None:
        notes = forecast_notes(promotion, trace)
        try:
            domains = (run.get("dataset") or {}).get("domains", ())
            comparisons = [
                *compare_forecast(trace, promotion),
                *compare_mix(promotion, domains, log),
            ]
        except TraceError as error:
            notes = [f"Nothing to compare the forecast with: {error}"]
    described = {
        "path": str(trace.path),
        "fingerprint": trace.manifest.fingerprint,
        "steps": len(trace.manifest.steps),
    }
    return Verification(gates, comparisons, notes, described)


def _same_strategy(run: Mapping[str, Any], promotion: Promotion) -> Check:
    strategy = promotion.build()
    want, got = strategy_record(strategy), run.get("strategy")
    if got is None:
        message = f"the run delivered no strategy; {strategy.name} was promoted"
        return Check("strategy", False, message)
    mine = {**want, "name": str(Spec.parse(want["name"]).short)}
    theirs = {**got, "name": str(Spec.parse(str(got["name"])).short)}
    for key in ("rescale", "on_empty"):
        mine[key], theirs[key] = getattr(promotion, key), run.get(key)
    if mine != theirs:
        differs = next(k for k in mine if mine[k] != theirs.get(k))
        return Check(
            "strategy",
            False,
            f"the run's {differs} is {theirs.get(differs)}, promoted was {mine[differs]}",
        )
    return Check("strategy", True, f"{strategy.name} with the promoted parameters")


def _decisions(
    trace: Trace,
    run: Mapping[str, Any],
    delivered: AnyStrategy | None,
    shadows: Sequence[AnyStrategy],
    log: Mapping[int, Mapping[str, Any]],
    progress: Progress | None,
) -> list[Check]:
    """Recompute every decision from captured signals and compare the bits."""
    chosen = [s for s in (delivered, *shadows) if s is not None and s.weighs]
    runnable: list[AnyStrategy] = []
    gates = []
    for strategy in chosen:
        try:
            trace.require(strategy.columns, strategy.name)
            runnable.append(strategy)
        except TraceError as error:
            gates.append(Check(f"decisions of {strategy.name}", None, str(error)))
    columns = columns_for(trace, runnable)
    frames = trace.frames(("weight", "token_weight", "advantage_applied"))
    checked = {s.name: 0 for s in runnable}
    wrong: dict[str, str] = {}
    steps = len(trace.manifest.steps)
    pairs = zip(trace.batches(columns), frames, strict=True)
    for done, (batch, (entry, frame)) in enumerate(pairs, start=1):
        scores = Scores(batch)
        record = log.get(entry.step, {})
        for strategy in runnable:
            if strategy.name in wrong:
                continue
            decision = strategy.decide(batch, scores)
            if strategy is delivered:
                applied = apply(decision, batch, run["rescale"], run["on_empty"])
                difference = _first_difference(applied, batch, frame)
            else:
                applied, difference = apply(decision, batch), None
            digest = record.get("digests", {}).get(strategy.name)
            if difference is None and digest is not None and digest != applied.digest():
                difference = "the digest of the live decision differs"
            if difference is None and digest is None and strategy is not delivered:
                continue
            checked[strategy.name] += 1
            if difference is not None:
                wrong[strategy.name] = f"step {entry.step}: {difference}"
        if progress is not None:
            progress(done, steps)
    for strategy in runnable:
        name = f"decisions of {strategy.name}"
        if strategy.name in wrong:
            gates.append(Check(name, False, wrong[strategy.name]))
        else:
            count = checked[strategy.name]
            same = f"{count} of {steps} steps recomputed, identical bit for bit"
            gates.append(Check(name, True if count else None, same))
    return gates


def _first_difference(applied: Applied, batch: RolloutBatch, frame: pl.DataFrame) -> str | None:
    """The first response whose captured weight is not the recomputed one."""
    if "weight" not in frame.columns:
        return "the step holds no weight; the run delivered none there"
    wanted: list[tuple[str, Any]] = [("weight", applied.weight_N)]
    if applied.advantage_N is not None:
        wanted.append(("advantage_applied", applied.advantage_N))
    for name, mine in wanted:
        if name not in frame.columns:
            return f"column '{name}' is missing"
        captured = frame[name].to_numpy().astype(np.float32)
        differs = np.flatnonzero(captured.view(np.uint32) != mine.view(np.uint32))
        if len(differs):
            row = int(differs[0])
            return (
                f"group '{frame['group_uid'][row]}' rollout_idx={frame['rollout_idx'][row]}: "
                f"{name} applied {captured[row]!r}, recomputed {mine[row]!r} "
                f"({len(differs)} of {len(mine)} responses differ)"
            )
    if applied.token_weight_T is not None:
        if "token_weight" not in frame.columns:
            return "column 'token_weight' is missing"
        exploded = frame["token_weight"].explode(empty_as_null=False, keep_nulls=False).to_numpy()
        if len(exploded) != len(applied.token_weight_T):
            return (
                f"{len(exploded)} token weights applied, {len(applied.token_weight_T)} recomputed"
            )
        differs = np.flatnonzero(exploded.view(np.uint32) != applied.token_weight_T.view(np.uint32))
        if len(differs):
            token = int(differs[0])
            ends = np.cumsum(tokens_of(batch))
            row = int(np.searchsorted(ends, token, side="right"))
            within = token - int(ends[row] - tokens_of(batch)[row])
            return (
                f"group '{frame['group_uid'][row]}' rollout_idx={frame['rollout_idx'][row]}, token "
                f"{within}: weight applied {exploded[token]!r}, recomputed "
                f"{applied.token_weight_T[token]!r} ({len(differs)} of {len(exploded)} differ)"
            )
    return None


def _delivery(trace: Trace, log: Mapping[int, Mapping[str, Any]]) -> Check:
    """Whether the loss saw the weights, by the run's own records."""
    found = [log.get(entry.step) for entry in trace.manifest.steps]
    missing = sum(r is None for r in found)
    records = [r for r in found if r is not None]
    bad = [r for r in records if r.get("delivered") == 0]
    if bad:
        return Check(
            "delivery",
            False,
            f"in {len(bad)} of {len(found)} steps the weights did not reach the loss; first step "
            f"{bad[0]['step']}: {bad[0].get('reason')}",
        )
    proven = sum(r.get("delivered") == 1 for r in records)
    open_steps = [r for r in records if r.get("delivered") is None]
    text = f"proven in {proven} of {len(found)} steps"
    if open_steps:
        text += f"; {len(open_steps)} not checkable ({open_steps[0].get('reason')})"
    if missing:
        text += f"; {missing} steps without a record"
    witness = sum(r.get("pg_loss") == "agrees" for r in records)
    differs = [r for r in records if r.get("pg_loss") == "differs"]
    if differs:
        text += f"; pg_loss differs in step {differs[0]['step']}"
    elif witness:
        text += f"; pg_loss agrees in the {witness} where it can tell"
    return Check("delivery", True if proven else None, text)
