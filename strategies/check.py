"""Invariants that every strategy must hold; the tests run them over the whole catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..traces.assemble import from_columns
from ..traces.batch import FIELDS, RolloutBatch
from ..traces.errors import StrategyError
from ..traces.schema import COLUMNS
from ..traces.synthetic import random_step
from .base import Decision, Strategy
from .build import OWN_SOURCE, AnyStrategy, build, build_own
from .sample.base import SamplingStrategy
from .sample.check import check_sampler
from .spec import Spec

Columns = dict[str, Any]
_LISTS = ("old_log_probs", "rollout_log_probs", "ref_log_probs", "entropy")


class _BrokenError(Exception):
    """An invariant does not hold; the text says what was seen."""


def check_strategy(strategy: str | type | AnyStrategy, *, seed: int = 0) -> list[str]:
    """Check a strategy against every invariant.

    Args:
        strategy: a name as ``--strategy`` takes it, a class of your own, or a built strategy.
        seed: of the generated batches.

    Returns:
        Names of the invariants that hold: all of them.

    Raises:
        StrategyError: names the first broken invariant and shows a small example.

    Example:
        >>> "a_nan_reward_never_trains" in dfsim.check_strategy("maxvar")
        True
    """
    if isinstance(strategy, str):
        strategy = build(strategy)
    elif isinstance(strategy, type):
        strategy = build_own(strategy, strategy.__name__, {}, 0)
    if isinstance(strategy, SamplingStrategy):
        after = [] if strategy.then is None else check_strategy(strategy.then, seed=seed)
        return [*check_sampler(strategy, seed), *after]
    passed = []
    for check in _CHECKS:
        invariant = check.__name__.strip("_")
        rng = np.random.default_rng(seed)
        for columns in _examples(strategy, rng):
            try:
                check(strategy, columns, rng)
            except _BrokenError as broken:
                raise _report(strategy, invariant, columns, str(broken)) from None
            except StrategyError as error:
                raise _report(strategy, invariant, columns, str(error)) from None
            except Exception as error:
                seen = f"it raised {type(error).__name__}: {error}"
                raise _report(strategy, invariant, columns, seen) from error
        passed.append(invariant)
    return passed


def _examples(strategy: Strategy, rng: np.random.Generator) -> Iterator[Columns]:
    """Small steps first, so that the example shown is the smallest found."""
    for size in (2, 2, 3, 4):
        yield _with_columns(strategy, random_step(rng, max_groups=1, max_size=size), rng)
    for _ in range(12):
        yield _with_columns(strategy, random_step(rng), rng)


def _with_columns(strategy: Strategy, columns: Columns, rng: np.random.Generator) -> Columns:
    """Add what the strategy says it reads."""
    count, lengths = len(columns["group_uid"]), columns["num_tokens"]
    for name in (*strategy.columns, *strategy.optional_columns):
        if name in columns or name == "advantage":
            continue
        if name in _LISTS:
            columns[name] = (-rng.exponential(1.0, int(lengths.sum())).astype(np.float32), lengths)
        elif name not in COLUMNS:
            columns[name] = rng.random(count)
        elif name not in FIELDS:
            raise StrategyError(f"{strategy.name} reads column '{name}', which no batch holds")
    return columns


def _decide(strategy: Strategy, columns: Columns) -> dict[tuple[str, int], Any]:
    """Decision keyed by response: (weight, token weights, advantage, decided by a tie rule)."""
    batch = from_columns(columns)
    return _keyed(batch, strategy.decide(batch))


def _keyed(batch: RolloutBatch, decision: Decision) -> dict[tuple[str, int], Any]:
    tokens: list[Any] = [()] * batch.num_responses
    if decision.token_weight_T is not None and batch.token_offsets is not None:
        parts = np.split(decision.token_weight_T, batch.token_offsets[1:-1])
        tokens = [tuple(p.tolist()) for p in parts]
    replaced: list[Any] = [None] * batch.num_responses
    if decision.advantage_N is not None:
        replaced = decision.advantage_N.tolist()
    keys = zip(batch.uid_G[batch.group_N], batch.rollout_idx_N.tolist(), strict=True)
    tied: list[Any] = [False] * batch.num_responses
    if decision.tied_N is not None:
        tied = decision.tied_N.tolist()
    values = zip(decision.weight_N.tolist(), tokens, replaced, tied, strict=True)
    return dict(zip(keys, values, strict=True))


def _same(first: dict[Any, Any], second: dict[Any, Any], what: str) -> None:
    for key, value in first.items():
        if value != second[key]:
            raise _BrokenError(
                f"{what} changed response {key} from {value[0]!r} to {second[key][0]!r}"
            )


def _reordered(columns: Columns, order: Any) -> Columns:
    out: Columns = {}
    for name, value in columns.items():
        if isinstance(value, tuple):
            starts = np.concatenate(([0], np.cumsum(value[1])))
            parts = [value[0][starts[i] : starts[i + 1]] for i in order]
            out[name] = (np.concatenate(parts) if parts else value[0][:0], value[1][order])
        else:
            out[name] = value if np.ndim(value) == 0 else value[order]
    return out


def _weights_are_finite_and_not_negative(
    strategy: Strategy, columns: Columns, rng: np.random.Generator
) -> None:
    batch = from_columns(columns)
    decision = strategy.decide(batch)
    if decision.weight_N.shape != (batch.num_responses,):
        raise _BrokenError(f"weights have shape {decision.weight_N.shape}")
    for values in (decision.weight_N, decision.token_weight_T):
        if values is not None and not (np.isfinite(values.astype(np.float32)).all()):
            raise _BrokenError("a weight is not finite in float32")
        if values is not None and (values < 0).any():
            raise _BrokenError(f"a weight is {values.min()}")
    replaced = decision.advantage_N
    if replaced is not None and not np.isfinite(replaced).all():
        raise _BrokenError("a replaced advantage is not finite")


def _selectors_weigh_zero_or_one(
    strategy: Strategy, columns: Columns, rng: np.random.Generator
) -> None:
    weight = strategy.decide(from_columns(columns)).weight_N
    if strategy.kind == "select" and not np.isin(weight, (0.0, 1.0)).all():
        raise _BrokenError(f"a selector gave weight {weight[~np.isin(weight, (0.0, 1.0))][0]}")


def _same_batch_same_weights(
    strategy: Strategy, columns: Columns, rng: np.random.Generator
) -> None:
    _same(_decide(strategy, columns), _decide(strategy, columns), "asking again")


def _batch_is_left_unchanged(
    strategy: Strategy, columns: Columns, rng: np.random.Generator
) -> None:
    before = {
        n: np.array(v[0] if isinstance(v, tuple) else v, copy=True) for n, v in columns.items()
    }
    strategy.decide(from_columns(columns))
    for name, value in columns.items():
        now = np.asarray(value[0] if isinstance(value, tuple) else value)
        if not np.array_equal(before[name], now, equal_nan=now.dtype.kind == "f"):
            raise _BrokenError(f"it changed column '{name}' of the batch")


def _row_order_and_sharding_do_not_matter(
    strategy: Strategy, columns: Columns, rng: np.random.Generator
) -> None:
    count = len(columns["group_uid"])
    shards = np.argsort(rng.integers(0, 3, count), kind="stable")
    for order in (rng.permutation(count), shards):
        shuffled = _decide(strategy, _reordered(columns, order))
        _same(_decide(strategy, columns), shuffled, "another row order")


def _group_names_do_not_matter(
    strategy: Strategy, columns: Columns, rng: np.random.Generator
) -> None:
    distinct = {**columns, "reward": columns["reward"] + 1e-3 * rng.random(len(columns["reward"]))}
    names = sorted(set(columns["group_uid"]))
    renamed = dict(zip(names, [f"r{i:03d}" for i in rng.permutation(len(names))], strict=True))
    uids = np.array([renamed[u] for u in columns["group_uid"]], dtype=object)
    after = _decide(strategy, {**distinct, "group_uid": uids})
    before = {(renamed[u], i): v for (u, i), v in _decide(strategy, distinct).items()}
    _same(before, after, "other group uids")


def _response_order_does_not_matter(
    strategy: Strategy, columns: Columns, rng: np.random.Generator
) -> None:
    count = len(columns["reward"])
    distinct = {**columns, "reward": rng.permutation(count) + rng.random(count) / 2}
    index = 1000 - columns["rollout_idx"]
    after = _decide(strategy, {**distinct, "rollout_idx": index})
    for (uid, i), (weight, _, _, tied) in _decide(strategy, distinct).items():
        other = after[uid, 1000 - i][0]
        if not tied and not np.isclose(weight, other, rtol=1e-9, atol=0):
            raise _BrokenError(
                f"numbering a group's responses backwards changed {weight} to {other}"
            )


def _a_nan_reward_never_trains(
    strategy: Strategy, columns: Columns, rng: np.random.Generator
) -> None:
    reward = columns["reward"].copy()
    reward[rng.random(len(reward)) < 0.4] = np.nan
    batch = from_columns({**columns, "reward": reward})
    decision = strategy.decide(batch)
    if not np.isfinite(decision.weight_N).all():
        raise _BrokenError("with a NaN reward in the batch, a weight is not finite")
    if strategy.kind != "baseline" and (decision.weight_N[np.isnan(batch.reward_N)] != 0).any():
        raise _BrokenError("a response whose reward is NaN has a weight")


def _an_empty_batch_is_fine(strategy: Strategy, columns: Columns, rng: np.random.Generator) -> None:
    empty = _reordered(columns, np.zeros(0, dtype=np.int64))
    if len(strategy.decide(from_columns(empty)).weight_N):
        raise _BrokenError("an empty batch got a weight")


def _unknown_parameters_are_refused(
    strategy: Strategy, columns: Columns, rng: np.random.Generator
) -> None:
    if "+" in strategy.name or strategy.source == OWN_SOURCE:
        return
    try:
        build(str(Spec.parse(strategy.name).unswept), {"no_such_parameter": 1})
    except StrategyError:
        return
    raise _BrokenError("it takes a parameter 'no_such_parameter'")


_CHECKS: tuple[Callable[[Strategy, Columns, np.random.Generator], None], ...] = (
    _weights_are_finite_and_not_negative,
    _selectors_weigh_zero_or_one,
    _same_batch_same_weights,
    _batch_is_left_unchanged,
    _row_order_and_sharding_do_not_matter,
    _group_names_do_not_matter,
    _response_order_does_not_matter,
    _a_nan_reward_never_trains,
    _an_empty_batch_is_fine,
    _unknown_parameters_are_refused,
)


def _report(strategy: Strategy, invariant: str, columns: Columns, seen: str) -> StrategyError:
    shown = [
        f"{u}/{i} reward {r:g}"
        for u, i, r in list(
            zip(columns["group_uid"], columns["rollout_idx"], columns["reward"], strict=True)
        )[:4]
    ]
    more = " …" if len(columns["group_uid"]) > 4 else ""
    words = invariant.replace("_", " ")
    return StrategyError(
        f"{strategy.name} breaks '{words}': {seen}. Seen on responses: {'; '.join(shown)}{more}"
    )
