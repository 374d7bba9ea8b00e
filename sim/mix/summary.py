"""What is shown of a mixer's replay: plain numbers, as the JSON holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...traces.findings import Finding, number_of, plain


@dataclass(frozen=True)
class MixSummary:
    """Estimators of one run of a mixer; D domains.

    Attributes:
        steering: mean over steps of ½ Σ_u |share asked for − share in the log| over its units.
        total_variation: mean over steps of ½ Σ_d |target − realised share|.
        floor_hits: share of (step, domain) where the target sits on the floor; NaN without one.
        volatility: mean |Δtarget| between steps and over domains.
        starved_steps: domain → steps in which it got no prompt.
        replaced: draws beyond what the log holds at their step, taken with replacement.
        surplus: groups generated and thrown away.
        supported_until: first step past the log's end (exposure clock), or ``None``.
        steps: steps that could be played.
        mean_target: domain → mean target.
        last_target: domain → last target.
        realised: domain → groups drawn.
    """

    steering: float
    total_variation: float
    floor_hits: float
    volatility: float
    starved_steps: Mapping[str, int]
    replaced: int
    surplus: int
    supported_until: int | None
    steps: int
    mean_target: Mapping[str, float]
    last_target: Mapping[str, float]
    realised: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> MixSummary:
        """Read what :meth:`to_dict` wrote."""
        return cls(**{n: v if n == "supported_until" else number_of(v) for n, v in record.items()})


@dataclass(frozen=True)
class MixReport:
    """One mixer on one trace, without its steps.

    Attributes:
        name: as the user wrote it.
        params: every parameter with its value.
        level: what it draws by: ``domain`` or ``prompt``.
        source: where the rule comes from.
        candidates: where draws came from, as on the command line.
        runs: ``asked`` and each clock → estimators.
        clock_gap: mean difference of the mix between the clocks; ``None`` with one clock.
        diagnosis: findings, most drastic first.
    """

    name: str
    params: Mapping[str, Any]
    level: str
    source: str
    candidates: str
    runs: Mapping[str, MixSummary]
    clock_gap: float | None
    diagnosis: Sequence[Finding]

    @property
    def domains(self) -> list[str]:
        """Domains of the log."""
        return list(self.runs["asked"].realised)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; the name is the key that it stands under."""
        return {
            "params": dict(self.params),
            "level": self.level,
            "source": self.source,
            "candidates": self.candidates,
            "runs": {name: s.to_dict() for name, s in self.runs.items()},
            "clock_gap": plain(self.clock_gap),
            "diagnosis": [d.to_dict() for d in self.diagnosis],
        }

    @classmethod
    def from_dict(cls, name: str, record: Mapping[str, Any]) -> MixReport:
        """Read what :meth:`to_dict` wrote."""
        return cls(
            name=name,
            params=record["params"],
            level=record["level"],
            source=record["source"],
            candidates=record["candidates"],
            runs={n: MixSummary.from_dict(s) for n, s in record["runs"].items()},
            clock_gap=record["clock_gap"],
            diagnosis=[Finding.from_dict(d) for d in record["diagnosis"]],
        )
