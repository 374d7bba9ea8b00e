"""Does a live run do what was promoted? Its decisions, draws and deliveries, recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ...sim.replay.loop import columns_for
from ...sim.types import Progress
from ...strategies.base import Scores, Strategy
from ...strategies.mix.base import domain_step
from ...traces.batch import RolloutBatch
from ...traces.errors import DfsimError, TraceError
from ...traces.findings import plain
from ...traces.store import Trace
from .check import Check
from .delivery import Applied, apply, tokens_of
from .forecast import Comparison, compare_forecast, forecast_notes
from .log import read_records
from .promotion import Promotion
from .record import rebuild, rebuild_mix, strategy_record


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
    mix = run.get("mix")
    if delivered is None and not shadows and mix is None and promotion is None:
        raise DfsimError(
            f"{trace.path} is of a run that delivered and shadowed nothing, so there is "
            "no decision to verify; dfsim replay says what strategies would have done"
        )
    log = read_records(trace.path)
    gates += _decisions(trace, run, delivered, shadows, log, progress)
    if mix is not None:
        gates.append(_proportions(trace, mix, delivered, log))
    if delivered is not None:
        gates.append(_delivery(trace, log))
    comparisons: list[Comparison] = []
    notes: list[str] = []
    if promotion is not None:
        notes = forecast_notes(promotion, trace)
        try:
            comparisons = list(compare_forecast(trace, promotion))
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
    mine = {**want, "name": Path(want["name"]).name}
    theirs = {**got, "name": Path(str(got["name"])).name}
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
    delivered: Strategy | None,
    shadows: Sequence[Strategy],
    log: Mapping[int, Mapping[str, Any]],
    progress: Progress | None,
) -> list[Check]:
    """Recompute every decision from captured signals and compare the bits."""
    chosen = [*([delivered] if delivered else []), *shadows]
    runnable, gates = [], []
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


def _proportions(
    trace: Trace,
    record: Mapping[str, Any],
    then: Strategy | None,
    log: Mapping[int, Mapping[str, Any]],
) -> Check:
    """Whether every step drew by the proportions that the captured steps before it lead to."""
    mix = rebuild_mix(record, then)
    name = f"proportions of {mix.name}"
    steps = [entry.step for entry in trace.manifest.steps]
    if steps != list(range(1, len(steps) + 1)):
        return Check(name, None, "not every step was captured, so a mixer can't be played again")
    mixer = mix.start(record["domains"], record["prior"])
    strategies = [] if then is None else [then]
    for strategy in strategies:
        trace.require(strategy.columns, strategy.name)
    checked = 0
    for batch in trace.batches([*columns_for(trace, strategies), "domain"]):
        drawn = (log.get(batch.step) or {}).get("mix")
        if drawn is not None:
            mine = mixer.propose().tolist()
            if mine != drawn["target"]:
                shown = ", ".join(
                    f"{d} {live!r}, recomputed {own!r}"
                    for d, live, own in zip(mixer.domains, drawn["target"], mine, strict=True)
                    if live != own
                )
                return Check(name, False, f"step {batch.step}: asked for {shown}")
            assert batch.domain_G is not None
            named = [batch.domains[code] for code in batch.domain_G]
            counts = [named.count(d) for d in mixer.domains]
            if counts != drawn["drawn"]:
                return Check(
                    name,
                    False,
                    f"step {batch.step}: {drawn['drawn']} prompts were drawn of "
                    f"{', '.join(mixer.domains)}, the capture holds {counts}",
                )
            checked += 1
        decision = None if then is None else then.decide(batch)
        mixer.observe(domain_step(batch, mixer.domains, decision))
    text = f"{checked} of {len(steps)} steps drawn as recomputed, identical bit for bit"
    return Check(name, True if checked else None, text)


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
