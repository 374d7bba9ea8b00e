"""What the data themselves show, whatever a strategy does with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from ...traces.advantage import Estimator
from ...traces.batch import RolloutBatch
from ...traces.checks.advantages import AdvantageCheck, AdvantageReport, contradictions
from ...traces.findings import Finding
from ...traces.ragged import Int, segment_max, segment_sum
from ..success import LevelCheck, Success

if TYPE_CHECKING:
    from ...traces.storage.store import Trace

COLUMNS = ("num_tokens", "truncated", "policy_version_min", "policy_version_max")
"""Columns that it reads where a trace has them."""
TRUNCATED_LIMIT = 0.05
"""Share of responses, or of live groups, from which truncation is a finding."""


@dataclass
class Truncation:
    """Responses that ended at the length limit.

    Attributes:
        responses: all of them.
        truncated: those that ended by length.
        tokens: of all responses.
        truncated_tokens: of those that ended by length.
        live: groups whose rewards differ.
        live_by_length: of them, those whose every response below the best ended by length.
    """

    responses: int = 0
    truncated: int = 0
    tokens: int = 0
    truncated_tokens: int = 0
    live: int = 0
    live_by_length: int = 0

    @property
    def frac(self) -> float:
        """Share of responses."""
        return self.truncated / max(self.responses, 1)

    @property
    def token_frac(self) -> float:
        """Share of tokens that they hold; NaN where lengths are unknown."""
        return self.truncated_tokens / self.tokens if self.tokens else np.nan

    @property
    def live_frac(self) -> float:
        """Share of live groups that fail only by length."""
        return self.live_by_length / max(self.live, 1)

    def add(self, batch: RolloutBatch, limit: int | None) -> bool:
        """Add one step; whether it says which responses ended by length.

        Args:
            batch: the step.
            limit: most tokens of a response, where the run's settings say it.
        """
        ended = batch.truncated_N
        if ended is None and limit is not None and batch.num_tokens_N is not None:
            ended = (batch.num_tokens_N >= limit).astype(np.int64)
        if ended is None:
            return False
        cut = ended > 0
        self.responses += batch.num_responses
        self.truncated += int(cut.sum())
        if batch.num_tokens_N is not None:
            self.tokens += int(batch.num_tokens_N.sum())
            self.truncated_tokens += int(batch.num_tokens_N[cut].sum())
        reward = np.where(np.isnan(batch.reward_N), -np.inf, batch.reward_N)
        best = segment_max(reward, batch.group_offsets)[batch.group_N]
        fails = np.isfinite(reward) & (reward < best - 1e-6)
        otherwise = segment_sum((fails & ~cut).astype(np.int64), batch.group_offsets)
        self.live += int(batch.live_G.sum())
        self.live_by_length += int((batch.live_G & (otherwise == 0)).sum())
        return True

    def findings(self) -> Iterator[Finding]:
        """That truncation is more than an exception."""
        if self.frac < TRUNCATED_LIMIT and self.live_frac < TRUNCATED_LIMIT:
            return
        tokens = (
            "" if np.isnan(self.token_frac) else f" and hold {self.token_frac:.0%} of the tokens"
        )
        yield Finding(
            "truncated",
            f"{self.frac:.0%} of the responses ended at the length limit{tokens}; in "
            f"{self.live_by_length:,} of {self.live:,} groups whose rewards differ, every response "
            "below the best did: there the update teaches to be short, whatever the answer.",
            {
                "frac": self.frac,
                "token_frac": self.token_frac,
                "live_by_length": self.live_by_length,
                "live": self.live,
            },
            "Raise the limit, mask such responses, or weigh them apart.",
        )


@dataclass
class PolicyLag:
    """How many steps the policy that trained was ahead of the one that sampled.

    A version counts updates. At step t verl trains with version t − 1, others with version t; the
    newest version of the run says which, so a lag that no step is free of may be one too low. Where
    versions run ahead of steps, the lag is taken to the newest seen so far.
    """

    responses: int = 0
    _behind: float = 0.0
    _worst: int | None = None
    _ahead: int | None = None
    _newest: int | None = None
    _behind_newest: float = 0.0
    _worst_newest: int = 0

    def add(self, batch: RolloutBatch) -> bool:
        """Add one step; whether it knows its versions."""
        oldest, newest = batch.policy_version_N, batch.policy_version_max_N
        if oldest is None:
            return False
        newest = oldest if newest is None else newest
        self.responses += batch.num_responses
        behind = batch.step - oldest
        self._behind += float(behind.sum())
        self._worst = _greatest(self._worst, behind)
        self._ahead = _greatest(self._ahead, newest - batch.step)
        self._newest = _greatest(self._newest, newest)
        self._behind_newest += float((self._newest - oldest).sum())
        self._worst_newest = max(self._worst_newest, int((self._newest - oldest).max()))
        return True

    @property
    def by_step(self) -> bool:
        """Whether versions can be held against step numbers."""
        return self._ahead is not None and self._ahead <= 0

    @property
    def mean(self) -> float:
        """Mean lag of the responses, in steps (in versions where not ``by_step``)."""
        if not self.by_step:
            return self._behind_newest / self.responses
        return self._behind / self.responses - self._offset

    @property
    def max(self) -> int:
        """Largest lag."""
        if self._worst is None or not self.by_step:
            return self._worst_newest
        return self._worst - self._offset

    @property
    def _offset(self) -> int:
        return 0 if self._ahead == 0 else 1

    def findings(self) -> Iterator[Finding]:
        """That responses were sampled by an older policy."""
        if self.max < 1:
            return
        unit = "steps" if self.by_step else "versions"
        yield Finding(
            "stale",
            f"Responses were sampled by policies {self.mean:.2g} {unit} behind the one that "
            f"trained on average, {self.max} at most: what a rule does to their gradient then "
            "holds only to first order in the probability ratio, and importance weights matter.",
            {"mean": self.mean, "max": self.max, "unit": unit},
        )


def _greatest(before: int | None, values: Int) -> int:
    top = int(values.max())
    return top if before is None else max(before, top)


class DataCheck:
    """Looks at every step once, for what no strategy changes.

    Args:
        trace: whose settings say the estimator and the length limit.
        successes: rules of success that are used.
        others: whether to look for another column that the advantages follow from.
    """

    def __init__(
        self, trace: Trace, successes: Sequence[Success] = (), *, others: bool = False
    ) -> None:
        config = trace.manifest.config
        limit = config.get("max_response_length")
        self._limit = int(limit) if limit else None
        self._others = others
        stored = "advantage" in trace.columns and "advantages" not in trace.columns
        known = config.get("adv_estimator", "grpo") in get_args(Estimator)
        self.advantages = (
            AdvantageCheck(trace.manifest.advantage_config) if stored and known else None
        )
        self.levels = {success: LevelCheck(success) for success in successes}
        self.truncation: Truncation | None = Truncation()
        self.lag: PolicyLag | None = PolicyLag()
        self._imported = trace.manifest.findings

    def add(self, batch: RolloutBatch) -> None:
        """Look at one step."""
        if self.advantages is not None:
            others = batch.extras if self._others else None
            self.advantages.add(batch.reward_N, batch.advantage_N, batch.group_offsets, others)
        for check in self.levels.values():
            check.add(batch)
        if self.truncation is not None and not self.truncation.add(batch, self._limit):
            self.truncation = None
        if self.lag is not None and not self.lag.add(batch):
            self.lag = None

    def report(self) -> AdvantageReport | None:
        """What the stored advantages say; ``None`` where there are none to hold against."""
        return None if self.advantages is None else self.advantages.report()

    def findings(self) -> list[Finding]:
        """Everything that stands out, most drastic first."""
        found = [*contradictions(self.report(), self._preferred)]
        for check in self.levels.values():
            found += check.findings()
        for part in (self.truncation, self.lag):
            found += [] if part is None else part.findings()
        names = {finding.name for finding in self._imported}  # an import saw more columns
        return [*self._imported, *(f for f in found if f.name not in names)]

    @property
    def _preferred(self) -> str | None:
        own = None if self.advantages is None else self.advantages.preferred
        return None if own is None else own.adv_estimator
