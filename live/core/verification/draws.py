"""Did a live run draw, and did its shadows ask, as the captured steps lead a sampler to?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....sim.replay.loop import columns_for
from ....strategies.sample.base import SamplingStrategy, UnitSampler
from ....traces.batch import RolloutBatch
from ....traces.errors import TraceError
from ....traces.ragged import Float, Int
from ....traces.storage.store import Trace
from ..sampler import draw_rows, start_sampler, watch
from ..steer import digest_of
from .check import Check


def check_draws(
    trace: Trace,
    run: Mapping[str, Any],
    strategy: SamplingStrategy,
    delivered: bool,
    log: Mapping[int, Mapping[str, Any]],
) -> Check:
    """Play a sampler again over a capture, and hold every step's proposal and draw against it.

    Args:
        trace: the live run's capture.
        run: its settings of dfsim.
        strategy: the sampler's.
        delivered: whether it drew, or only watched.
        log: step → what the run noted.
    """
    name = f"proportions of {strategy.name}"
    steps = [entry.step for entry in trace.manifest.steps]
    if steps != list(range(1, len(steps) + 1)):
        return Check(name, None, "not every step was captured, so a sampler can't be played again")
    try:
        trace.require(_columns(strategy), strategy.name)
    except TraceError as error:
        return Check(name, None, str(error))
    dataset = run["dataset"]
    sampler, since = None, None
    frames = trace.frames(("dataset_row",) if strategy.level == "prompt" else ("group_uid",))
    checked = 0
    batches = trace.batches(columns_for(trace, [strategy]))
    for batch, (_, frame) in zip(batches, frames, strict=True):
        record = log.get(batch.step) or {}
        noted = record.get("mix") if delivered else record.get("shadow_mix", {}).get(strategy.name)
        restarted = noted is not None and noted.get("since") != since
        if sampler is None or restarted:
            sampler = start_sampler(strategy, dataset["domains"], dataset["rows"])
            since = None if noted is None else noted.get("since")
        row_G = None
        if strategy.level == "prompt":
            row_G = frame["dataset_row"].to_numpy()[batch.group_offsets[:-1]]
        if noted is not None:
            target_U = sampler.propose()
            wrong = _other_proposal(sampler, strategy, target_U, noted)
            if wrong is None and delivered:
                wrong = _other_draw(batch, strategy, target_U, row_G, dataset, noted)
            if wrong is not None:
                return Check(name, False, f"step {batch.step}: {wrong}")
            checked += 1
        watch(sampler, strategy, batch, row_G, strategy.decide(batch) if strategy.weighs else None)
    done = "drawn" if delivered else "asked"
    text = f"{checked} of {len(steps)} steps {done} as recomputed, identical bit for bit"
    return Check(name, True if checked else None, text)


def _columns(strategy: SamplingStrategy) -> list[str]:
    """Columns that playing the sampler again needs: live, a prompt is a row of the training set."""
    others = () if strategy.then is None else strategy.then.columns
    return ["domain" if strategy.level == "domain" else "dataset_row", *others]


def _other_proposal(
    sampler: UnitSampler, strategy: SamplingStrategy, target_U: Float, noted: Mapping[str, Any]
) -> str | None:
    """How the recomputed proposal differs from the run's."""
    same = digest_of(target_U) == noted["digest"]
    if strategy.level == "prompt":
        return None if same else "asked for other shares of the prompts than recomputed"
    if same and target_U.tolist() == noted["target"]:
        return None
    shown = ", ".join(
        f"{domain} {live!r}, recomputed {own!r}"
        for domain, live, own in zip(sampler.units, noted["target"], target_U.tolist(), strict=True)
        if live != own
    )
    return f"asked for {shown}"


def _other_draw(
    batch: RolloutBatch,
    strategy: SamplingStrategy,
    target_U: Float,
    row_G: Int | None,
    dataset: Mapping[str, Any],
    noted: Mapping[str, Any],
) -> str | None:
    """How the captured groups differ from the draw."""
    if row_G is not None:
        drawn = draw_rows(target_U, sum(noted["drawn"]), dataset["seed"], batch.step - 1)
        if not np.array_equal(np.sort(drawn), np.sort(row_G)):
            extra = sorted(set(row_G.tolist()) - set(drawn.tolist()))
            return f"the capture holds rows {extra[:5]} that this step did not draw"
        return None
    assert batch.domain_G is not None
    named = [batch.domains[code] for code in batch.domain_G]
    counts = [named.count(domain) for domain in dataset["domains"]]
    if counts == noted["drawn"]:
        return None
    return (
        f"{noted['drawn']} prompts were drawn of {', '.join(dataset['domains'])}, the capture "
        f"holds {counts}"
    )
