"""How much faster vectorised strategies decide than a plain loop over groups: ratios of medians.

Both start from a step as a trainer holds it: rows shuffled over ranks, groups told apart by uid.
The loop says the same rules with NumPy calls on one group at a time; each rule finds its groups'
rows by uid. dfsim sorts the rows into a batch once and decides every preset on it. Before any
timing, both must give the same weights. Only the ratios carry over to other machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from timing import median_seconds

from dfsim.strategies.base import Scores
from dfsim.strategies.build import build
from dfsim.traces.advantage import AdvantageConfig, advantages
from dfsim.traces.assemble import from_columns
from dfsim.traces.batch import RolloutBatch

GROUPS, SIZE, TOKENS = 1024, 5, 512
REPEATS_FAST, REPEATS_SLOW = 15, 3


@dataclass
class Step:
    """Rows as a trainer holds them."""

    uid: Any
    rollout_idx: Any
    reward: Any
    advantage: Any
    num_tokens: Any
    log_probs: Any

    def groups(self) -> Iterator[Any]:
        for uid in np.unique(self.uid):
            rows = np.flatnonzero(self.uid == uid)
            yield rows[np.argsort(self.rollout_idx[rows])]

    def batch(self) -> RolloutBatch:
        return from_columns(
            {
                "step": 1,
                "group_uid": self.uid,
                "rollout_idx": self.rollout_idx,
                "reward": self.reward,
                "advantage": self.advantage,
                "num_tokens": self.num_tokens,
            }
        )

    def batch_with_tokens(self) -> RolloutBatch:
        columns = {
            "step": 1,
            "group_uid": self.uid,
            "rollout_idx": self.rollout_idx,
            "reward": self.reward,
            "advantage": self.advantage,
            "old_log_probs": (self.log_probs.ravel(), self.num_tokens),
        }
        return from_columns(columns)


def make_step() -> Step:
    rng = np.random.default_rng(0)
    count = GROUPS * SIZE
    solve_rate = np.repeat(rng.beta(0.7, 0.7, GROUPS), SIZE)
    reward = (rng.random(count) < solve_rate).astype(float)
    offsets = np.arange(0, count + 1, SIZE)
    advantage = advantages(reward, offsets, AdvantageConfig())
    uid = np.repeat(np.array([f"g{g:05d}" for g in range(GROUPS)], dtype=object), SIZE)
    order = rng.permutation(count)
    return Step(
        uid[order],
        np.tile(np.arange(SIZE), GROUPS)[order],
        reward[order],
        advantage[order],
        np.full(count, TOKENS),
        -rng.exponential(0.5, (count, TOKENS)).astype(np.float32),
    )


def loop_none(step: Step) -> Any:
    out = np.zeros(len(step.reward))
    for rows in step.groups():
        out[rows] = 1.0
    return out


def loop_band(step: Step, low: float, high: float) -> Any:
    out = np.zeros(len(step.reward))
    for rows in step.groups():
        out[rows] = float(low < np.mean(step.reward[rows] > 0.5) < high)
    return out


def loop_maxvar(step: Step) -> Any:
    out = np.zeros(len(step.reward))
    for rows in step.groups():
        reward = step.reward[rows]
        m = max(1, round(0.5 * len(reward)))
        low, high = np.argsort(reward, kind="stable"), np.argsort(-reward, kind="stable")
        best, chosen = -1.0, low[:m]
        for a in range(m + 1):
            kept = np.concatenate((low[:a], high[: m - a]))
            variance = np.var(reward[kept])
            if variance > best + 1e-6 * np.ptp(reward) ** 2:
                best, chosen = variance, kept
        out[rows[chosen]] = 1.0
    return out


def loop_gfpo(step: Step) -> Any:
    out = np.zeros(len(step.reward))
    for rows in step.groups():
        score = step.reward[rows] / step.num_tokens[rows]
        out[rows[np.argsort(-score, kind="stable")[:3]]] = 1.0
    return out


def loop_topk(step: Step) -> Any:
    batch, ranked = step.batch(), []
    for group, rows in enumerate(step.groups()):
        key = batch.tie_keys(0, np.array([group]))[0]
        for row in rows:
            score = float(f"{abs(step.advantage[row]):.5e}")
            ranked.append((-score, key, step.rollout_idx[row], row))
    out = np.zeros(len(step.reward))
    out[[row for *_, row in sorted(ranked)[: round(0.5 * len(ranked))]]] = 1.0
    return out


def loop_weight(step: Step, of: Callable[[Any], Any]) -> Any:
    out = np.zeros(len(step.reward))
    for rows in step.groups():
        out[rows] = of(rows)
    return out / out.mean()


def loop_diffband(step: Step) -> Any:
    low, high = np.quantile(step.reward, [0.25, 0.75])
    reward = step.reward
    return loop_weight(
        step, lambda rows: np.where((reward[rows] >= low) & (reward[rows] <= high), 2.0, 1.0)
    )


def loop_ar(step: Step) -> Any:
    out = np.zeros(step.log_probs.shape)
    for rows in step.groups():
        for row in rows:
            out[row] = 0.5 * np.exp(step.log_probs[row].astype(np.float64)) + 0.5
    return out / out.mean()


LOOPS: dict[str, Callable[[Step], Any]] = {
    "none": loop_none,
    "difffilter": lambda s: loop_band(s, 0.2, 0.8),
    "dapo": lambda s: loop_band(s, 0.0, 1.0),
    "maxvar": loop_maxvar,
    "gfpo": loop_gfpo,
    "topk": loop_topk,
    "softmax": lambda s: loop_weight(s, lambda rows: np.exp(np.abs(s.advantage[rows]))),
    "per": lambda s: loop_weight(s, lambda rows: np.sqrt(np.abs(s.advantage[rows]) + 1e-8)),
    "diffband": loop_diffband,
}


PRESETS = {name: build(name) for name in LOOPS}


def all_presets(batch: RolloutBatch) -> dict[str, Any]:
    scores = Scores(batch)
    return {name: strategy.decide(batch, scores) for name, strategy in PRESETS.items()}


def check(step: Step) -> None:
    """Refuse to time rules that disagree."""
    place = np.lexsort((step.rollout_idx, step.uid.astype(str)))
    for name, decision in all_presets(step.batch()).items():
        expected = LOOPS[name](step)[place]
        np.testing.assert_allclose(decision.weight_N, expected, rtol=1e-9, err_msg=name)
    tokens = build("ar").decide(step.batch_with_tokens()).token_weight_T
    np.testing.assert_allclose(tokens, loop_ar(step)[place].ravel(), rtol=1e-9)


def main() -> None:
    step = make_step()
    check(step)
    loops = {name: median_seconds(lambda f=f: f(step), REPEATS_SLOW) for name, f in LOOPS.items()}
    finding = loops["none"]
    batch = step.batch()
    fast = median_seconds(lambda: all_presets(batch), REPEATS_FAST)
    whole = median_seconds(lambda: all_presets(step.batch()), REPEATS_FAST)
    total = sum(loops.values())
    rules = sum(seconds - finding for seconds in loops.values())
    print(f"{GROUPS} groups × {SIZE} responses × {TOKENS} tokens; plain loops over groups = 1")
    print(f"nine presets, decided on a batch:          {total / fast:6.0f} × (goal 250 ×)")
    print(f"nine presets, sorting the rows included:   {total / whole:6.0f} ×")
    print(f"nine presets, finding rows left out:       {rules / fast:6.0f} ×")
    tokens = step.batch_with_tokens()
    slow_ar = median_seconds(lambda: loop_ar(step), REPEATS_SLOW)
    fast_ar = median_seconds(lambda: build("ar").decide(tokens), REPEATS_FAST)
    print(f"ar, decided on a batch:                    {slow_ar / fast_ar:6.1f} × (goal 3 ×)")


if __name__ == "__main__":
    main()
