"""The overall score, by domain or plain, and the subsets of benchmarks it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...traces.errors import DfsimError, nearest
from ...traces.ragged import Float
from ...traces.spelling import option
from ..stats.ranks import ScorePair
from .benchmarks import known_domains, known_suites

_WORDS = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)

Groups = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Overall:
    """How scores become one.

    Attributes:
        domains: domain → metrics; empty means the plain mean.
        subsets: name → metrics, whose order of methods is compared with the overall's.
        known: whether domains were found by the names of benchmarks.
    """

    domains: Groups
    subsets: Groups
    known: bool


def overall_of(metrics: Sequence[str], domains: Groups | None, subsets: Groups | None) -> Overall:
    """Check named groups, or find known ones.

    Args:
        metrics: columns of scores.
        domains: domain → metrics.
        subsets: name → metrics.

    Raises:
        DfsimError: an unknown metric (nearest given), one in two domains, or an empty group.
    """
    for flag, groups in (("domains", domains), ("subsets", subsets)):
        for name, members in (groups or {}).items():
            if not members:
                shown = option(flag, "METRIC,METRIC", key=name)
                raise DfsimError(f"{option(flag, key=name)} names no metric; write {shown}")
            for metric in members:
                if metric not in metrics:
                    have = nearest(metric, metrics) or f"; there are: {', '.join(metrics[:20])}"
                    raise DfsimError(
                        f"{option(flag, key=name)}: '{metric}' is no score of the table{have}"
                    )
    seen: dict[str, str] = {}
    for name, members in (domains or {}).items():
        for metric in members:
            if metric in seen:
                raise DfsimError(
                    f"{option('domains')}: '{metric}' is in {seen[metric]} and in {name}; leave it "
                    "in one"
                )
            seen[metric] = name
    found = known_domains(metrics) if domains is None else domains
    return Overall(
        found, {**known_suites(metrics), **(subsets or {})}, domains is None and bool(found)
    )


def weights_of(metrics: Sequence[str], members: Sequence[str]) -> Float:
    """Weights (M) of a plain mean over some of the metrics."""
    taken = np.array([m in members for m in metrics], dtype=np.float64)
    return np.asarray(taken / taken.sum())


def overall_weights(metrics: Sequence[str], domains: Groups) -> Float:
    """Weights (M): mean over domains of the mean over their metrics, or the plain mean.

    Domains that a cell has no metric of are left out, as are metrics without a domain.
    """
    held = [m for m in domains.values() if set(m) & set(metrics)]
    if not held:
        return weights_of(metrics, metrics)
    return np.asarray(np.mean([weights_of(metrics, m) for m in held], axis=0))


def rank_pairs(metrics: Sequence[str], overall: Overall) -> dict[ScorePair, tuple[Float, Float]]:
    """Pairs of scores whose orders of methods are compared, by name, with their weights.

    Each subset with the overall score, and each domain with the overall score of the others.
    """
    weight_M = overall_weights(metrics, overall.domains)
    held = {d: m for d, m in overall.domains.items() if set(m) & set(metrics)}
    name = overall_name(metrics, overall.domains)
    pairs = {
        ScorePair(subset, name): (weights_of(metrics, members), weight_M)
        for subset, members in overall.subsets.items()
        if set(members) <= set(metrics)
    }
    if len(held) > 1:
        for domain, members in held.items():
            others = {d: m for d, m in held.items() if d != domain}
            pairs[ScorePair(domain, f"the overall without {domain}", domain)] = (
                weights_of(metrics, members),
                overall_weights(metrics, others),
            )
    return pairs


def overall_name(metrics: Sequence[str], domains: Groups) -> str:
    """What the overall score is called in a sentence."""
    count = int(np.count_nonzero(overall_weights(metrics, domains)))
    return (
        f"the domain-balanced {in_words(count)}"
        if domains
        else f"the mean of all {in_words(count)}"
    )


def in_words(number: int) -> str:
    """A number up to twelve as a word."""
    return _WORDS[number] if number < len(_WORDS) else f"{number:,}"
