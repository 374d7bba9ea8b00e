"""When a response counts as solved, and whether the data allow that reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from ..strategies.signals import SUCCESS_THRESHOLD
from ..traces.batch import RolloutBatch
from ..traces.findings import Finding
from ..traces.ragged import Bool, Float
from ..traces.spelling import option

MAX_LEVELS = 12
"""Distinct values up to which a reward counts as one of few levels, beyond as continuous."""
WIDER = 2.0
"""A gap between two levels that is this many times as wide as the threshold's own is the better."""


@dataclass(frozen=True)
class Success:
    """The rule by which a response counts as solved.

    Attributes:
        column: ``reward``, or a numeric column of the verifier.
        threshold: a response is solved above it; ``None``: not given, so 0.5.
    """

    column: str = "reward"
    threshold: float | None = None

    @property
    def limit(self) -> float:
        """The threshold that is used."""
        return SUCCESS_THRESHOLD if self.threshold is None else self.threshold

    @property
    def parameters(self) -> dict[str, Any]:
        """What a user chose, as parameters of rules that go by success."""
        chosen: dict[str, Any] = {} if self.column == "reward" else {"success": self.column}
        return chosen if self.threshold is None else {**chosen, "success_threshold": self.threshold}

    @property
    def given(self) -> bool:
        """Whether a user chose it."""
        return self.threshold is not None or self.column != "reward"

    def __str__(self) -> str:
        return f"{self.column} > {self.limit:g}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read for it."""
        return () if self.column == "reward" else (self.column,)

    def solved_N(self, batch: RolloutBatch) -> Bool:
        """Whether each response is solved."""
        return batch.column(self.column, "the success rate") > self.limit


@dataclass
class LevelCheck:
    """Adds up a success column's values, to see on which side of the threshold they lie."""

    success: Success
    _all: Counter[float] = field(default_factory=Counter)
    _by_domain: dict[str, Counter[float]] = field(default_factory=dict)
    _low: float = np.inf
    _high: float = -np.inf
    _above: int = 0
    _count: int = 0
    _binary: dict[str, set[float] | None] = field(default_factory=dict)

    def add(self, batch: RolloutBatch) -> None:
        """Add one step."""
        values = batch.column(self.success.column, "the success rate").astype(np.float64)
        self._add(values[np.isfinite(values)], self._all)
        if batch.domain_N is not None:
            for code in np.unique(batch.domain_N):
                inside = values[batch.domain_N == code]
                counter = self._by_domain.setdefault(batch.domains[code], Counter())
                _count(inside[np.isfinite(inside)], counter)
        for name, column in batch.extras.items():
            if name != self.success.column:
                self._note_binary(name, column)

    def _add(self, known: Float, counter: Counter[float]) -> None:
        if len(known):
            self._low, self._high = min(self._low, known.min()), max(self._high, known.max())
            self._above += int((known > self.success.limit).sum())
            self._count += len(known)
        _count(known, counter)

    def _note_binary(self, name: str, column: Float) -> None:
        seen = self._binary.setdefault(name, set())
        if seen is not None:
            seen |= set(np.unique(column[np.isfinite(column)])[:3].tolist())
            self._binary[name] = seen if seen <= {0.0, 1.0} else None

    @property
    def levels(self) -> dict[float, int]:
        """Value → responses; empty where there are more than a dozen values."""
        return dict(self._all) if len(self._all) <= MAX_LEVELS else {}

    @property
    def continuous(self) -> bool:
        """Whether the values are too many to be levels."""
        return len(self._all) > MAX_LEVELS

    def findings(self) -> Iterator[Finding]:
        """That the threshold splits nothing, or in another place than the values do."""
        if not self._count or self._high <= self._low:
            return
        whole = self._above in (0, self._count)
        one_sided = {} if whole else self._one_sided_domains()
        wider = None if whole or one_sided else self._shared_gap()
        if not (whole or one_sided or wider):
            return
        side = "above" if self._above else "at or below"
        where = f"every value lies {side} it ({self._low:g} … {self._high:g})"
        if one_sided:
            named = ", ".join(
                f"'{domain}' ({low:g} … {high:g})" for domain, (low, high) in one_sided.items()
            )
            where = f"all values of domain {named} lie on one side of it"
        elif wider is not None:
            low, high = wider
            where = f"the widest gap between values is elsewhere, from {low:g} to {high:g}"
        yield Finding(
            "threshold_misplaced",
            f"Solved means {self.success} here, and {where}: success rates, and rules that go by "
            f"them (difffilter), may not mean what you think. {self._remedy(wider)}",
            {
                "column": self.success.column,
                "threshold": self.success.limit,
                "low": self._low,
                "high": self._high,
                "solved": self._above,
                "responses": self._count,
                "domains": list(one_sided),
                "suggested": self._suggested(wider),
            },
        )

    def _one_sided_domains(self) -> dict[str, tuple[float, float]]:
        found = {}
        for domain, counter in self._by_domain.items():
            low, high = min(counter, default=0.0), max(counter, default=0.0)
            if high > low and (low > self.success.limit or high <= self.success.limit):
                found[domain] = (float(low), float(high))
        return found

    def _shared_gap(self) -> tuple[float, float] | None:
        """The wider gap of the levels, if every domain of several levels has it too."""
        counters = [c for c in self._by_domain.values() if len(c) > 1] or [self._all]
        if any(len(counter) > MAX_LEVELS for counter in counters):
            return None
        gaps = {self._wider_gap(counter) for counter in counters}
        return gaps.pop() if len(gaps) == 1 else None

    def _wider_gap(self, levels: Mapping[float, int]) -> tuple[float, float] | None:
        """The widest gap between neighbouring levels, if it is not the threshold's and wider."""
        gaps = list(pairwise(sorted(levels)))
        own = next((g for g in gaps if g[0] <= self.success.limit < g[1]), None)
        if own is None:
            return None
        widest = max(gaps, key=lambda g: g[1] - g[0])
        return widest if widest[1] - widest[0] >= WIDER * (own[1] - own[0]) else None

    def _suggested(self, wider: tuple[float, float] | None) -> float | None:
        if wider is None and len(self.levels) > 1:
            wider = max(pairwise(sorted(self.levels)), key=lambda g: g[1] - g[0])
        return None if wider is None else (wider[0] + wider[1]) / 2

    def _remedy(self, wider: tuple[float, float] | None) -> str:
        suggested = self._suggested(wider)
        value = "VALUE" if suggested is None else f"{suggested:g}"
        columns = [name for name, seen in self._binary.items() if seen == {0.0, 1.0}]
        column = option("success", columns[0] if columns else "COLUMN")
        return f"Give {option('success_threshold', value)}, or {column}."


def _count(values: Any, counter: Counter[float]) -> None:
    if len(counter) <= MAX_LEVELS:
        counter.update(values.tolist())
