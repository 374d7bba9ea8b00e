"""Slow reference for the strategies, written from their rules alone.

It is the oracle of the vectorised implementation, so it shares no code with it: plain lists,
exact fractions where a rule is exact, `math.fsum` for every float sum (which also makes each
sum independent of row order). Weights are float64; the caller casts to float32 to compare.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypedDict

Key = tuple[str, int]
PerResponse = dict[Key, float]

CONSTANT_RANGE = 1e-6  # max - min up to here: the group counts as constant
MAXVAR_MARGIN = Fraction(1, 1_000_000)  # of (max - min)^2, what a later `a` must win by


class Row(TypedDict):
    """One response of the batch."""

    group_uid: str
    rollout_idx: int
    prompt_id: str | None
    reward: float
    advantage: float
    num_tokens: int
    old_log_probs: list[float] | None


@dataclass
class Result:
    """Weights of one batch; optional parts are None where the preset does not make them."""

    weight: PerResponse
    token_weights: dict[Key, list[float]] | None = None
    advantage: PerResponse | None = None


@dataclass(frozen=True)
class Context:
    """What a preset may look at: rows that take part (reward not NaN) and the run's settings."""

    rows: list[Row]
    step: int
    tie_seed: int
    eps: float
    norm_by_std: bool


def key_of(row: Row) -> Key:
    """The name of a response in every result."""
    return (row["group_uid"], row["rollout_idx"])


def canonical(rows: Iterable[Row]) -> list[Row]:
    """Rows by group_uid bytes, then rollout_idx; a repeated key is refused."""
    ordered = sorted(rows, key=lambda row: (row["group_uid"].encode(), row["rollout_idx"]))
    if len({key_of(row) for row in ordered}) != len(ordered):
        raise ValueError("two rows have the same group_uid and rollout_idx")
    return ordered


def groups_of(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Canonically ordered rows of each group."""
    groups: dict[str, list[Row]] = {}
    for row in canonical(rows):
        groups.setdefault(row["group_uid"], []).append(row)
    return groups


def six_digits(score: float) -> float:
    """The score to six significant digits: what ordering, ties and thresholds see."""
    return float(f"{score:.5e}")


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, correctly rounded sum."""
    return math.fsum(values) / len(values)


def bessel_std(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1), two-pass."""
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def is_constant(values: Sequence[float]) -> bool:
    """Whether the values count as all equal."""
    return max(values) - min(values) <= CONSTANT_RANGE


def abs_advantage(row: Row) -> float:
    """|A| of a response that takes part; the rules say nothing about a NaN here."""
    if math.isnan(row["advantage"]):
        raise ValueError(f"{key_of(row)}: NaN advantage with a reward is not defined by the rules")
    return abs(row["advantage"])


def kept_weights(rows: Iterable[Row], kept: Iterable[Key]) -> PerResponse:
    """1 for the kept keys, 0 for the others."""
    kept_set = set(kept)
    return {key_of(row): 1.0 if key_of(row) in kept_set else 0.0 for row in rows}


def mean_one(raw: PerResponse) -> PerResponse:
    """The same weights divided by their mean over responses."""
    centre = mean(list(raw.values())) if raw else 1.0
    return {key: value / centre for key, value in raw.items()}


def standardised(rewards: Sequence[float], eps: float, norm_by_std: bool) -> list[float]:
    """(r - mean) / (Bessel std + eps), or r - mean; zeros if constant or a single value."""
    if len(rewards) < 2 or is_constant(rewards):
        return [0.0 for _ in rewards]
    centre = mean(rewards)
    scale = bessel_std(rewards) + eps if norm_by_std else 1.0
    return [(reward - centre) / scale for reward in rewards]


def advantages_by_group(rows: list[Row], rule: Callable[[list[float]], list[float]]) -> PerResponse:
    """Apply `rule` to the non-NaN rewards of each group; a NaN reward has advantage 0."""
    ordered = canonical(rows)
    out = {key_of(row): 0.0 for row in ordered}
    for members in groups_of(row for row in ordered if not math.isnan(row["reward"])).values():
        for row, value in zip(members, rule([r["reward"] for r in members]), strict=True):
            out[key_of(row)] = value
    return out


def grpo_advantages(rows: list[Row], eps: float = 1e-6, norm_by_std: bool = True) -> PerResponse:
    """GRPO: standardised in the group; a group of one has mean 0 and std 1 (verl)."""

    def rule(rewards: list[float]) -> list[float]:
        if len(rewards) == 1:
            return [rewards[0] / (1.0 + eps) if norm_by_std else rewards[0]]
        return standardised(rewards, eps, norm_by_std)

    return advantages_by_group(rows, rule)


def rloo_advantages(rows: list[Row]) -> PerResponse:
    """RLOO: (r - mean) n / (n - 1); 0 in a constant group, r in a group of one."""

    def rule(rewards: list[float]) -> list[float]:
        size = len(rewards)
        if size == 1:
            return [rewards[0]]
        return [a * size / (size - 1) for a in standardised(rewards, 0.0, norm_by_std=False)]

    return advantages_by_group(rows, rule)


def none(ctx: Context) -> Result:
    """Weight 1."""
    return Result({key_of(row): 1.0 for row in ctx.rows})


def difffilter(
    ctx: Context, *, low: float = 0.2, high: float = 0.8, success_threshold: float = 0.5
) -> Result:
    """Keep groups with low n < k < high n, k solved of n; compared as exact decimals."""
    exact_low, exact_high = Fraction(str(low)), Fraction(str(high))
    kept: list[Key] = []
    for members in groups_of(ctx.rows).values():
        solved = sum(1 for row in members if row["reward"] > success_threshold)
        if exact_low * len(members) < solved < exact_high * len(members):
            kept += [key_of(row) for row in members]
    return Result(kept_weights(ctx.rows, kept))


def dapo(ctx: Context, *, metric: str = "reward", reward_tol: float = 1e-6) -> Result:
    """Keep groups that hold two values of the metric further apart than the tolerance."""
    kept: list[Key] = []
    for members in groups_of(ctx.rows).values():
        pairs = ((a[metric], b[metric]) for a in members for b in members)
        if any(a - b > reward_tol for a, b in pairs):
            kept += [key_of(row) for row in members]
    return Result(kept_weights(ctx.rows, kept))


def exact_variance(values: Sequence[Fraction]) -> Fraction:
    """Population variance, exact."""
    centre = sum(values, Fraction(0)) / len(values)
    return sum(((v - centre) ** 2 for v in values), Fraction(0)) / len(values)


def maxvar_subset(members: list[Row], keep_frac: float) -> list[Key]:
    """Of one group: the a lowest and m - a highest rewards whose variance is greatest."""
    size = len(members)
    num_kept = min(size, max(1, round(keep_frac * size)))
    score = {key_of(row): Fraction(six_digits(row["reward"])) for row in members}
    lowest_first = sorted(score, key=lambda key: (score[key], key[1]))
    highest_first = sorted(score, key=lambda key: (-score[key], key[1]))
    margin = MAXVAR_MARGIN * (score[highest_first[0]] - score[lowest_first[0]]) ** 2

    def ends(num_low: int) -> list[Key]:
        return lowest_first[:num_low] + highest_first[: num_kept - num_low]

    # Both ends may reach into one block of tied rewards and name the same response twice. The
    # variance is right all the same (the values are), and such an `a` is never chosen: the
    # smaller `a` that stops below the block has the same values, so nothing to win by.
    best, best_variance = 0, exact_variance([score[key] for key in ends(0)])
    for num_low in range(1, num_kept + 1):
        variance = exact_variance([score[key] for key in ends(num_low)])
        if variance > best_variance + margin:
            best, best_variance = num_low, variance
    kept = ends(best)
    assert len(set(kept)) == num_kept, kept
    return kept


def maxvar(ctx: Context, *, keep_frac: float = 0.5) -> Result:
    """Greatest-variance subset of each group."""
    groups = groups_of(ctx.rows).values()
    kept = [key for members in groups for key in maxvar_subset(members, keep_frac)]
    return Result(kept_weights(ctx.rows, kept))


def gfpo(ctx: Context, *, k: int = 3, metric: str = "efficiency") -> Result:
    """The k best of each group by reward per token, or by shortness; no tokens ranks last."""
    if metric not in ("efficiency", "short"):
        raise ValueError(f"gfpo metric {metric!r} is neither 'efficiency' nor 'short'")

    def score(row: Row) -> float:
        if row["num_tokens"] == 0:
            return -math.inf
        if metric == "short":
            return six_digits(-row["num_tokens"])
        return six_digits(row["reward"] / row["num_tokens"])

    kept: list[Key] = []
    for members in groups_of(ctx.rows).values():
        best_first = sorted(members, key=lambda row: (-score(row), row["rollout_idx"]))
        kept += [key_of(row) for row in best_first[:k]]
    return Result(kept_weights(ctx.rows, kept))


def at_paper(selector: Callable[..., Result]) -> Callable[..., Result]:
    """The selector plus advantages re-normalised inside the kept subset of each group."""

    def run(ctx: Context, **params: Any) -> Result:
        weight = selector(ctx, **params).weight
        advantage = {key_of(row): 0.0 for row in ctx.rows}
        for members in groups_of(row for row in ctx.rows if weight[key_of(row)] == 1.0).values():
            values = standardised([r["reward"] for r in members], ctx.eps, ctx.norm_by_std)
            for row, value in zip(members, values, strict=True):
                advantage[key_of(row)] = value
        return Result(weight, advantage=advantage)

    return run


def group_tie_digests(ctx: Context) -> dict[str, bytes]:
    """blake2b-64 of `tie_seed|step|prompt_id|dup` per group (`group_uid|0` without an id)."""
    groups = groups_of(ctx.rows)
    uids_of_prompt: dict[str, list[str]] = {}
    label: dict[str, str] = {}
    for uid, members in groups.items():
        prompt_ids = {row["prompt_id"] for row in members}
        if len(prompt_ids) != 1:
            raise ValueError(f"group {uid} has several prompt ids: {prompt_ids}")
        prompt_id = prompt_ids.pop()
        if prompt_id is None:
            label[uid] = f"{uid}|0"
        else:
            uids_of_prompt.setdefault(prompt_id, []).append(uid)

    def dup_order(uid: str) -> tuple[tuple[float, ...], tuple[int, ...], bytes]:
        rewards = tuple(sorted(row["reward"] for row in groups[uid]))
        lengths = tuple(row["num_tokens"] for row in groups[uid])
        return (rewards, lengths, uid.encode())

    for prompt_id, uids in uids_of_prompt.items():
        for dup, uid in enumerate(sorted(uids, key=dup_order)):
            label[uid] = f"{prompt_id}|{dup}"
    prefix = f"{ctx.tie_seed}|{ctx.step}|"
    return {
        uid: hashlib.blake2b((prefix + text).encode(), digest_size=8).digest()
        for uid, text in label.items()
    }


def topk(ctx: Context, *, fraction: float = 0.5) -> Result:
    """The top fraction of the batch by |A|; ties by group digest, then rollout_idx."""
    digest = group_tie_digests(ctx)

    def best_first(row: Row) -> tuple[float, bytes, int, bytes]:
        uid = row["group_uid"]
        return (-six_digits(abs_advantage(row)), digest[uid], row["rollout_idx"], uid.encode())

    num_kept = max(1, round(fraction * len(ctx.rows)))
    kept = [key_of(row) for row in sorted(ctx.rows, key=best_first)[:num_kept]]
    return Result(kept_weights(ctx.rows, kept))


def softmax(ctx: Context, *, temperature: float = 1.0) -> Result:
    """exp(|A| / T), mean 1."""
    top = max((abs_advantage(row) for row in ctx.rows), default=0.0)
    raw = {key_of(row): math.exp((abs_advantage(row) - top) / temperature) for row in ctx.rows}
    return Result(mean_one(raw))


def per(ctx: Context, *, alpha: float = 0.5) -> Result:
    """(|A| + 1e-8)^alpha, mean 1."""
    raw = {key_of(row): (abs_advantage(row) + 1e-8) ** alpha for row in ctx.rows}
    return Result(mean_one(raw))


def linear_quantile(values: Sequence[float], q: float) -> float:
    """Quantile by linear interpolation at float position q (n - 1); NumPy's default and form."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    part, gap = position - below, ordered[above] - ordered[below]
    return ordered[below] + part * gap if part < 0.5 else ordered[above] - (1.0 - part) * gap


def diffband(
    ctx: Context, *, low_q: float = 0.25, high_q: float = 0.75, focus_weight: float = 2.0
) -> Result:
    """focus_weight for rewards inside the closed batch-quantile band, 1 outside, mean 1."""
    if not ctx.rows:
        return Result({})
    score = {key_of(row): six_digits(row["reward"]) for row in ctx.rows}
    low = linear_quantile(list(score.values()), low_q)
    high = linear_quantile(list(score.values()), high_q)
    raw = {key: focus_weight if low <= s <= high else 1.0 for key, s in score.items()}
    return Result(mean_one(raw))


def ar(ctx: Context, *, alpha: float = 0.5, renormalise: bool = True) -> Result:
    """alpha pi + 1 - alpha per token, mean 1; NaN and +inf log-probs get exactly 1 and no say."""
    raw: dict[Key, list[float | None]] = {}
    for row in ctx.rows:
        log_probs = row["old_log_probs"]
        if log_probs is None:
            raise ValueError(f"{key_of(row)}: ar needs old_log_probs")
        raw[key_of(row)] = [
            None if math.isnan(lp) or lp == math.inf else alpha * math.exp(lp) + (1.0 - alpha)
            for lp in log_probs
        ]
    usable = [value for values in raw.values() for value in values if value is not None]
    divisor = mean(usable) if renormalise and usable else 1.0
    token_weights = {
        key: [1.0 if value is None else value / divisor for value in values]
        for key, values in raw.items()
    }
    weight = {key: mean(values) if values else 1.0 for key, values in token_weights.items()}
    return Result(weight, token_weights=token_weights)


PRESETS: dict[str, Callable[..., Result]] = {
    "none": none,
    "difffilter": difffilter,
    "dapo": dapo,
    "maxvar": maxvar,
    "maxvar@paper": at_paper(maxvar),
    "gfpo": gfpo,
    "gfpo@paper": at_paper(gfpo),
    "topk": topk,
    "softmax": softmax,
    "per": per,
    "diffband": diffband,
    "ar": ar,
    "ar@paper": partial(ar, alpha=0.2, renormalise=False),
}


def weights(
    preset: str,
    rows: list[Row],
    *,
    step: int = 1,
    tie_seed: int = 0,
    eps: float = 1e-6,
    norm_by_std: bool = True,
    **params: Any,
) -> Result:
    """Apply one preset to a batch given in any order; unknown names and params are refused.

    A row with a NaN reward is set aside first and then gets weight 0, token weights 0 and
    replaced advantage 0; only `none` gives it weight 1.
    """
    ordered = canonical(rows)
    part = [row for row in ordered if preset == "none" or not math.isnan(row["reward"])]
    found = PRESETS[preset](Context(part, step, tie_seed, eps, norm_by_std), **params)
    zero = {key_of(row): 0.0 for row in ordered}
    result = Result(zero | found.weight)
    if found.token_weights is not None:
        zeros = {key_of(row): [0.0] * len(row["old_log_probs"] or []) for row in ordered}
        result.token_weights = zeros | found.token_weights
    if found.advantage is not None:
        result.advantage = zero | found.advantage
    return result
