"""Steps of a live run that tests make: sessions first, then the trainer's shuffled output rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from dfsim.live.core.rows import OutputRows
from dfsim.traces.batch import RolloutBatch

UIDS = ("u", "u_1", "u_1_0", "a__b", "Z", "é_2", "7f3a")


def grpo(rewards: Sequence[float]) -> list[float]:
    """verl's group advantage, by its formula."""
    if len(rewards) == 1:
        return [float(rewards[0])]
    mean = sum(rewards) / len(rewards)
    std = (sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)) ** 0.5
    return [(r - mean) / (std + 1e-6) for r in rewards]


def random_sessions(
    rng: np.random.Generator,
    *,
    groups: int = 5,
    size: int = 6,
    outputs: int = 3,
    tokens: int = 5,
    per_token: bool = False,
) -> list[dict[str, Any]]:
    """Sessions of a step: short groups, masks with holes, sessions without a trained token."""
    found = []
    for uid in rng.choice(UIDS, groups, replace=False).tolist():
        count = int(rng.integers(1, size + 1))
        rewards = rng.choice([0.0, 0.0, 1.0, 1.0, 0.5], count).tolist()
        prompt, domain = f"p{rng.integers(3)}", str(rng.choice(["math", "sort", "copy"]))
        for index, reward, advantage in zip(
            rng.permutation(12)[:count].tolist(), rewards, grpo(rewards), strict=True
        ):
            made = []
            for output in range(int(rng.integers(1, outputs + 1))):
                length = int(rng.integers(0, tokens + 1))
                values = np.full(length, advantage, np.float32)
                if per_token:
                    values = rng.normal(size=length).astype(np.float32)
                made.append(
                    {
                        "mask": rng.random(length) < rng.choice([0.0, 0.7, 1.0]),
                        "advantage": values,
                        "old_log_probs": -rng.exponential(0.7, length).astype(np.float32),
                        "entropy": rng.random(length).astype(np.float32),
                        "prompt": prompt if output == 0 else f"{prompt}+{index}.{output}",
                        "version": int(rng.integers(3, 6)),
                    }
                )
            found.append(
                {
                    "uid": uid,
                    "session": index,
                    "reward": reward,
                    "domain": domain,
                    "acc": float(reward > 0.5),
                    "outputs": made,
                }
            )
    return found


def rows_of_sessions(
    rng: np.random.Generator,
    sessions: list[dict[str, Any]],
    *,
    step: int = 7,
    padding: int = 3,
    mini_batch: bool = True,
    is_weights: bool = False,
    **changes: Any,
) -> OutputRows:
    """The trainer's rows: shuffled over ranks, padding rows with what the first row holds."""
    held = [(s, o, i) for s in sessions for i, o in enumerate(s["outputs"])]
    held = [held[i] for i in rng.permutation(len(held))]
    first = held[0][0]
    rows = [
        {
            **o,
            "key": f"{s['uid']}_{s['session']}_{i}",
            "padding": False,
            "reward": s["reward"],
            "domain": s["domain"],
            "acc": s["acc"],
        }
        for s, o, i in held
    ]
    for i in range(padding):
        blank = np.zeros(2, np.float32)
        pad = {
            "key": f"pad{rng.integers(16**6):x}_{i}_0",
            "padding": True,
            "reward": 0.0,
            "mask": np.zeros(2, bool),
            "advantage": blank,
            "old_log_probs": blank,
            "entropy": blank,
            "prompt": "pad",
            "version": 99,
            "domain": first["domain"],
            "acc": first["acc"],
        }
        rows.insert(int(rng.integers(len(rows) + 1)), pad)
    lengths = [len(r["mask"]) for r in rows]

    def flat(name: str, dtype: Any) -> Any:
        return np.concatenate([np.asarray(r[name], dtype) for r in rows])

    def column(name: str, dtype: Any) -> Any:
        return np.array([r[name] for r in rows], dtype)

    given: dict[str, Any] = {
        "step": step,
        "keys": [r["key"] for r in rows],
        "is_padding_R": column("padding", bool),
        "offsets": np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        "mask_F": flat("mask", bool),
        "advantage_F": flat("advantage", np.float32),
        "reward_R": column("reward", np.float32),
        "tokens": {n: flat(n, np.float32) for n in ("old_log_probs", "entropy")},
        "is_weight_F": rng.random(sum(lengths)).astype(np.float32) if is_weights else None,
        "prompt_R": column("prompt", object),
        "domain_R": column("domain", object),
        "mini_batch_R": rng.integers(0, 3, len(rows)) if mini_batch else None,
        "policy_version_min_R": column("version", np.int64),
        "policy_version_max_R": column("version", np.int64),
        "extras": {"acc": column("acc", np.float64)},
    }
    return OutputRows(**{**given, **changes})


def random_rows(rng: np.random.Generator, **options: Any) -> OutputRows:
    made = ("groups", "size", "outputs", "tokens", "per_token")
    sessions = random_sessions(rng, **{k: v for k, v in options.items() if k in made})
    return rows_of_sessions(rng, sessions, **{k: v for k, v in options.items() if k not in made})


def assert_same_bits(one: RolloutBatch, two: RolloutBatch) -> None:
    """Equal to the last bit, field by field."""
    for item in dataclasses.fields(RolloutBatch):
        a, b = getattr(one, item.name), getattr(two, item.name)
        pairs = [(item.name, a, b)]
        if item.name == "extras":
            assert set(a) == set(b)
            pairs = [(name, a[name], b[name]) for name in a]
        for name, mine, other in pairs:
            if isinstance(mine, np.ndarray) and mine.dtype != object:
                assert mine.dtype == other.dtype, name
                assert mine.tobytes() == other.tobytes(), name
            else:
                np.testing.assert_array_equal(mine, other, err_msg=name)
