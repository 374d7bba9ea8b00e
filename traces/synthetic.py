"""Generated rollouts: with a truth that can be derived by hand, or as nasty as real ones get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .ragged import Float


def exact_step(
    solved: Sequence[int],
    n: int,
    *,
    step: int = 1,
    domains: Sequence[str] | None = None,
    num_tokens: int = 4,
    log_prob: float = -0.5,
) -> dict[str, Any]:
    """Columns of a step whose group g has exactly ``solved[g]`` of n binary rewards equal to 1.

    Known truth (Bessel std, eps → 0): a mixed group has A₊ = √((1−p̂)/p̂·(n−1)/n), Σ A² = n − 1
    and Kish size 4 n p̂(1−p̂) over |A|; constant groups have A = 0. All tokens are alike, so the
    effective batch of ``none`` is the number of mixed groups.

    Args:
        solved: solved responses of each group (G).
        n: responses of every group.
        step: step number.
        domains: domain of each group (G).
        num_tokens: tokens of every response.
        log_prob: log-prob of every token.
    """
    groups = len(solved)
    reward = (np.arange(n)[None, :] < np.asarray(solved)[:, None]).astype(np.float64)
    count = groups * n
    names = [f"s{step:05d}-g{g:05d}" for g in range(groups)]
    columns: dict[str, Any] = {
        "step": step,
        "group_uid": np.repeat(np.array(names, dtype=object), n),
        "rollout_idx": np.tile(np.arange(n), groups),
        "prompt_id": np.repeat(np.array([f"p{g:05d}" for g in range(groups)], dtype=object), n),
        "reward": reward.ravel(),
        "num_tokens": np.full(count, num_tokens),
        "old_log_probs": (
            np.full(count * num_tokens, log_prob, dtype=np.float32),
            np.full(count, num_tokens),
        ),
    }
    if domains is not None:
        columns["domain"] = np.repeat(np.array(domains, dtype=object), n)
    return columns


def binary_steps(
    solve_rates: Mapping[str, float],
    *,
    steps: int,
    groups_per_domain: int,
    n: int,
    seed: int,
    num_tokens: int = 4,
) -> Iterator[dict[str, Any]]:
    """Steps of binary rewards, Bernoulli with the domain's solve rate.

    Known truth: the expected live share of a domain is 1 − pⁿ − (1−p)ⁿ
    (:func:`expected_live_frac`).

    Args:
        solve_rates: domain → probability p that a response is solved.
        steps: number of steps.
        groups_per_domain: prompt groups of each domain in a step.
        n: responses a group.
        seed: of the generator.
        num_tokens: tokens of every response.
    """
    rng = np.random.default_rng(seed)
    names = [d for d in solve_rates for _ in range(groups_per_domain)]
    rates = np.repeat(list(solve_rates.values()), groups_per_domain)
    for step in range(1, steps + 1):
        solved = rng.binomial(n, rates)
        yield exact_step(solved.tolist(), n, step=step, domains=names, num_tokens=num_tokens)


def expected_live_frac(solve_rate: float, n: int) -> float:
    """Probability that n Bernoulli rewards differ: 1 − pⁿ − (1−p)ⁿ."""
    return 1.0 - solve_rate**n - (1.0 - solve_rate) ** n


def random_step(
    rng: np.random.Generator,
    *,
    max_groups: int = 8,
    max_size: int = 9,
    max_tokens: int = 6,
    nan_rewards: bool = False,
) -> dict[str, Any]:
    """Columns of a hostile step: ragged groups, ties, constant groups, singletons, empty responses.

    Rewards are binary, graded, negative or continuous; prompts repeat; row order is random.
    """
    groups = int(rng.integers(1, max_groups + 1))
    sizes = rng.integers(1, max_size + 1, groups)
    count = int(sizes.sum())
    reward = _rewards(rng, sizes)
    if nan_rewards:
        reward[rng.random(count) < 0.2] = np.nan
    tokens = rng.integers(0, max_tokens + 1, count)
    uids = rng.permutation(10 * groups)[:groups]
    order = rng.permutation(count)
    lengths = tokens[order]
    prompts = rng.integers(0, max(groups - 1, 1), groups)
    domains = rng.integers(0, 3, groups)
    return {
        "step": int(rng.integers(1, 100)),
        "group_uid": np.repeat([f"u{u:03d}" for u in uids], sizes).astype(object)[order],
        "rollout_idx": np.concatenate([rng.permutation(20)[:s] for s in sizes])[order],
        "prompt_id": np.repeat([f"p{p}" for p in prompts], sizes).astype(object)[order],
        "domain": np.repeat([f"d{d}" for d in domains], sizes).astype(object)[order],
        "reward": reward[order],
        "num_tokens": lengths,
        "old_log_probs": (_log_probs(rng, int(lengths.sum())), lengths),
    }


def _rewards(rng: np.random.Generator, sizes: Any) -> Float:
    count = int(sizes.sum())
    style = rng.integers(0, 4)
    if style == 0:
        reward = (rng.random(count) < rng.random()).astype(np.float64)
    elif style == 1:
        reward = rng.choice([-1.0, -0.5, 0.1, 0.5, 1.0], count)
    elif style == 2:
        reward = np.round(rng.normal(size=count), 1)
    else:
        reward = rng.normal(size=count) * 10.0 ** rng.integers(-3, 4)
    constant = np.repeat(rng.random(len(sizes)) < 0.25, sizes)
    return np.where(constant, np.repeat(rng.choice([0.0, 0.1, 1.0], len(sizes)), sizes), reward)


def _log_probs(rng: np.random.Generator, count: int) -> Any:
    return -rng.exponential(0.7, count).astype(np.float32)
