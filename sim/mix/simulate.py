"""Replay of samplers: what they would ask for on a log, and what they would get.

Asking is exact: the sampler sees the statistics of the logged steps. Getting needs two models,
since a log does not show the draws that a sampler would have made: where candidates come from, and
what the reward of a unit (a domain, or a prompt) depends on: a clock. Both are named in every
result. The state is censored: a sampler sees what came of its own draws and nothing else.

Shapes: S steps, U units of the sampler's level, D domains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ...strategies.sample.base import SamplingStrategy, UnitSampler, UnitStep
from ...strategies.sample.quota import Quotas, draw_prompts
from ...traces.errors import DfsimError, nearest
from ...traces.ragged import Float, Int, ratio
from ...traces.spelling import option
from .log import MixLog, Units, selector_of

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
    def read(cls, given: Candidates | str | None) -> Candidates:
        """Read what a caller gives; nothing is ``prompts``."""
        if given is None:
            return cls()
        return cls.parse(given) if isinstance(given, str) else given

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
    """One sampler over the steps of a log, by domain; NaN where nothing can be said.

    Attributes:
        mix: the sampler.
        clock: what a unit's reward depends on; ``None`` for what it asks on the log itself.
        candidates: where draws come from; ``None`` likewise.
        steering_S: ½ Σ_u |share asked for − share in the log| over its units.
        target_SD: proportions asked for.
        signal_SD: the statistic behind them, the mean over a domain's prompts.
        candidates_SD: prompt groups there to choose from.
        realised_SD: prompt groups drawn.
        exposures_SD: groups drawn so far, this step included.
        live_exposures_SD: those of them with a signal (expected, under the step clock).
        replaced_SD: draws beyond what the log holds: of a domain at the step, with replacement; of
            a prompt at the step (step clock) or ever after (exposure clock), another visit stands
            in.
        surplus_S: groups generated and thrown away.
        supported_until: first step at which a domain's log is used up, or ``None``.
        used_up: those domains.
        unseen: units never seen, or with NaN rewards only.
    """

    mix: SamplingStrategy
    clock: Clock | None
    candidates: Candidates | None
    steering_S: Float
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


def asked(mix: SamplingStrategy, log: MixLog) -> MixRun:
    """What the sampler would have asked for, had it watched the logged run. Exact."""
    units = log.units[mix.level]
    sampler = mix.start(units.names, units.prior.tolist())
    frame = _Frame(log, units)
    live_M = log.tables[""].live_M
    for index, seen in enumerate(log.steps[mix.name]):
        frame.ask(index, sampler)
        here = np.flatnonzero(log.step_M == index)
        unit_U = np.bincount(units.unit_M[here], minlength=len(units.names)).astype(np.float64)
        live_U = np.bincount(units.unit_M[here], live_M[here], minlength=len(units.names))
        frame.get(index, log.counts_SD[index].astype(np.float64), unit_U, live_U)
        sampler.observe(seen)
    return frame.run(mix, None, None, None, sampler)


def steering(mix: SamplingStrategy, log: MixLog, order_M: Int) -> float:
    """Mean over steps of ½ Σ_u |share asked for − share in the log|, with outcomes exchanged.

    Args:
        mix: the sampler.
        log: of a :class:`dfsim.sim.mix.log.LogReader`.
        order_M: the group whose outcome each logged group shows; its own leaves the log as it is.
    """
    units, table = log.units[mix.level], log.tables[selector_of(mix)]
    sampler = mix.start(units.names, units.prior.tolist())
    away = []
    for index, number in enumerate(log.step_S):
        away.append(_distance(sampler.propose(), units.prior))
        here = np.flatnonzero(log.step_M == index)
        sampler.observe(table.observe(int(number), here, units, order_M[here]))
    return float(np.mean(away)) if away else np.nan


def simulate(
    mix: SamplingStrategy, log: MixLog, candidates: Candidates, clock: Clock, seed: int = 0
) -> MixRun:
    """What the sampler would get, drawing from the log's groups in its place.

    ``clock="step"`` takes performance to depend on training time: a domain's observation at t is
    the mean of its groups logged at t, however many are drawn; where none are, the last value. A
    prompt's is its visit at t, else its last one before, else its first one after.
    ``clock="exposure"`` takes it to depend on how much was consumed: a draw takes the next of the
    unit's logged groups. Where a domain's are used up the replay ends; a prompt's last one stands
    in again.

    Args:
        mix: the sampler.
        log: of a :class:`dfsim.sim.mix.log.LogReader`.
        candidates: where draws come from.
        clock: what a unit's reward depends on.
        seed: of the draw of prompts.
    """
    units, table = log.units[mix.level], log.tables[selector_of(mix)]
    prompts, size = mix.level == "prompt", len(units.names)
    sampler = mix.start(units.names, units.prior.tolist())
    draw = _PromptDraw(units, candidates, seed) if prompts else _DomainDraw(log, candidates)
    frame, visits = _Frame(log, units), _Visits(units)
    last: UnitStep | None = None
    live_share_U = np.zeros(size)
    if prompts:
        last = table.observe(0, visits.first, units)
        live_share_U = table.live_M[visits.first].astype(np.float64)
    end: int | None = None
    for index, number in enumerate(log.step_S):
        frame.ask(index, sampler)
        here = np.flatnonzero(log.step_M == index)
        logged_U = np.bincount(units.unit_M[here], minlength=size)
        drawn_U, pool_D = draw(sampler.propose(), logged_U, index)
        if clock == "exposure":
            beyond_U = visits.beyond(drawn_U)
            if not prompts and beyond_U.any():
                end = int(number)
                frame.used_up = tuple(log.domains[d] for d in np.flatnonzero(beyond_U))
                frame.forget(index)
                break
            taken = visits.take(drawn_U)
            seen = table.observe(int(number), taken, units)
            live_U = np.bincount(units.unit_M[taken], table.live_M[taken], minlength=size) * 1.0
            replaced_U = beyond_U
        else:
            shown = table.observe(int(number), here, units)
            seen = _at_step(shown, last, drawn_U, logged_U)
            last = shown if last is None else _latest(shown, last)
            live_now_U = ratio(np.bincount(units.unit_M[here], table.live_M[here], size), logged_U)
            carried_U = live_share_U if prompts else np.zeros(size)
            live_share_U = np.where(logged_U > 0, live_now_U, carried_U)
            live_U = drawn_U * live_share_U
            replaced_U = np.maximum(drawn_U - logged_U, 0)
        surplus = float(pool_D.sum() - drawn_U.sum()) if candidates.kind == "oversample" else 0.0
        frame.get(index, pool_D, drawn_U.astype(np.float64), live_U, replaced_U, surplus)
        sampler.observe(seen)
    return frame.run(mix, clock, candidates, end, sampler)


def _distance(share_U: Float, prior_U: Float) -> float:
    """Total variation between two mixes of units (U)."""
    return float(0.5 * np.abs(share_U - prior_U).sum())


class _Visits:
    """Each unit's logged groups, in the order of the log, and how many of them were consumed."""

    def __init__(self, units: Units) -> None:
        size = len(units.names)
        self._order_M = np.argsort(units.unit_M, kind="stable")
        self._count_U = np.bincount(units.unit_M, minlength=size)
        self._start_U = np.concatenate(([0], np.cumsum(self._count_U)[:-1]))
        self._consumed_U = np.zeros(size, dtype=np.int64)

    @property
    def first(self) -> Int:
        """First logged group of each unit (U), each of which has one."""
        return self._order_M[self._start_U]

    def beyond(self, drawn_U: Int) -> Int:
        """Draws of each unit (U) that its log does not hold any more."""
        left = np.maximum(self._count_U - self._consumed_U, 0)
        return np.maximum(drawn_U - left, 0)

    def take(self, drawn_U: Int) -> Int:
        """The next groups, unit by unit; a unit's last one again where it has no more."""
        unit = np.repeat(np.arange(len(drawn_U)), drawn_U)
        before = np.repeat(np.cumsum(drawn_U) - drawn_U, drawn_U)
        nth = self._consumed_U[unit] + np.arange(len(unit)) - before
        self._consumed_U = self._consumed_U + drawn_U
        return self._order_M[self._start_U[unit] + np.minimum(nth, self._count_U[unit] - 1)]


class _DomainDraw:
    """Groups drawn of each domain, whole ones whose rounding does not drift."""

    def __init__(self, log: MixLog, candidates: Candidates) -> None:
        self._quotas, self._candidates = Quotas(log.domains), candidates

    def __call__(self, share_U: Float, logged_U: Int, step: int) -> tuple[Int, Float]:
        """Groups drawn of each domain (D), and the candidates they were drawn from."""
        size = int(logged_U.sum())
        if self._candidates.kind == "sync":
            return logged_U, logged_U.astype(np.float64)
        wanted = self._quotas.take(share_U, size)
        if self._candidates.kind == "prompts":
            return wanted, wanted.astype(np.float64)
        pool = np.floor(logged_U * self._candidates.batches + 1e-9).astype(np.int64)  # 1.15·100=115
        drawn = np.minimum(wanted, pool)
        while drawn.sum() < size:  # the best supplied domain gives what another lacks
            drawn[int(np.argmax(pool - drawn))] += 1
        return drawn, pool.astype(np.float64)


class _PromptDraw:
    """Prompts drawn by their shares, of all prompts or of a pool that is drawn evenly first."""

    def __init__(self, units: Units, candidates: Candidates, seed: int) -> None:
        self._units, self._candidates, self._seed = units, candidates, seed
        self._domains = int(units.domain_U.max()) + 1

    def __call__(self, share_U: Float, logged_U: Int, step: int) -> tuple[Int, Float]:
        """Groups drawn of each prompt (U), and the candidates of each domain (D)."""
        count, size = int(logged_U.sum()), len(share_U)
        rng = np.random.default_rng((self._seed, step))
        if self._candidates.kind == "sync":
            return logged_U, self._by_domain(logged_U)
        if self._candidates.kind == "oversample":
            pool = rng.permutation(size)[: int(count * self._candidates.batches)]
            inside = np.zeros(size)
            inside[pool] = share_U[pool]
            share_U = inside if inside.any() else np.isin(np.arange(size), pool) / len(pool)
            candidates_U = np.bincount(pool, minlength=size)
        drawn_U = np.bincount(draw_prompts(share_U, count, rng), minlength=size)
        oversampled = self._candidates.kind == "oversample"
        return drawn_U, self._by_domain(candidates_U if oversampled else drawn_U)

    def _by_domain(self, count_U: Int) -> Float:
        return self._units.by_domain(count_U.astype(np.float64), self._domains)


def _at_step(here: UnitStep, last: UnitStep | None, drawn_U: Int, logged_U: Int) -> UnitStep:
    """The step clock's observation of a draw of ``drawn_U`` groups of each unit."""

    def value(now: Float, before: Float | None) -> Float:
        now = now if before is None else np.where(np.isnan(now), before, now)
        return np.where(drawn_U > 0, now, np.nan)

    per_group = ratio(here.responses_U, logged_U)
    usual = here.responses_U.sum() / max(int(logged_U.sum()), 1)
    responses = np.rint(drawn_U * np.where(logged_U > 0, per_group, usual)).astype(np.int64)
    return UnitStep(
        here.step,
        value(here.reward_U, None if last is None else last.reward_U),
        value(here.advantage_U, None if last is None else last.advantage_U),
        responses,
    )


def _latest(seen: UnitStep, last: UnitStep) -> UnitStep:
    """Each unit's newest values."""
    return UnitStep(
        seen.step,
        np.where(np.isnan(seen.reward_U), last.reward_U, seen.reward_U),
        np.where(np.isnan(seen.advantage_U), last.advantage_U, seen.advantage_U),
        seen.responses_U,
    )


class _Frame:
    """Collects one run's arrays, by domain."""

    def __init__(self, log: MixLog, units: Units) -> None:
        self._units, (steps, self._domains) = units, log.counts_SD.shape
        names = ("target", "signal", "candidates", "realised", "exposures", "live", "replaced")
        self._arrays = {name: np.full((steps, self._domains), np.nan) for name in names}
        self._surplus, self._steering = np.full(steps, np.nan), np.full(steps, np.nan)
        self._prior = units.prior
        self.used_up: tuple[str, ...] = ()

    def ask(self, index: int, sampler: UnitSampler) -> None:
        """Note what is asked for."""
        share_U, arrays = sampler.propose(), self._arrays
        self._steering[index] = _distance(share_U, self._prior)
        arrays["target"][index] = self._units.by_domain(share_U, self._domains)
        arrays["signal"][index] = self._units.mean_by_domain(sampler.signal_U, self._domains)

    def get(
        self,
        index: int,
        pool_D: Float,
        drawn_U: Float,
        live_U: Any,
        replaced_U: Any = 0,
        surplus: float = 0.0,
    ) -> None:
        """Note a draw, the live groups in it, and what stood in for what the log lacks."""
        arrays, size = self._arrays, len(drawn_U)
        drawn_D, live_D, replaced_D = (
            self._units.by_domain(np.broadcast_to(values, size), self._domains)
            for values in (drawn_U, live_U, replaced_U)
        )
        arrays["candidates"][index], arrays["realised"][index] = pool_D, drawn_D
        arrays["replaced"][index], self._surplus[index] = replaced_D, surplus
        for name, now in (("exposures", drawn_D), ("live", live_D)):
            arrays[name][index] = now + (arrays[name][index - 1] if index else 0.0)

    def forget(self, index: int) -> None:
        """Nothing can be said from this step on."""
        self._arrays["target"][index] = self._arrays["signal"][index] = np.nan
        self._steering[index] = np.nan

    def run(
        self,
        mix: SamplingStrategy,
        clock: Clock | None,
        candidates: Candidates | None,
        end: int | None,
        sampler: UnitSampler,
    ) -> MixRun:
        """Everything noted."""
        arrays = self._arrays
        return MixRun(
            mix=mix,
            clock=clock,
            candidates=candidates,
            steering_S=self._steering,
            target_SD=arrays["target"],
            signal_SD=arrays["signal"],
            candidates_SD=arrays["candidates"],
            realised_SD=arrays["realised"],
            exposures_SD=arrays["exposures"],
            live_exposures_SD=arrays["live"],
            replaced_SD=arrays["replaced"],
            surplus_S=self._surplus,
            supported_until=end,
            used_up=self.used_up,
            unseen=sampler.unseen,
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
