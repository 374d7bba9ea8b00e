"""Slow reference for the estimators: plain loops, a record a token, written from the text only."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]
Decision = dict[str, Any]
Key = tuple[str, int]

NAN = math.nan
MODES = (
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
)


class Token(NamedTuple):
    """One token of one response, with all that a sum over tokens can ask for."""

    group: str
    key: Key
    c: float  # coefficient of the loss aggregation
    w: float  # weight of the decision
    a: float  # advantage in the numerators: A' where the decision replaces it, else A
    base: float  # logged advantage A
    d: float  # reward minus the mean reward of the logged group
    u: float  # (1 - pi)^2, or 1 without log-probs


class Response(NamedTuple):
    """One response: its weight w_i, and sum |w A| over it (whether it carries any signal)."""

    group: str
    weight: float
    activity: float


def key_of(row: Row) -> Key:
    """Give the (group_uid, rollout_idx) of a row."""
    return (row["group_uid"], row["rollout_idx"])


def ratio(above: float, below: float) -> float:
    """Divide; NaN when the denominator is zero."""
    return NAN if below == 0 else above / below


def mean(values: Sequence[float]) -> float:
    """Average; NaN of nothing."""
    return ratio(math.fsum(values), len(values))


def kish(weights: Iterable[float]) -> float:
    """Kish size (sum w)^2 / sum w^2; 0 when every weight is zero."""
    listed = list(weights)
    squares = math.fsum(x * x for x in listed)
    return 0.0 if squares == 0 else math.fsum(listed) ** 2 / squares


def members(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by prompt group, in order of first appearance."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["group_uid"], []).append(row)
    return groups


def is_live(group: Sequence[Row], reward_tol: float) -> bool:
    """Whether the rewards of a group differ by more than the tolerance."""
    rewards: list[float] = [row["reward"] for row in group]
    return max(rewards) - min(rewards) > reward_tol


# -- coefficients of the loss aggregation ------------------------------------------------------


def outputs_of(rows: Sequence[Row]) -> dict[Key, list[tuple[int, int]]]:
    """Give the (tokens, mini-batch) of every output row of every response.

    Where no row says so: one mini-batch, one output a response.
    """
    carrying = [row.get("outputs") is not None for row in rows]
    if not any(carrying):
        return {key_of(row): [(row["num_tokens"], 0)] for row in rows}
    if not all(carrying):
        raise ValueError("some rows carry outputs and some do not")
    for row in rows:
        if sum(tokens for tokens, _ in row["outputs"]) != row["num_tokens"]:
            raise ValueError(f"outputs of {key_of(row)} do not sum to its num_tokens")
    return {key_of(row): list(row["outputs"]) for row in rows}


def coefficients(
    rows: Sequence[Row],
    loss_agg_mode: str = "token-mean",
    mini_batch_rows: int | None = None,
    loss_scale_factor: float | None = None,
) -> dict[Key, list[float]]:
    """Give c_it of every token; NaN where token-sum-norm has no loss_scale_factor."""
    if loss_agg_mode not in MODES:
        raise ValueError(f"unknown loss_agg_mode {loss_agg_mode!r}")
    outputs = outputs_of(rows)
    tokens_in: dict[int, int] = {}
    rows_in: dict[int, int] = {}
    for listed in outputs.values():
        for tokens, batch in listed:
            tokens_in[batch] = tokens_in.get(batch, 0) + tokens
            rows_in[batch] = rows_in.get(batch, 0) + 1

    def coefficient(tokens: int, batch: int) -> float:
        size = rows_in[batch] if mini_batch_rows is None else mini_batch_rows
        if loss_agg_mode == "token-mean":
            return 1.0 / tokens_in[batch]
        if loss_agg_mode == "token-sum":
            return 1.0
        if loss_agg_mode == "seq-mean-token-mean":
            return 1.0 / (size * tokens)
        if loss_agg_mode == "seq-mean-token-sum":
            return 1.0 / size
        return NAN if loss_scale_factor is None else 1.0 / (size * loss_scale_factor)

    result: dict[Key, list[float]] = {}
    for key, listed in outputs.items():
        result[key] = []
        for tokens, batch in listed:
            if tokens > 0:
                result[key] += [coefficient(tokens, batch)] * tokens
    return result


# -- records -----------------------------------------------------------------------------------


def score_norm(log_prob: float) -> float:
    """Give (1 - pi)^2; 0 for a log-prob that is NaN or +inf."""
    if math.isnan(log_prob) or log_prob == math.inf:
        return 0.0
    return (1.0 - math.exp(log_prob)) ** 2


def per_token(values: Sequence[float], row: Row) -> list[float]:
    """Check that a list has one value a token."""
    if len(values) != row["num_tokens"]:
        raise ValueError(f"{key_of(row)}: {len(values)} values, {row['num_tokens']} tokens")
    return list(values)


def token_weights_of(row: Row, decision: Decision) -> list[float]:
    """Give w_it of a response."""
    weights = decision.get("token_weights")
    if weights is None:
        return [decision["weight"][key_of(row)]] * row["num_tokens"]
    return per_token(weights[key_of(row)], row)


def logged_advantages_of(row: Row) -> list[float]:
    """Give A_it of a response."""
    advantages = row.get("token_advantages")
    if advantages is None:
        return [row["advantage"]] * row["num_tokens"]
    return per_token(advantages, row)


def advantages_of(row: Row, decision: Decision) -> list[float]:
    """Give A'_it where the decision replaces advantages, else A_it."""
    replaced = decision.get("advantage")
    if replaced is None:
        return logged_advantages_of(row)
    return [replaced[key_of(row)]] * row["num_tokens"]


def score_norms_of(row: Row) -> list[float]:
    """Give u_it of a response."""
    log_probs = row.get("old_log_probs")
    if log_probs is None:
        return [1.0] * row["num_tokens"]
    return [score_norm(x) for x in per_token(log_probs, row)]


def response_of(row: Row, decision: Decision) -> Response:
    """Give w_i and sum |w A| of a response; 0 where it has no token to train."""
    key = key_of(row)
    weights = token_weights_of(row, decision)
    weight = decision["weight"][key]
    if decision.get("token_weights") is not None and weights:
        weight = math.fsum(weights) / len(weights)
    if not row["num_tokens"]:
        return Response(row["group_uid"], weight, 0.0)
    replaced = decision.get("advantage")
    tokenwise_a = replaced is None and row.get("token_advantages") is not None
    if decision.get("token_weights") is not None or tokenwise_a:
        advantages = advantages_of(row, decision)
        activity = math.fsum(abs(w * a) for w, a in zip(weights, advantages, strict=True))
    else:
        activity = abs(weight * (row["advantage"] if replaced is None else replaced[key]))
    return Response(row["group_uid"], weight, activity)


def tokens_of(
    rows: Sequence[Row], decision: Decision, coefficient: dict[Key, list[float]]
) -> list[Token]:
    """Give one record for every token of the rows."""
    records: list[Token] = []
    for group, group_rows in members(rows).items():
        baseline = mean([row["reward"] for row in group_rows])
        for row in group_rows:
            key = key_of(row)
            weights = token_weights_of(row, decision)
            advantages = advantages_of(row, decision)
            logged = logged_advantages_of(row)
            norms = score_norms_of(row)
            for t in range(row["num_tokens"]):
                records.append(
                    Token(
                        group,
                        key,
                        c=coefficient[key][t],
                        w=weights[t],
                        a=advantages[t],
                        base=logged[t],
                        d=row["reward"] - baseline,
                        u=norms[t],
                    )
                )
    return records


# -- single estimates --------------------------------------------------------------------------


def signal(token: Token) -> float:
    """Give c w |A| of a token."""
    return token.c * token.w * abs(token.a)


def signal_by_group(tokens: Sequence[Token]) -> list[float]:
    """Give s_g = sum c w |A| of every group that has a token."""
    listed: dict[str, list[float]] = {}
    for t in tokens:
        listed.setdefault(t.group, []).append(signal(t))
    return [math.fsum(values) for values in listed.values()]


def signal_by_response(tokens: Sequence[Token]) -> list[float]:
    """Give sum_t c w |A| of every response that has a token."""
    listed: dict[Key, list[float]] = {}
    for t in tokens:
        listed.setdefault(t.key, []).append(signal(t))
    return [math.fsum(values) for values in listed.values()]


def added_up(
    tokens: Sequence[Token],
    value: Callable[[Token], float],
    domain_of: Mapping[str, Any],
    factor_of: Mapping[str, float] | None = None,
) -> float:
    """Give sum_d (sum over the tokens of domain d of f_g value)^2; one domain where unknown."""
    sums: dict[Any, list[float]] = {}
    for t in tokens:
        factor = 1.0 if factor_of is None else factor_of[t.group]
        sums.setdefault(domain_of.get(t.group), []).append(factor * value(t))
    return math.fsum(math.fsum(values) ** 2 for values in sums.values())


def projection(token: Token) -> float:
    """Give c w A d of a token."""
    return token.c * token.w * token.a * token.d


def noise_of_responses(tokens: Sequence[Token]) -> float:
    """Give sum c^2 w^2 A^2 u."""
    return math.fsum(t.c**2 * t.w**2 * t.a**2 * t.u for t in tokens)


def signal_to_noise(tokens: Sequence[Token], domain_of: Mapping[str, Any]) -> float:
    """Give sum_d (sum_g S_g)^2 / sum c^2 w^2 A^2 u, with the decision's A on both sides."""
    return ratio(added_up(tokens, projection, domain_of), noise_of_responses(tokens))


def evenness(group: Sequence[Row]) -> float:
    """Give (sum |d|)^2 / (n sum d^2) of a group's rewards around their mean."""
    known = [row["reward"] for row in group if not math.isnan(row["reward"])]
    centre = mean(known)
    off = [abs(r - centre) for r in known]
    return ratio(math.fsum(off) ** 2, len(off) * math.fsum(x * x for x in off))


def effective_batch(
    tokens: Sequence[Token],
    none_tokens: Sequence[Token],
    live: Mapping[str, Sequence[Row]],
    domain_of: Mapping[str, Any],
    phi: float,
) -> tuple[float, float, float]:
    """Give (point, low, high) in live groups of the uniform update.

    Every size is squared signal over noise, relative to the uniform update. Signals add up inside
    domains only (the point), or over all groups; a group counts fully, or by the root of its
    rewards' evenness. Noise is that of the prompts, or that of the responses, whose tokens count by
    (1 - pi)^2 or alike, or whose responses that are pushed the same way are one and the same.
    """
    total = math.fsum(signal_by_group(tokens))
    if math.isnan(total):
        return (NAN, NAN, NAN)
    if len(live) == 0 or total == 0:
        return (0.0, 0.0, 0.0)
    groups = {t.group for t in (*tokens, *none_tokens)}
    fading = {g: math.sqrt(evenness(live[g])) if g in live else 0.0 for g in groups}
    found: list[list[float]] = []
    for factors in (None, fading):
        for domains in (domain_of, {}):
            model = []
            for value, noise in (
                (signal, prompt_noise),
                (projection, noise_of_responses),
                (projection, even_noise),
                (projection, alike_noise),
            ):
                mine, none = (
                    ratio(added_up(listed, value, domains, factors), noise(listed))
                    for listed in (tokens, none_tokens)
                )
                model.append(ratio(mine, none))
            found.append(model)
    sizes = [size for model in found for size in model]
    if any(math.isnan(size) for size in sizes):
        return (NAN, NAN, NAN)
    gamma, rho, *_ = found[0]
    point = 0.0
    if gamma > 0 and rho > 0:
        point = len(live) / ((1.0 - phi) / gamma + phi / rho)
    return (point, len(live) * min(sizes), len(live) * max(sizes))


def even_noise(tokens: Sequence[Token]) -> float:
    """Give sum c^2 w^2 A^2."""
    return math.fsum(t.c**2 * t.w**2 * t.a**2 for t in tokens)


def alike_noise(tokens: Sequence[Token]) -> float:
    """Give sum_g of the squared sums of sqrt(sum_t c^2 w^2 A^2 u) of responses pushed alike."""
    energy: dict[Key, float] = {}
    pushed: dict[Key, float] = {}
    group_of: dict[Key, str] = {}
    for t in tokens:
        energy[t.key] = energy.get(t.key, 0.0) + t.c**2 * t.w**2 * t.a**2 * t.u
        pushed[t.key] = pushed.get(t.key, 0.0) + t.c * t.w * t.a
        group_of[t.key] = t.group
    sides: dict[tuple[str, bool], float] = {}
    for key, total in pushed.items():
        if total != 0:
            side = (group_of[key], total > 0)
            sides[side] = sides.get(side, 0.0) + math.sqrt(energy[key])
    return math.fsum(value**2 for value in sides.values())


def prompt_noise(tokens: Sequence[Token]) -> float:
    """Give sum_g s_g^2."""
    return math.fsum(s * s for s in signal_by_group(tokens))


def energy_scale(tokens: Sequence[Token]) -> tuple[float, float]:
    """Give the extremes of sqrt(sum k f w^2 / sum k f) over f in [1, 2] for each token.

    A ratio of two sums that are linear in each f is extreme where each f is 1 or 2. It rises
    with f exactly where w^2 is above the ratio, so tokens sorted by ascending w^2 split at a
    cut: for the highest the small ones have f = 1 and the large ones 2, for the lowest the
    small ones have 2 and the large ones 1.
    """
    pairs: list[tuple[float, float]] = []  # (w^2, k)
    for t in tokens:
        k = t.c**2 * t.base**2 * t.u
        if math.isnan(k):
            return (NAN, NAN)
        if t.base != 0:  # else k = 0
            pairs.append(((t.w * t.a / t.base) ** 2, k))
    pairs.sort()
    all_kw = math.fsum(k * w2 for w2, k in pairs)
    all_k = math.fsum(k for _, k in pairs)
    if all_k == 0:
        return (NAN, NAN)
    small_kw = small_k = 0.0  # sums over the tokens below the cut
    lowest = highest = all_kw / all_k  # the empty prefix: one f for all
    for w2, k in pairs:
        small_kw += k * w2
        small_k += k
        highest = max(highest, (2 * all_kw - small_kw) / (2 * all_k - small_k))
        lowest = min(lowest, (all_kw + small_kw) / (all_k + small_k))
    return (math.sqrt(lowest), math.sqrt(highest))


def group_balance(tokens: Sequence[Token], signal_groups: Collection[str]) -> tuple[float, float]:
    """Give (group_bias, one_sided_frac), means over the signal groups."""
    biases: list[float] = []
    one_sided: list[float] = []
    for group in signal_groups:
        inside = [t for t in tokens if t.group == group]
        net = math.fsum(t.c * t.w * t.a for t in inside)
        biases.append(ratio(abs(net), math.fsum(signal(t) for t in inside)))
        signs = {t.a > 0 for t in inside if t.w > 0 and t.a != 0}
        one_sided.append(1.0 if len(signs) == 1 else 0.0)
    return (mean(biases), mean(one_sided))


def estimates(
    rows: Sequence[Row],
    decision: Decision,
    *,
    loss_agg_mode: str = "token-mean",
    mini_batch_rows: int | None = None,
    loss_scale_factor: float | None = None,
    reward_tol: float = 1e-6,
    phi: float = 0.25,
    groups: Collection[str] | None = None,
) -> dict[str, float]:
    """Give every per-step number; `groups` restricts the sums, never the coefficients."""
    c_of = coefficients(rows, loss_agg_mode, mini_batch_rows, loss_scale_factor)
    if groups is not None:
        rows = [row for row in rows if row["group_uid"] in groups]
    none = {"weight": {key_of(row): 1.0 for row in rows}}
    tokens = tokens_of(rows, decision, c_of)
    none_tokens = tokens_of(rows, none, c_of)
    responses = [response_of(row, decision) for row in rows]
    by_group = members(rows)

    n, g, m = len(rows), len(by_group), len(tokens)
    live = [uid for uid, group in by_group.items() if is_live(group, reward_tol)]
    active = {
        uid for uid in by_group if math.fsum(r.activity for r in responses if r.group == uid) > 0
    }
    signal_groups = [uid for uid in live if uid in active]
    single = {uid for uid, group in by_group.items() if len(group) == 1}
    weights = [r.weight for r in responses]
    weight_mean = mean(weights)
    variance = mean([(w - weight_mean) ** 2 for w in weights])
    kept_groups = {r.group for r in responses if r.weight > 0}
    trained = ratio(sum(1 for t in tokens if t.w > 0 and t.group in active), m)
    total_signal = math.fsum(signal(t) for t in tokens)
    domain_of = {row["group_uid"]: row.get("domain") for row in rows}
    live_groups = {uid: by_group[uid] for uid in live}
    point, low, high = effective_batch(tokens, none_tokens, live_groups, domain_of, phi)
    has_log_probs = all(row.get("old_log_probs") is not None for row in rows if row["num_tokens"])
    energy_low, energy_high = energy_scale(tokens) if has_log_probs else (NAN, NAN)
    group_bias, one_sided = group_balance(tokens, signal_groups)

    return {
        "num_responses": float(n),
        "num_groups": float(g),
        "num_tokens": float(m),
        "live_group_frac": ratio(len(live), g),
        "singleton_share": ratio(
            math.fsum(abs(row["advantage"]) for row in rows if row["group_uid"] in single),
            math.fsum(abs(row["advantage"]) for row in rows),
        ),
        "kept_frac": ratio(sum(1 for w in weights if w > 0), n),
        "kept_token_frac": ratio(sum(1 for t in tokens if t.w > 0), m),
        "kept_group_frac": ratio(len(kept_groups), g),
        "signal_group_frac": ratio(len(signal_groups), g),
        "weight_mean": weight_mean,
        "weight_std": math.sqrt(variance),
        "weight_max": max(weights, default=NAN),
        "ess_responses": kish(weights),
        "ess_tokens": kish(t.w for t in tokens),
        "kish_groups": kish(signal_by_group(tokens)),
        "kish_responses": kish(signal_by_response(tokens)),
        "signal_to_noise": signal_to_noise(tokens, domain_of),
        "effective_batch": point,
        "effective_batch_low": low,
        "effective_batch_high": high,
        "loss_scale": ratio(math.fsum(t.c * t.w for t in tokens), math.fsum(t.c for t in tokens)),
        "signal_scale": ratio(total_signal, math.fsum(t.c * abs(t.base) for t in tokens)),
        "energy_scale_low": energy_low,
        "energy_scale_high": energy_high,
        "group_bias": group_bias,
        "one_sided_frac": one_sided,
        "positive_share": ratio(math.fsum(signal(t) for t in tokens if t.a > 0), total_signal),
        "trained_token_frac": trained,
        "wasted_token_frac": 1.0 - trained,
    }
