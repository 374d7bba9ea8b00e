"""What a strategy is made of: a scorer says how a batch looks, an actuator turns that into weights.

Both are frozen dataclasses whose fields, made with :func:`param`, are their parameters.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, Literal, Protocol, get_args, get_type_hints

import numpy as np

from ..traces.advantage import advantages
from ..traces.batch import RolloutBatch
from ..traces.errors import StrategyError, nearest
from ..traces.ragged import (
    AnyArray,
    Bool,
    Float,
    offsets_of,
    round_significant,
    segment_mean,
    segment_sum,
)

Level = Literal["response", "group", "token"]
Kind = Literal["baseline", "select", "reweight"]


@dataclass(frozen=True, eq=False)
class Decision:
    """What a strategy decided for one batch. N responses, T tokens, canonical order.

    Attributes:
        weight_N: weight ≥ 0 of each response, float64; for a token strategy the mean of its tokens.
        token_weight_T: weight ≥ 0 of each token, or ``None`` for a response strategy.
        advantage_N: advantages that replace the run's, or ``None``.
        tied_N: responses whose score equals one across the cut, so that only the tie rule decided;
            ``None`` where nothing is cut.
        whole_groups: whether the rule keeps or drops whole groups, so that refill makes sense.
    """

    weight_N: Float
    token_weight_T: Float | None = None
    advantage_N: Float | None = None
    tied_N: Bool | None = None
    whole_groups: bool = False

    def __repr__(self) -> str:
        weight = self.weight_N
        kept = f"{int((weight > 0).sum())} of {len(weight)} responses with weight > 0"
        mean = f", mean weight {weight.mean():.3g}" if len(weight) else ""
        what = ", per token" if self.token_weight_T is not None else ""
        what += ", advantages replaced" if self.advantage_N is not None else ""
        return f"Decision({kept}{mean}{what})"

    @classmethod
    def of_tokens(cls, batch: RolloutBatch, token_weight_T: Float) -> Decision:
        """Decision from token weights; a response without a token gets weight 1."""
        assert batch.token_offsets is not None
        mean = segment_mean(token_weight_T, batch.token_offsets)
        return cls(np.where(np.diff(batch.token_offsets) > 0, mean, 1.0), token_weight_T)


class Scorer(Protocol):
    """Batch → one score per response (N), group (G) or token (T). Hashable: scored once a batch."""

    level: ClassVar[Level]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns it reads beyond step, group_uid, rollout_idx, reward and advantage."""
        ...

    def __call__(self, batch: RolloutBatch) -> Float:
        """Score the batch."""
        ...


class Actuator(Protocol):
    """Score → ``Decision``."""

    level: ClassVar[Level]
    optional_columns: ClassVar[tuple[str, ...]]

    @property
    def kind(self) -> Kind:
        """What it is."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns it reads beyond those a scorer reads."""
        ...

    def __call__(self, score: Score, batch: RolloutBatch, tie_seed: int) -> Decision:
        """Decide from a score of this actuator's level."""
        ...


@dataclass(frozen=True)
class Rule:
    """Base of the built-in actuators: reads no column of its own unless it says so."""

    columns: ClassVar[tuple[str, ...]] = ()
    optional_columns: ClassVar[tuple[str, ...]] = ()


def param(
    default: Any,
    help: str,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
) -> Any:
    """Declare a parameter of a strategy, as the field of a dataclass.

    Args:
        default: its value where a user gives none.
        help: one line that says what it means.
        low: least value.
        high: greatest value.
        above: a bound that itself is not allowed.

    Returns:
        The dataclass field.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Mine:
        ...     keep_frac: float = dfsim.param(0.5, "share to keep", high=1, above=0)
        >>> Mine().keep_frac
        0.5
    """
    meta = {"help": help, "low": low, "high": high, "above": above}
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True)
class ParamInfo:
    """A parameter as users see it."""

    name: str
    default: Any
    help: str
    range: str


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def parameters(cls: type) -> dict[str, ParamInfo]:
    """Parameters of a scorer, an actuator or a user's strategy class."""
    hints = _hints(cls)
    found = {}
    for item in dataclasses.fields(cls):
        meta = item.metadata
        options = get_args(hints[item.name])
        if options and all(isinstance(o, str) for o in options):
            text = " | ".join(options)
        elif hints[item.name] not in (int, float):
            text = getattr(hints[item.name], "__name__", str(hints[item.name]))
        else:
            left = f"({meta['above']}" if meta.get("above") is not None else f"[{meta.get('low')}"
            text = f"{left}, {meta.get('high')}]".replace("[None", "(−∞").replace("None]", "∞)")
        found[item.name] = ParamInfo(item.name, item.default, meta.get("help", ""), text)
    return found


def make(cls: type, values: dict[str, Any], owner: str) -> Any:
    """Instantiate a parameter dataclass after checking every value.

    Raises:
        StrategyError: an unknown name (nearest given), a wrong type, or a value out of range.
    """
    known = parameters(cls)
    hints = _hints(cls)
    for name, value in values.items():
        if name not in known:
            have = ", ".join(known) or "none"
            raise StrategyError(
                f"{owner} has no parameter '{name}'{nearest(name, known)}; it has: {have}"
            )
        values[name] = _checked(cls, hints[name], known[name], value, owner)
    try:
        return cls(**values)
    except ValueError as error:
        raise StrategyError(f"{owner}: {error}") from None


def _checked(cls: type, hint: Any, info: ParamInfo, value: Any, owner: str) -> Any:
    options = get_args(hint)
    wrong = f"{owner}: {info.name}={value!r} is not allowed; give a value in {info.range}"
    if options and all(isinstance(o, str) for o in options):
        if value not in options:
            raise StrategyError(wrong)
        return value
    if hint in (int, float):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or (hint is int and value != int(value)):
            kind = "whole number" if hint is int else "number"
            raise StrategyError(f"{owner}: {info.name}={value!r} is not a {kind}")
        value = hint(value)
        meta = next(f.metadata for f in dataclasses.fields(cls) if f.name == info.name)
        low, high, above = meta.get("low"), meta.get("high"), meta.get("above")
        if (
            (low is not None and value < low)
            or (high is not None and value > high)
            or (above is not None and value <= above)
        ):
            raise StrategyError(wrong)
    elif isinstance(hint, type) and not isinstance(value, hint):
        raise StrategyError(f"{owner}: {info.name}={value!r} is not a {hint.__name__}")
    return value


class Score:
    """A scorer's values for one batch, read-only.

    Attributes:
        values: one per response (N), group (G) or token (T).
    """

    def __init__(self, values: Float) -> None:
        self.values = values
        values.setflags(write=False)

    @cached_property
    def rounded(self) -> Float:
        """Values to six significant digits: equal ones are tied."""
        return round_significant(self.values)


class Scores:
    """Scores of one batch, each computed once and shared by every strategy that asks."""

    def __init__(self, batch: RolloutBatch) -> None:
        self.batch = batch
        self._of: dict[Scorer, Score] = {}

    def __call__(self, scorer: Scorer) -> Score:
        """Score of the batch by ``scorer``."""
        if scorer not in self._of:
            self._of[scorer] = Score(scorer(self.batch))
        return self._of[scorer]


@dataclass(frozen=True)
class Strategy:
    """A named scorer and actuator; built by :func:`dfsim.strategies.build.build` only.

    Attributes:
        name: as the user wrote it.
        scorer: says how the batch looks.
        actuator: turns the score into weights.
        params: every parameter with its value.
        source: where the rule comes from.
        tie_seed: decides ties across groups.
    """

    name: str
    scorer: Scorer
    actuator: Actuator
    params: dict[str, Any]
    source: str = ""
    tie_seed: int = 0

    weighs: ClassVar[bool] = True

    @property
    def kind(self) -> Kind:
        """``baseline``, ``select`` or ``reweight``."""
        return self.actuator.kind

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns it needs beyond step, group_uid, rollout_idx, reward and advantage."""
        return tuple(dict.fromkeys((*self.scorer.columns, *self.actuator.columns)))

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Columns it uses where they are there."""
        return self.actuator.optional_columns

    def decide(self, batch: RolloutBatch, scores: Scores | None = None) -> Decision:
        """Weights for one batch.

        A response whose reward is NaN never trains: the rule runs on the others, and it gets
        weight 0 (the baseline leaves it at 1, with advantage 0).

        Args:
            batch: one step.
            scores: shared scores of this very batch; a fresh set by default.

        Raises:
            TraceError: the batch lacks a column the strategy needs.
        """
        if self.kind != "baseline":
            nan = np.isnan(batch.reward_N)
            if nan.any():
                return _spread(self.decide(batch.take(~nan)), batch, ~nan)
        scores = scores or Scores(batch)
        return self.actuator(scores(self.scorer), batch, self.tie_seed)


def _spread(part: Decision, batch: RolloutBatch, kept_N: Bool) -> Decision:
    def fill(values: AnyArray | None, mask: Bool) -> Any:
        if values is None:
            return None
        out = np.zeros(len(mask), dtype=values.dtype)
        out[mask] = values
        return out

    tokens = None
    if part.token_weight_T is not None and batch.token_offsets is not None:
        tokens = fill(part.token_weight_T, np.repeat(kept_N, np.diff(batch.token_offsets)))
    return Decision(
        fill(part.weight_N, kept_N),
        tokens,
        fill(part.advantage_N, kept_N),
        fill(part.tied_N, kept_N),
        part.whole_groups,
    )


def selection(batch: RolloutBatch, keep_N: Bool, tied_N: Bool, renormalise: bool) -> Decision:
    """Decision of a selector: weight 1 for kept responses, else 0.

    With ``renormalise`` the kept responses' advantages are recomputed inside the kept subset by the
    run's own estimator; a constant or single-response subset gets 0.
    """
    advantage = None
    if renormalise:
        sizes = segment_sum(keep_N.astype(np.int64), batch.group_offsets)
        inside = advantages(batch.reward_N[keep_N], offsets_of(sizes), batch.advantage_config)
        inside[np.repeat(sizes == 1, sizes)] = 0.0
        advantage = np.zeros(batch.num_responses)
        advantage[keep_N] = inside
    return Decision(keep_N.astype(np.float64), None, advantage, tied_N)
