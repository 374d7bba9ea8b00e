"""What a sampler is: it observes what a step showed of each unit, and says what to draw next.

Units are domains, or prompts. Shapes: U units.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np

from ...traces.batch import RolloutBatch
from ...traces.errors import StrategyError
from ...traces.ragged import Float, Int, ratio
from ..base import Decision, Scores, Strategy

UnitLevel = Literal["domain", "prompt"]
UNIT_LEVELS: tuple[UnitLevel, ...] = get_args(UnitLevel)

_NAMED_UNITS = 100
"""A state names so many units; of more it keeps a digest."""


@dataclass(frozen=True, eq=False)
class UnitStep:
    """What one step showed of each unit (U); NaN where it showed nothing.

    Attributes:
        step: training step.
        reward_U: mean reward of the responses that counted; one whose reward is NaN does not.
        advantage_U: mean |A| of those, the run's own, also where a decision replaces advantages.
        responses_U: how many counted.
    """

    step: int
    reward_U: Float
    advantage_U: Float
    responses_U: Int

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values; NaN stays NaN."""
        return {
            "step": self.step,
            "reward": self.reward_U.tolist(),
            "advantage": self.advantage_U.tolist(),
            "responses": self.responses_U.tolist(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> UnitStep:
        """Inverse of :meth:`to_dict`."""
        return cls(
            int(record["step"]),
            np.array(record["reward"], dtype=np.float64),
            np.array(record["advantage"], dtype=np.float64),
            np.array(record["responses"], dtype=np.int64),
        )


class Sampler(Protocol):
    """A rule at work. What it has not been shown it must not know: replay hides what it skips."""

    def observe(self, seen: UnitStep) -> None:
        """Take in what one step showed."""

    def propose(self) -> Float:
        """Weight ≥ 0 of each unit (U) in the next draw; asking changes nothing."""

    def state_dict(self) -> dict[str, Any]:
        """All that :meth:`load_state_dict` needs, as plain Python values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken."""

    def metrics(self) -> Mapping[str, Any]:
        """What to log: ``signal``, the statistic (U) behind the proposal, and numbers by name."""


class SamplingRule(Protocol):
    """Parameters of a sampler."""

    def start(self, name: str, units: Sequence[str], prior: Float) -> Sampler:
        """Begin over sorted units (U), drawn so far by ``prior`` (U, sum 1)."""
        ...


class UnitSampler:
    """A sampler over named units: checks what the rule proposes, and knows what it never saw.

    Args:
        name: as the user wrote it.
        rule: the rule and its parameters.
        units: names of U units, in any order.
        prior: their shares (U) before the rule acts; default uniform.

    Attributes:
        units: names, sorted.
        prior: their shares (U).

    Raises:
        StrategyError: no unit, a unit named twice, a prior that is no distribution, or what the
            rule refuses.
    """

    def __init__(
        self,
        name: str,
        rule: SamplingRule,
        units: Sequence[str],
        prior: Sequence[float] | None = None,
    ) -> None:
        size = len(units)
        if size == 0:
            raise StrategyError(f"{name}: a sampler needs at least one domain or prompt")
        if len(set(units)) < size:
            raise StrategyError(f"{name}: one is named twice among {_listed(units)}")
        shares = np.full(size, 1 / size) if prior is None else np.array(prior, dtype=np.float64)
        if shares.shape != (size,) or not (shares >= 0).all() or not np.isclose(shares.sum(), 1):
            raise StrategyError(
                f"{name}: the prior {shares.tolist()} is no distribution; give one share ≥ 0 for "
                f"each of {_listed(units)}, with sum 1"
            )
        order = np.argsort(np.array(units, dtype=object), kind="stable")
        self.name, self.units = name, tuple(units[index] for index in order)
        self._place = {unit: index for index, unit in enumerate(self.units)}
        self._rule = rule.start(name, self.units, shares[order])
        self.prior = self.propose()
        self._seen_U = np.zeros(size, dtype=bool)
        self._observed = 0

    @property
    def unseen(self) -> tuple[str, ...]:
        """Units that no observation has shown yet, or only with NaN rewards."""
        if not self._observed:
            return ()
        return tuple(self.units[index] for index in np.flatnonzero(~self._seen_U))

    @property
    def signal_U(self) -> Float:
        """The statistic behind the proposal (U); NaN where the rule names none."""
        signal = np.asarray(self._rule.metrics().get("signal", np.nan), dtype=np.float64)
        return np.array(np.broadcast_to(signal, (len(self.units),)))

    def codes(self, names: Sequence[str]) -> Int:
        """Index of each named unit; −1 for one that is none of these."""
        return np.array([self._place.get(name, -1) for name in names], dtype=np.int64)

    def observe(self, seen: UnitStep) -> None:
        """Take in one step."""
        self._seen_U = self._seen_U | ~np.isnan(seen.reward_U)
        self._observed += 1
        self._rule.observe(seen)

    def propose(self) -> Float:
        """Shares (U, sum 1) of the next draw.

        Raises:
            StrategyError: the rule proposes another shape, a weight that is negative or not finite,
                or nothing but zeros.
        """
        size = len(self.units)
        weight_U = np.array(self._rule.propose(), dtype=np.float64)
        if weight_U.shape != (size,):
            raise StrategyError(
                f"{self.name}.propose returned shape {weight_U.shape}, not ({size},)"
            )
        total = float(weight_U.sum())
        if not (np.isfinite(weight_U) & (weight_U >= 0)).all() or not 0 < total < np.inf:
            raise StrategyError(
                f"{self.name}.propose must return weights that are finite and ≥ 0, one of them > 0"
            )
        return weight_U if abs(total - 1) < 1e-9 else weight_U / total

    def metrics(self) -> dict[str, float]:
        """Numbers that the rule logs, by name."""
        values = self._rule.metrics()
        return {k: float(v) for k, v in values.items() if k != "signal" and np.ndim(v) == 0}

    def state_dict(self) -> dict[str, Any]:
        """All that :meth:`load_state_dict` needs, as plain Python values."""
        return {
            "units": _identity(self.units),
            "seen": self._seen_U.tolist(),
            "observed": self._observed,
            "rule": self._rule.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken.

        Raises:
            StrategyError: the state is of other units.
        """
        if state["units"] != _identity(self.units):
            raise StrategyError(
                f"{self.name}: the saved state is of others ({_listed(state['units'])}); here "
                f"they are {_listed(self.units)}"
            )
        self._seen_U = np.array(state["seen"], dtype=bool)
        self._observed = int(state["observed"])
        self._rule.load_state_dict(state["rule"])


def _identity(units: Sequence[str]) -> list[str]:
    """Names of the units, or their number and digest where they are many."""
    if len(units) <= _NAMED_UNITS:
        return list(units)
    digest = hashlib.blake2b("\0".join(units).encode(), digest_size=8).hexdigest()
    return [f"{len(units)} units {digest}"]


def _listed(units: Sequence[str]) -> str:
    return ", ".join(units[:10]) + (f" and {len(units) - 10} more" if len(units) > 10 else "")


@dataclass(frozen=True)
class SamplingStrategy:
    """A named rule that draws prompts, and the selector or reweighter that its draw passes through.

    Built by :func:`dfsim.strategies.build.build` only.

    Attributes:
        name: as the user wrote it.
        rule: the sampler's rule.
        params: every parameter with its value; those of what follows behind its name and a dot.
        level: what it draws by.
        source: where the rule comes from.
        then: the rest of a pipeline, or ``None``.
    """

    name: str
    rule: Any
    params: Mapping[str, Any]
    level: UnitLevel = "domain"
    source: str = ""
    then: Strategy | None = None

    kind: ClassVar[Literal["sample"]] = "sample"

    @property
    def weighs(self) -> bool:
        """Whether its draw passes through a selector or reweighter."""
        return self.then is not None

    @property
    def tie_seed(self) -> int:
        """Of what follows the sampler."""
        return 0 if self.then is None else self.then.tie_seed

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns it needs beyond step, group_uid, rollout_idx, reward and advantage."""
        return (UNIT_COLUMN[self.level], *(() if self.then is None else self.then.columns))

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Columns it uses where they are there."""
        return () if self.then is None else self.then.optional_columns

    @property
    def floor(self) -> float:
        """Least share that the rule leaves a unit; 0 where it has none."""
        return float(getattr(self.rule, "floor", 0.0))

    @property
    def warmup_steps(self) -> int:
        """Steps before the rule acts."""
        return int(getattr(self.rule, "warmup_steps", 0))

    @property
    def update_every_steps(self) -> int:
        """Steps between two updates."""
        return int(getattr(self.rule, "update_every_steps", 1))

    def decide(self, batch: RolloutBatch, scores: Scores | None = None) -> Decision:
        """Weights for a batch that it drew: those of what follows it, else 1."""
        if self.then is None:
            return Decision(np.ones(batch.num_responses))
        return self.then.decide(batch, scores)

    def start(self, units: Sequence[str], prior: Sequence[float] | None = None) -> UnitSampler:
        """The sampler at work; see :class:`UnitSampler`."""
        return UnitSampler(self.name, self.rule, units, prior)


UNIT_COLUMN: Mapping[UnitLevel, str] = {"domain": "domain", "prompt": "prompt_id"}
"""What names the units of a trace."""


def observe_batch(
    batch: RolloutBatch, unit_G: Int, size: int, decision: Decision | None = None
) -> UnitStep:
    """What a batch shows of each unit, or what a selector kept of it.

    Args:
        batch: one step.
        unit_G: unit of each group, −1 for none (see :meth:`UnitSampler.codes`).
        size: U.
        decision: a selector's; responses it dropped do not count.
    """
    code_N = unit_G[batch.group_N]
    counts = (code_N >= 0) & ~np.isnan(batch.reward_N)
    if decision is not None:
        counts = counts & (decision.weight_N > 0)
    return UnitStep(
        batch.step,
        _mean_by(code_N[counts], batch.reward_N[counts], size),
        _mean_by(code_N[counts], batch.abs_advantage_N[counts], size),
        np.bincount(code_N[counts], minlength=size),
    )


def unit_names(batch: RolloutBatch, level: UnitLevel) -> list[str]:
    """Unit of each group (G).

    Raises:
        StrategyError: the batch does not name its units.
    """
    if level == "prompt":
        if batch.prompt_id_G is None:
            raise StrategyError(
                "a sampler of prompts needs a prompt id for every response, which the trace lacks: "
                "import it with --map prompt_id=YOUR_COLUMN"
            )
        return [str(name) for name in batch.prompt_id_G]
    if batch.domain_G is None:
        raise StrategyError(
            "a mixer needs domains, which the trace lacks: import it with --map "
            "domain=YOUR_COLUMN, --domains-from, --domain-regex or --domain-clusters"
        )
    return [batch.domains[code] for code in batch.domain_G]


def _mean_by(code: Int, values: Float, size: int) -> Float:
    """Mean of values by code, NaN where there are none; summed in order of value, not of row."""
    order = np.lexsort((values, code))
    total = np.bincount(code[order], values[order], minlength=size)
    count = np.bincount(code, minlength=size)
    return ratio(total, count)
