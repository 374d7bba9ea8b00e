"""Replay of mixers: what they would ask for on a log, and what they would get.

Asking is exact: the mixer sees the statistics of the logged steps. Getting needs two models, since
a log does not show the draws a mixer would have made: where candidates come from, and what a
domain's reward depends on (a clock). Both are named in every result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ...strategies.mix.base import DomainStep, Mixer
from ...strategies.mix.presets import Mix
from ...strategies.mix.quota import Quotas
from ...traces.errors import DfsimError, nearest
from ...traces.ragged import Float, Int
from ...traces.spelling import option
from .log import MixLog, selector_of

Clock = Literal["step", "exposure"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)


@dataclass(frozen=True)
class Candidates:
    """Where a draw comes from.

    Attributes:
        kind: ``sync``: the draw is the whole pool; ``oversample``: K batches are generated and the
            surplus is thrown away; ``prompts``: drawn before rollout, so any mix can be had.
        batches: K.
    """

    kind: Literal["sync", "oversample", "prompts"] = "prompts"
    batches: float = 1.0

    def __str__(self) -> str:
        return self.kind if self.kind != "oversample" else f"oversample={self.batches:g}"

    @classmethod
    def parse(cls, text: str) -> Candidates:
        """Read ``sync``, ``prompts`` or ``oversample=K``.

        Raises:
            DfsimError: anything else, or K below 1.
        """
        if text in ("sync", "prompts"):
            return cls(text)  # type: ignore[arg-type]
        found = re.fullmatch(r"oversample=([0-9.]+)", text)
        try:
            batches = float(found[1]) if found else 0.0
        except ValueError:
            batches = 0.0
        if batches < 1:
            raise DfsimError(
                f"{option('candidates', text)} is not known{nearest(text, ('sync', 'prompts'))}; "
                "it takes: sync, prompts, or oversample=K with K ≥ 1"
            )
        return cls("oversample", batches)


@dataclass(frozen=True, eq=False)
class MixRun:
    """One mixer over the steps of a log. S steps, D domains; NaN where nothing can be said.

    Attributes:
        mix: the mixer.
        clock: what a domain's reward depends on; ``None`` for what it asks on the log itself.
        candidates: where draws come from; ``None`` likewise.
        target_SD: proportions asked for.
        signal_SD: the statistic behind them.
        candidates_SD: prompt groups there to choose from.
        realised_SD: prompt groups drawn.
        exposures_SD: groups drawn so far, this step included.
        live_exposures_SD: those of them with a signal (expected, under the step clock).
        replaced_SD: draws beyond what the log holds at the step, taken with replacement.
        surplus_S: groups generated and thrown away.
        supported_until: first step at which a domain's log is used up, or ``None``.
        used_up: those domains.
        unseen: domains never seen, or with NaN rewards only.
    """

    mix: Mix
    clock: Clock | None
    candidates: Candidates | None
    target_SD: Float
    signal_SD: Float
    candidates_SD: Float
    realised_SD: Float
    exposures_SD: Float
    live_exposures_SD: Float
    replaced_SD: Float
    surplus_S: Float
    supported_until: int | None
    used_up: tuple[str, ...]
    unseen: tuple[str, ...]


def asked(mix: Mix, log: MixLog) -> MixRun:
    """What the mixer would have asked for, had it watched the logged run. Exact."""
    mixer = mix.start(log.domains, log.prior.tolist())
    frame = _Frame(log)
    for index, seen in enumerate(log.steps[mix.name]):
        frame.ask(index, mixer)
        counts = log.counts_SD[index].astype(np.float64)
        frame.get(index, counts, counts, frame.live_share(index), np.zeros(len(counts)), 0.0)
        mixer.observe(seen)
    return frame.run(mix, None, None, None, mixer)


def simulate(mix: Mix, log: MixLog, candidates: Candidates, clock: Clock) -> MixRun:
    """What the mixer would get, drawing from the log's groups in its place.

    ``clock="step"`` takes performance to depend on training time: a domain's observation at t is
    the mean of its groups logged at t, however many are drawn; where none are, the last value.
    ``clock="exposure"`` takes it to depend on how much of the domain was consumed: a draw takes the
    next of the domain's logged groups, until they are used up.

    Args:
        mix: the mixer.
        log: from :func:`read_log`.
        candidates: where draws come from.
        clock: what a domain's reward depends on.
    """
    mixer, quotas = mix.start(log.domains, log.prior.tolist()), Quotas(log.domains)
    table = log.tables[selector_of(mix)]
    frame = _Frame(log)
    groups_of = [np.flatnonzero(table.domain_M == d) for d in range(len(log.domains))]
    cursor = np.zeros(len(log.domains), dtype=np.int64)
    last: DomainStep | None = None
    end: int | None = None
    for index, number in enumerate(table.step_S):
        frame.ask(index, mixer)
        logged = log.counts_SD[index]
        drawn, pool = _draw(quotas, mixer, logged, candidates)
        replaced = np.zeros(len(drawn))
        if clock == "exposure":
            short = [d for d in range(len(drawn)) if cursor[d] + drawn[d] > len(groups_of[d])]
            if short:
                end = int(number)
                frame.used_up = tuple(log.domains[d] for d in short)
                frame.forget(index)
                break
            taken = np.concatenate(
                [g[c : c + n] for g, c, n in zip(groups_of, cursor, drawn, strict=True)]
            )
            cursor = cursor + drawn
            seen = table.observe(int(number), taken, len(drawn))
            live: Any = np.bincount(
                table.domain_M[taken], table.live_M[taken], minlength=len(drawn)
            )
        else:
            here = np.flatnonzero(table.step_M == index)
            shown = table.observe(int(number), here, len(drawn))
            seen = _at_step(shown, last, drawn, logged)
            last = shown if last is None else _latest(shown, last)
            live = drawn * frame.live_share(index)
            replaced = np.maximum(drawn - logged, 0).astype(np.float64)
        surplus = float(pool.sum() - drawn.sum()) if candidates.kind == "oversample" else 0.0
        frame.get(index, pool, drawn.astype(np.float64), live, replaced, surplus, counted=True)
        mixer.observe(seen)
    return frame.run(mix, clock, candidates, end, mixer)


def _draw(quotas: Quotas, mixer: Mixer, logged: Int, candidates: Candidates) -> tuple[Int, Float]:
    """Groups drawn of each domain (D), and the candidates they were drawn from."""
    size = int(logged.sum())
    if candidates.kind == "sync":
        return logged, logged.astype(np.float64)
    wanted = quotas.take(mixer.propose(), size)
    if candidates.kind == "prompts":
        return wanted, wanted.astype(np.float64)
    pool = np.floor(logged * candidates.batches + 1e-9).astype(np.int64)  # 1.15 · 100 is 115
    drawn = np.minimum(wanted, pool)
    while drawn.sum() < size:
        drawn[int(np.argmax(pool - drawn))] += 1  # what a domain lacks, the best supplied gives
    return drawn, pool.astype(np.float64)


def _at_step(here: DomainStep, last: DomainStep | None, drawn: Int, logged: Int) -> DomainStep:
    """The step clock's observation of a draw of ``drawn`` groups a domain."""

    def value(name: str) -> Float:
        now = getattr(here, name)
        if last is not None:
            now = np.where(np.isnan(now), getattr(last, name), now)
        return np.where(drawn > 0, now, np.nan)

    per_group = np.divide(here.responses_D, logged, out=np.zeros(len(drawn)), where=logged > 0)
    usual = here.responses_D.sum() / max(int(logged.sum()), 1)
    responses = np.rint(drawn * np.where(logged > 0, per_group, usual)).astype(np.int64)
    return DomainStep(here.step, value("reward_D"), value("advantage_D"), responses)


def _latest(seen: DomainStep, last: DomainStep) -> DomainStep:
    """Each domain's newest known values."""
    return DomainStep(
        seen.step,
        np.where(np.isnan(seen.reward_D), last.reward_D, seen.reward_D),
        np.where(np.isnan(seen.advantage_D), last.advantage_D, seen.advantage_D),
        seen.responses_D,
    )


class _Frame:
    """Collects one run's arrays."""

    def __init__(self, log: MixLog) -> None:
        self._log = log
        shape = log.counts_SD.shape
        names = ("target", "signal", "candidates", "realised", "exposures", "live", "replaced")
        self._of = {name: np.full(shape, np.nan) for name in names}
        self._surplus = np.full(shape[0], np.nan)
        self.used_up: tuple[str, ...] = ()
        table = log.tables[""]
        live = np.zeros(shape)
        np.add.at(live, (table.step_M, table.domain_M), table.live_M)
        counts = log.counts_SD
        self._live_share = np.divide(live, counts, out=np.zeros(shape), where=counts > 0)

    def live_share(self, index: int) -> Float:
        """Share of a step's logged groups that are live, by domain (D)."""
        return self._live_share[index]

    def ask(self, index: int, mixer: Mixer) -> None:
        self._of["target"][index], self._of["signal"][index] = mixer.propose(), mixer.score

    def get(
        self,
        index: int,
        pool: Float,
        drawn: Float,
        live: Float,
        replaced: Float,
        surplus: float,
        counted: bool = False,
    ) -> None:
        """Note a draw; ``live`` is a share unless ``counted``."""
        of = self._of
        of["candidates"][index], of["realised"][index] = pool, drawn
        of["replaced"][index], self._surplus[index] = replaced, surplus
        before = index - 1
        for name, now in (("exposures", drawn), ("live", live if counted else drawn * live)):
            of[name][index] = now + (of[name][before] if index else 0.0)

    def forget(self, index: int) -> None:
        """Nothing can be said from this step on."""
        self._of["target"][index] = self._of["signal"][index] = np.nan

    def run(
        self,
        mix: Mix,
        clock: Clock | None,
        candidates: Candidates | None,
        end: int | None,
        mixer: Mixer,
    ) -> MixRun:
        of = self._of
        return MixRun(
            mix,
            clock,
            candidates,
            of["target"],
            of["signal"],
            of["candidates"],
            of["realised"],
            of["exposures"],
            of["live"],
            of["replaced"],
            self._surplus,
            end,
            self.used_up,
            mixer.unseen,
        )


def clocks_of(clocks: str | Iterable[str]) -> tuple[Clock, ...]:
    """Read ``step``, ``exposure`` or ``both``, or several of them.

    Raises:
        DfsimError: anything else, or nothing.
    """
    listed = (clocks,) if isinstance(clocks, str) else tuple(clocks)
    if listed == ("both",):
        return CLOCKS
    known = (*CLOCKS, "both")
    for text in listed or ("",):
        if text not in CLOCKS:
            raise DfsimError(
                f"{option('clocks', text)} is not known{nearest(str(text), known)}; it takes: "
                f"{', '.join(known)}"
            )
    return tuple(c for c in CLOCKS if c in listed)
