"""Slow reference for the mixers and quotas, written from their rules alone: plain Python lists.

A step is a `Step`: what it showed of each domain. A domain that it did not show is absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NAN = math.nan


class Seen(NamedTuple):
    """A domain's responses of one step: means (NaN where all rewards are) and their number."""

    reward: float
    advantage: float
    count: int


@dataclass
class Step:
    """Training step and what it showed, by domain."""

    step: int
    domains: dict[str, Seen] = field(default_factory=dict)


# (rule, what the text fixes); every other shared setting is passed in by the caller.
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "static": ("static", {"floor": 0.0}),
    "reward_gap": ("reward_gap", {}),
    "reward_gap@asrun": ("reward_gap", {"unseen_reward": 0.0}),
    "dump_ucb": ("dump_ucb", {}),
    "dump_ucb@paper": ("dump_ucb", {"temperature": 0.1, "floor": 0.0, "window_responses": 300}),
    "dump_ucb@asrun": ("mean_reward", {"unseen_reward": 0.0}),
    "tscl": ("tscl", {}),
    "tscl@paper": (
        "tscl",
        {"temperature": 4e-4, "floor": 0.0, "window_steps": 10, "few_points": 1.0},
    ),
    "tscl@asrun": ("mean_reward", {"unseen_reward": 0.0}),
}
SHARED = {"temperature": 1.0, "floor": 0.05, "exploration": 1.0, "window_responses": 0}


def step_of_rows(step: int, rows: Sequence[tuple[str, float, float, float]]) -> Step:
    """Step of responses (domain, reward, advantage, weight).

    A response that was dropped does not count, nor one without a reward: it never trains.
    """
    counted: dict[str, list[tuple[float, float]]] = {}
    for domain, reward, advantage, weight in rows:
        if weight > 0 and not math.isnan(reward):
            counted.setdefault(domain, []).append((reward, abs(advantage)))
    seen = {}
    for domain, values in counted.items():
        size = len(values)
        reward = math.fsum(r for r, _ in values) / size
        seen[domain] = Seen(reward, math.fsum(a for _, a in values) / size, size)
    return Step(step, seen)


def softmax(scores: Sequence[float]) -> list[float]:
    top = max(scores)
    powers = [math.exp(s - top) for s in scores]
    return [power / math.fsum(powers) for power in powers]


def hold_floor(p: Sequence[float], floor: float) -> list[float]:
    """Low = {}; repeat: q; add every d with q < floor; until none."""
    low: set[int] = set()
    while True:
        rest = math.fsum(x for d, x in enumerate(p) if d not in low)
        free = 1 - floor * len(low)
        q = [floor if d in low else p[d] * free / rest for d in range(len(p))]
        if not low:
            q = list(p)
        fresh = {d for d in range(len(p)) if d not in low and q[d] < floor}
        if not fresh:
            return q
        low |= fresh


def window_mean(window: Sequence[Step], domain: str, name: str) -> float:
    """Mean over the responses in the window; NaN where it shows none with a value."""
    parts = [step.domains[domain] for step in window if domain in step.domains]
    known = [part for part in parts if part.count and not math.isnan(getattr(part, name))]
    total = math.fsum(getattr(part, name) * part.count for part in known)
    return total / sum(part.count for part in known) if known else NAN


def newest(steps: Sequence[Step], domain: str, responses: int) -> list[Step]:
    """The newest whole steps that hold at least so many responses of a domain."""
    kept: list[Step] = []
    held = 0
    for step in reversed(steps):
        if held >= responses:
            break
        if domain in step.domains:
            kept.append(step)
            held += step.domains[domain].count
    return kept


def slope(window: Sequence[Step], domain: str) -> float:
    """Least-squares slope of reward against step, one point a step; NaN below two points."""
    seen = [(s.step, s.domains[domain].reward) for s in window if domain in s.domains]
    points = [(x, y) for x, y in seen if not math.isnan(y)]
    if len(points) < 2:
        return NAN
    middle = math.fsum(x for x, _ in points) / len(points)
    level = math.fsum(y for _, y in points) / len(points)
    over = math.fsum((x - middle) * (y - level) for x, y in points)
    return over / math.fsum((x - middle) ** 2 for x, _ in points)


def scores_of(
    rule: str, settings: Mapping[str, Any], domains: Sequence[str], history: Sequence[Step]
) -> list[float]:
    """The statistic of each domain, with the rule for domains that have none applied."""
    window = history[-settings["window_steps"] :]
    if rule == "tscl":
        few = settings.get("few_points", NAN)
        slopes = [slope(window, d) for d in domains]
        scores = [few if math.isnan(b) else abs(b) for b in slopes]
    elif rule == "dump_ucb":
        count = {d: sum(s.domains[d].count for s in history if d in s.domains) for d in domains}
        everything = sum(count.values())
        scores = []
        for d in domains:
            limit = settings["window_responses"]
            mean = window_mean(newest(history, d, limit) if limit else window, d, "advantage")
            bonus = math.sqrt(2 * math.log(everything + 1) / (count[d] + 1))
            scores.append(mean + settings["exploration"] * bonus)
    else:
        rewards = [window_mean(window, d, "reward") for d in domains]
        if "unseen_reward" in settings:
            rewards = [settings["unseen_reward"] if math.isnan(r) else r for r in rewards]
        top = max((r for r in rewards if not math.isnan(r)), default=NAN)
        scores = rewards if rule == "mean_reward" else [top - r for r in rewards]
    best = max((s for s in scores if not math.isnan(s)), default=0.0)
    return [best if math.isnan(s) else s for s in scores]


def proposals(
    preset: str,
    params: Mapping[str, Any],
    domains: Sequence[str],
    steps: Sequence[Step],
    prior: Sequence[float] | None = None,
) -> list[list[float]]:
    """Proportions of the sorted domains after each step; `params` has the three shared clocks."""
    rule, fixed = PRESETS[preset]
    settings = {**SHARED, **fixed, **params}
    p = list(prior) if prior is not None else [1 / len(domains)] * len(domains)
    given = settings.get("proportions") or dict.fromkeys(domains, 1)
    fixed_shares = [given.get(d, 0) / math.fsum(given.values()) for d in domains]
    if rule == "static":  # the proportions are the prior too
        p = fixed_shares
    out = []
    for past in range(1, len(steps) + 1):
        since = past - settings["warmup_steps"]
        if since >= 0 and since % settings["update_every_steps"] == 0:
            if rule == "static":
                p = fixed_shares
            else:
                scores = scores_of(rule, settings, domains, steps[:past])
                shares = softmax([s / settings["temperature"] for s in scores])
                p = hold_floor(shares, settings["floor"])
        out.append(p)
    return out


def never_seen(domains: Sequence[str], steps: Sequence[Step]) -> list[str]:
    """Domains no step has shown, or only with NaN rewards."""
    seen = {d for s in steps for d, part in s.domains.items() if not math.isnan(part.reward)}
    return [d for d in domains if d not in seen]


def quota(
    names: Sequence[str], p: Sequence[Any], carry: Sequence[Any], count: int
) -> tuple[list[int], list[Any]]:
    """Whole prompts of each domain and the next carry; exact where p and carry are fractions."""
    want = [count * share + left for share, left in zip(p, carry, strict=True)]
    n = [max(0, math.floor(w)) for w in want]
    by_name = sorted(range(len(names)), key=lambda d: names[d])
    while sum(n) < count:
        most = max(want[d] - n[d] for d in by_name)
        n[next(d for d in by_name if want[d] - n[d] == most)] += 1
    while sum(n) > count:
        some = [d for d in by_name if n[d] > 0]
        least = min(want[d] - n[d] for d in some)
        n[next(d for d in some if want[d] - n[d] == least)] -= 1
    return n, [w - k for w, k in zip(want, n, strict=True)]
