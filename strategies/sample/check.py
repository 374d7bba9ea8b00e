"""Invariants that every sampler must hold; the tests run them over the whole catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np

from ...traces.errors import StrategyError
from .base import SamplingStrategy, UnitSampler, UnitStep

_STEPS = 12


class _BrokenError(Exception):
    """An invariant does not hold; the text says what was seen."""


def check_sampler(strategy: SamplingStrategy, seed: int) -> list[str]:
    """Check a sampler against every invariant; see :func:`dfsim.check_strategy`."""
    passed = []
    for check in _CHECKS:
        invariant = check.__name__.strip("_")
        for size in (1, 2, 5):
            rng = np.random.default_rng((seed, size))
            units = [f"u{index}" for index in range(size)]
            steps = [_random_step(rng, number, size) for number in range(1, _STEPS + 1)]
            try:
                check(strategy, units, steps)
            except (_BrokenError, StrategyError) as broken:
                raise _report(strategy, invariant, size, str(broken)) from None
            except Exception as error:
                seen = f"it raised {type(error).__name__}: {error}"
                raise _report(strategy, invariant, size, seen) from error
        passed.append(invariant)
    return passed


def _random_step(rng: np.random.Generator, step: int, size: int) -> UnitStep:
    """A step that shows each unit or not; its first unit is hidden for long."""
    shown = rng.random(size) < 0.6
    shown[0] &= step > _STEPS // 2 or size == 1
    reward = np.where(shown, rng.choice([0.0, 0.25, 0.5, 1.0], size), np.nan)
    advantage = np.where(shown, rng.exponential(1.0, size), np.nan)
    return UnitStep(step, reward, advantage, np.where(shown, rng.integers(1, 9, size), 0))


def _observed(
    strategy: SamplingStrategy, units: Sequence[str], steps: Sequence[UnitStep]
) -> UnitSampler:
    sampler = strategy.start(units)
    for step in steps:
        sampler.observe(step)
    return sampler


def _same(one: UnitSampler, other: UnitSampler, what: str) -> None:
    first, second = one.propose(), other.propose()
    if not np.array_equal(first, second):
        raise _BrokenError(f"{what}: proposed {second.tolist()}, before {first.tolist()}")


def _proposals_are_finite_and_not_negative(
    strategy: SamplingStrategy, units: Sequence[str], steps: Sequence[UnitStep]
) -> None:
    sampler = strategy.start(units)
    for step in steps:
        sampler.propose()  # refuses what is no proposal
        sampler.observe(step)
    sampler.propose()


def _asking_changes_nothing(
    strategy: SamplingStrategy, units: Sequence[str], steps: Sequence[UnitStep]
) -> None:
    sampler = _observed(strategy, units, steps)
    before = json.dumps(sampler.state_dict())
    _same(sampler, sampler, "asking again")
    sampler.metrics()
    if json.dumps(sampler.state_dict()) != before:
        raise _BrokenError("asking changed its state")


def _same_observations_same_proposals(
    strategy: SamplingStrategy, units: Sequence[str], steps: Sequence[UnitStep]
) -> None:
    for count in range(len(steps) + 1):
        one, other = (_observed(strategy, units, steps[:count]) for _ in range(2))
        _same(one, other, f"{count} steps")


def _state_survives_a_restart(
    strategy: SamplingStrategy, units: Sequence[str], steps: Sequence[UnitStep]
) -> None:
    for count in (0, 1, len(steps) // 2):
        kept = _observed(strategy, units, steps[:count])
        restarted = strategy.start(units)
        restarted.load_state_dict(json.loads(json.dumps(kept.state_dict())))
        _same(kept, restarted, f"restarted after {count} steps")
        for step in steps[count:]:
            kept.observe(step)
            restarted.observe(step)
            _same(kept, restarted, f"restarted after {count} steps, at step {step.step}")


def _a_step_that_shows_nothing_is_fine(
    strategy: SamplingStrategy, units: Sequence[str], steps: Sequence[UnitStep]
) -> None:
    nan = np.full(len(units), np.nan)
    nothing = UnitStep(1, nan, nan.copy(), np.zeros(len(units), dtype=np.int64))
    _observed(strategy, units, [nothing, *steps, nothing]).propose()


def _observations_are_left_unchanged(
    strategy: SamplingStrategy, units: Sequence[str], steps: Sequence[UnitStep]
) -> None:
    before = [json.dumps(step.to_dict()) for step in steps]
    _observed(strategy, units, steps).propose()
    for step, text in zip(steps, before, strict=True):
        if json.dumps(step.to_dict()) != text:
            raise _BrokenError(f"it changed what step {step.step} showed")


_CHECKS: tuple[Callable[[SamplingStrategy, Sequence[str], Sequence[UnitStep]], None], ...] = (
    _proposals_are_finite_and_not_negative,
    _asking_changes_nothing,
    _same_observations_same_proposals,
    _state_survives_a_restart,
    _a_step_that_shows_nothing_is_fine,
    _observations_are_left_unchanged,
)


def _report(strategy: SamplingStrategy, invariant: str, size: int, seen: str) -> StrategyError:
    words = invariant.replace("_", " ")
    return StrategyError(f"{strategy.name} breaks '{words}': {seen}. Seen over {size} units")
