"""Recompute what a live mixer asked for, from what its run captured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...sim.replay.loop import columns_for
from ...strategies.base import Strategy
from ...strategies.mix.base import domain_step
from ...traces.store import Trace
from .gate import Gate
from .record import rebuild_mix


def proportions_gate(
    trace: Trace,
    record: Mapping[str, Any],
    then: Strategy | None,
    log: Mapping[int, Mapping[str, Any]],
) -> Gate:
    """Whether every step drew by the proportions that the captured steps before it lead to.

    Args:
        trace: the live run's capture.
        record: the mixer in the manifest, with its domains and prior.
        then: what the mixer's draw passed through.
        log: step → its record.
    """
    mix = rebuild_mix(record, then)
    name = f"proportions of {mix.name}"
    steps = [entry.step for entry in trace.manifest.steps]
    if steps != list(range(1, len(steps) + 1)):
        return Gate(name, None, "not every step was captured, so a mixer can't be played again")
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
                return Gate(name, False, f"step {batch.step}: asked for {shown}")
            assert batch.domain_G is not None
            named = [batch.domains[code] for code in batch.domain_G]
            counts = [named.count(d) for d in mixer.domains]
            if counts != drawn["drawn"]:
                return Gate(
                    name,
                    False,
                    f"step {batch.step}: {drawn['drawn']} prompts were drawn of "
                    f"{', '.join(mixer.domains)}, the capture holds {counts}",
                )
            checked += 1
        decision = None if then is None else then.decide(batch)
        mixer.observe(domain_step(batch, mixer.domains, decision))
    text = f"{checked} of {len(steps)} steps drawn as recomputed, identical bit for bit"
    return Gate(name, True if checked else None, text)
