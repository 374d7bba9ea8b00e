"""What a live run is asked to do: the values behind ``+dfsim.``, whichever trainer reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...strategies.build import AnyStrategy
from ...strategies.sample.base import SamplingStrategy
from .delivery import OnEmpty, Rescale
from .promotion import Promotion
from .record import strategy_record

Tokens = Literal["auto", "none", "all"]
OnError = Literal["warn", "raise"]


@dataclass(frozen=True)
class CaptureSettings:
    """``+dfsim.capture.*``.

    Attributes:
        dir: folder of the trace, on the host of verl's task runner.
        tokens: token lists: ``all``, ``none``, or ``auto`` (where a strategy of the run needs them,
            or a step holds at most ``AUTO_TOKENS`` of them).
        every: capture every K-th step.
        text: store prompt and response text.
        label: a caution to print beside every result.
        queue_steps: steps that may wait for the disk.
        on_error: ``warn`` counts a failed write and trains on, ``raise`` stops the run.
    """

    dir: Path
    tokens: Tokens = "auto"
    every: int = 1
    text: bool = False
    label: str = ""
    queue_steps: int = 4
    on_error: OnError = "warn"


@dataclass(frozen=True)
class LiveSettings:
    """Everything behind ``+dfsim.``.

    Attributes:
        strategy: the one to deliver, of any kind, or ``None``.
        shadows: decided every step, applied never.
        rescale: see :func:`dfsim.live.core.delivery.apply`.
        on_empty: see :func:`dfsim.live.core.delivery.apply`.
        domain: dataset column that names the domain; ``None``: ``domain``, else ``data_source``.
        capture: where and what to capture, or ``None``.
        promotion: the promotion that ``strategy`` comes from.
    """

    strategy: AnyStrategy | None = None
    shadows: tuple[AnyStrategy, ...] = ()
    rescale: Rescale = "none"
    on_empty: OnEmpty = "skip_update"
    domain: str | None = None
    capture: CaptureSettings | None = None
    promotion: Promotion | None = None

    @property
    def strategies(self) -> tuple[AnyStrategy, ...]:
        """The delivered one, if any, and the shadows."""
        return (*((self.strategy,) if self.strategy else ()), *self.shadows)

    @property
    def weights(self) -> AnyStrategy | None:
        """The delivered one where it weighs what was drawn."""
        return self.strategy if self.strategy is not None and self.strategy.weighs else None

    @property
    def sampler(self) -> SamplingStrategy | None:
        """The delivered one where it says what to draw."""
        return self.strategy if isinstance(self.strategy, SamplingStrategy) else None

    @property
    def shadow_samplers(self) -> list[SamplingStrategy]:
        """Shadows that say what to draw."""
        return [shadow for shadow in self.shadows if isinstance(shadow, SamplingStrategy)]

    def record(self) -> dict[str, Any]:
        """As a trace's manifest keeps it, for ``dfsim verify``."""
        return {
            "strategy": None if self.strategy is None else strategy_record(self.strategy),
            "shadow": [strategy_record(s) for s in self.shadows],
            "rescale": self.rescale,
            "on_empty": self.on_empty,
            "promotion": None if self.promotion is None else self.promotion.digest,
        }
