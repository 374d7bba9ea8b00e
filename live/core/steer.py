"""The samplers of a live run: the one that draws its prompts, and those that only watch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...strategies.base import Decision
from ...strategies.sample.base import SamplingStrategy, UnitSampler, unit_names
from ...strategies.sample.mixer import MixRule
from ...traces.batch import RolloutBatch
from ...traces.findings import plain
from ...traces.ragged import Float, Int
from .sampler import ROW_SAMPLERS, RowSampler, TrainingSet, start_sampler, watch

DRAWN = ("target", "signal", "drawn", "exposures", "live_exposures")
"""What is noted of a draw, each by domain."""


class Steering:
    """What a run's samplers ask for, see and draw.

    Args:
        delivered: the one that draws, or ``None``.
        shadows: those that watch.
        training_set: the run's.
        batch_size: prompts a step.
        seed: of the draw.
        say: prints one line where the user looks.

    Attributes:
        rows: what the trainer's loader draws by, or ``None``.

    Raises:
        StrategyError: a sampler can't start on this training set.
    """

    def __init__(
        self,
        delivered: SamplingStrategy | None,
        shadows: Sequence[SamplingStrategy],
        training_set: TrainingSet,
        batch_size: int,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self._training_set, self._seed, self._say = training_set, seed, say
        self.rows: RowSampler | None = None
        if delivered is not None:
            draw_by = ROW_SAMPLERS[delivered.level]
            self.rows = draw_by(delivered, training_set, batch_size, seed)
        domains, rows_D = training_set.domains, training_set.rows_D.tolist()
        self._shadows: dict[str, tuple[SamplingStrategy, UnitSampler]] = {
            shadow.name: (shadow, start_sampler(shadow, domains, rows_D)) for shadow in shadows
        }
        self._since: int | None = None
        self._said: set[str] = set()

    @property
    def domains(self) -> Sequence[str]:
        """Of the training set."""
        return self._training_set.domains

    def record(self) -> dict[str, Any]:
        """What :func:`dfsim.live.core.sampler.start_sampler` needs, for the manifest."""
        rows = self._training_set.rows_D.tolist()
        return {"domains": list(self.domains), "rows": rows, "seed": self._seed}

    def watch(
        self, batch: RolloutBatch, row_G: Int | None, decisions: Mapping[str, Decision]
    ) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Note what each sampler asked for before this step, then let it see what came of it.

        Args:
            batch: the step.
            row_G: row of the training set of each group, where a sampler draws by row.
            decisions: strategy → decision, of those that weigh.

        Returns:
            What was drawn, by ``DRAWN``; and shadow → what it asked for.
        """
        if self._since is None:
            self._since = batch.step
        drawn = None if self.rows is None else self._watch_rows(self.rows, batch, row_G, decisions)
        asked: dict[str, Any] = {}
        for name, (strategy, sampler) in list(self._shadows.items()):
            if strategy.weighs and name not in decisions:  # its selector was dropped, and said so
                del self._shadows[name]
                continue
            try:
                target_U = sampler.propose()
                watch(sampler, strategy, batch, row_G, decisions.get(name))
            except Exception as error:  # a shadow must not stop what it does not touch
                del self._shadows[name]
                self._say(dropped_shadow(name, batch.step, error))
                continue
            target = self._training_set.by_domain(strategy, target_U).tolist()
            asked[name] = {"since": self._since, "target": target, "digest": digest_of(target_U)}
        return drawn, asked

    def _watch_rows(
        self,
        rows: RowSampler,
        batch: RolloutBatch,
        row_G: Int | None,
        decisions: Mapping[str, Decision],
    ) -> dict[str, Any]:
        strategy, sampler = rows.strategy, rows.sampler
        named = [self.domains[0]] * batch.num_groups
        if batch.domain_G is not None:
            named = unit_names(batch, "domain")
        rows.saw([name for name, live in zip(named, batch.live_G, strict=True) if live])
        signal_D = self._training_set.mean_by_domain(strategy, sampler.signal_U)
        drawn = {
            "target": self._training_set.by_domain(strategy, rows.target_U).tolist(),
            "signal": [plain(value) for value in signal_D.tolist()],
            "drawn": rows.drawn_D.tolist(),
            "exposures": rows.exposures_D.tolist(),
            "live_exposures": rows.live_exposures_D.tolist(),
            "digest": digest_of(rows.target_U),
            "metrics": sampler.metrics(),
        }
        watch(sampler, strategy, batch, row_G, decisions.get(strategy.name))
        self._warn_unseen(sampler, strategy, batch.step)
        return drawn

    def _warn_unseen(self, sampler: UnitSampler, strategy: SamplingStrategy, step: int) -> None:
        rule, unseen = strategy.rule, ", ".join(sampler.unseen)
        late = isinstance(rule, MixRule) and step > rule.window_steps
        if unseen and late and unseen not in self._said:
            self._said.add(unseen)
            self._say(
                f"dfsim: step {step}: the mixer never got a reward of {unseen}; such a domain "
                "counts as its best-scoring one"
            )


def digest_of(target_U: Float) -> str:
    """Digest of a proposal's bits."""
    return hashlib.blake2b(target_U.tobytes(), digest_size=8).hexdigest()


def dropped_shadow(name: str, step: int, error: Exception) -> str:
    """What the log says of a shadow that failed at a step."""
    return f"dfsim: shadow {name} is dropped from step {step} on ({type(error).__name__}: {error})"
