"""What a cell comes to, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...traces.spelling import option
from ..stats.power import Range
from ..stats.ranks import RankStability
from .cells import capped, title
from .judge import IF_NORMAL as IF_NORMAL
from .judge import Standard
from .overall import in_words
from .result import CellResult, MethodResult

FEW_SEEDS = 5
_SAME_ORDER = 1 - 1e-9
_LISTED = 8


@dataclass(frozen=True)
class Scale:
    """How differences are written.

    Attributes:
        digits: after the point.
        unit: with its blank, or empty.
    """

    digits: int
    unit: str

    def difference(self, value: float) -> str:
        """A signed difference."""
        return "–" if math.isnan(value) else f"{value:+.{self.digits}f}".replace("-", "−")

    def size(self, value: float) -> str:
        """A size, with as many digits as its magnitude needs."""
        if not math.isfinite(value):
            return "∞" if value == math.inf else "–"
        digits = self.digits if value < 10 * 10 ** (2 - self.digits) else max(0, self.digits - 1)
        return f"{value:.{digits}f}"

    def amount(self, value: float) -> str:
        """A size with its unit."""
        unit = " point" if self.unit == " points" and value == 1 else self.unit
        return f"{value:g}{unit}"


def scale_of(low: float, high: float) -> tuple[Scale, float | None]:
    """How to write scores, and the margin that is taken by itself.

    Args:
        low: smallest score.
        high: largest score.

    Returns:
        The scale; and 1 point for scores in 0…100, .01 for scores in 0…1, else ``None``.
    """
    if low >= 0 and high <= 1:
        return Scale(4, ""), 0.01
    if low >= 0 and high <= 100:
        return Scale(2, " points"), 1.0
    return Scale(3, ""), None


def p_text(p: float) -> str:
    """A p-value: two digits that matter, three decimals at most."""
    if math.isnan(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.0995 else f"{p:.2f}"


def coverage(alpha: float) -> str:
    """What an interval covers, in percent: .001 is 99.9 %, not 100."""
    return f"{100 * (1 - alpha):.10g}%"


def count(number: int, noun: str) -> str:
    """A number in words, and its noun."""
    return f"{in_words(number)} {noun}{'' if number == 1 else 's'}"


def sentences(cell: CellResult, by: Standard, scale: Scale, wanted: Sequence[str]) -> list[str]:
    """What a cell comes to.

    Args:
        cell: judged.
        by: level, margin, power.
        scale: how to write differences.
        wanted: names that a baseline was looked for by.
    """
    if len(cell.methods) == 1:
        return [f"Only {cell.methods[0].name} ran here, so there is nothing to compare it with."]
    if cell.baseline is None:
        return [
            f"No baseline ({', '.join(wanted)}) among {_names(cell.methods)}, so nothing is "
            f"tested: name one with {option('baseline')}.",
            *_ranks(cell, by),
        ]
    return [*_tests(cell, by, scale), *_precision(cell, by, scale), *_ranks(cell, by)]


def _names(methods: Sequence[MethodResult]) -> str:
    return capped([m.name for m in methods])


def _tests(cell: CellResult, by: Standard, scale: Scale) -> Iterator[str]:
    for method in cell.methods:
        if method.verdict == "not compared":
            yield f"{method.name} is not compared: {method.reason}."
    tested = [m for m in cell.compared if not math.isnan(_holm(m))]
    if not tested:
        if cell.compared:
            yield (
                f"One pair of seeds gives a difference from {cell.baseline} and nothing about its "
                "noise: no interval, no test."
            )
        return
    apart = [m for m in tested if m.verdict in ("above", "below")]
    family = f"{count(len(tested), 'method')}, Holm"
    for method in apart:
        yield _separated(method, cell, by, scale, family)
    if not apart:
        low = min(_holm(m) for m in tested)
        yield (
            f"Nothing is separated from {cell.baseline} after correction ({family}: smallest "
            f"adjusted p {p_text(low)})."
        )
    yield from _too_few(tested, apart, by)
    yield from _equivalent(tested, cell, by, scale)
    yield from _metrics(cell, by, scale)


def _holm(method: MethodResult) -> float:
    return math.nan if method.overall is None else method.overall.p_holm


def _too_few(
    tested: Sequence[MethodResult], apart: Sequence[MethodResult], by: Standard
) -> Iterator[str]:
    """That the seeds can't do without normal differences; of the method that has most of them."""
    weak = [m for m in apart if m.reason == IF_NORMAL] if apart else tested
    paired = [m.overall for m in weak if m.overall is not None]
    most = max(paired, key=lambda c: c.seeds, default=None)
    if most is None:
        return
    if most.p_sign_flip_min <= by.alpha:
        if apart:
            yield (
                f"That rests on normal differences for {_names(weak)}: sign flips, which assume "
                f"symmetric noise only, give p {p_text(max(c.p_sign_flip for c in paired))}."
            )
        return
    could = "could not have shown a difference" if not apart else "can't show that"
    some = f" of {_names(weak)}" if apart and len(weak) < len(apart) else ""
    yield (
        f"{count(most.seeds, 'seed').capitalize()} {could}{some} without assuming normal "
        f"differences: the smallest p a sign-flip can give is {p_text(most.p_sign_flip_min)}."
    )


def _separated(
    method: MethodResult, cell: CellResult, by: Standard, scale: Scale, family: str
) -> str:
    c = method.overall
    assert c is not None
    low, high = headline(method)
    within = (
        ""
        if math.isnan(low)
        else (f" ({coverage(by.alpha)} {scale.difference(low)} … {scale.difference(high)})")
    )
    return (
        f"{method.name} is {method.verdict} {cell.baseline} by "
        f"{scale.size(abs(c.difference))}{scale.unit}{within}: p {p_text(c.p_holm)} after "
        f"correction ({family})."
    )


def headline(method: MethodResult) -> tuple[float, float]:
    """The interval to quote: paired t below 15 seeds, the bootstrap from there."""
    from ..stats.bootstrap import STUDENTIZED_FROM

    c = method.overall
    if c is None:
        return math.nan, math.nan
    return (c.boot_low, c.boot_high) if c.seeds >= STUDENTIZED_FROM else (c.low, c.high)


def _equivalent(
    tested: Sequence[MethodResult], cell: CellResult, by: Standard, scale: Scale
) -> Iterator[str]:
    if by.margin is None:
        return
    alike = [m.name for m in tested if m.overall and m.overall.p_equivalence_holm <= by.alpha]
    margin = scale.amount(by.margin)
    if alike:
        yield (
            f"Within {margin} of {cell.baseline} by two one-sided t-tests (Holm; if differences "
            f"are normal): {capped(alike)}."
        )
    else:
        yield f"None is shown to be within {margin} of {cell.baseline} either."


def _metrics(cell: CellResult, by: Standard, scale: Scale) -> Iterator[str]:
    """Single benchmarks, corrected over all of them."""
    tested = [c for c in cell.comparisons if not math.isnan(c.p_holm)]
    if len(cell.metrics) < 2 or not tested:
        return
    first = min(tested, key=lambda c: (c.p_holm, c.p, c.method, c.metric))
    apart = [c for c in tested if c.p_holm <= by.alpha]
    what = f"{first.method} on {first.metric}, {scale.difference(first.difference)}"
    many = f"of {in_words(len(tested))} pairs of method and benchmark"
    if not apart:
        yield (
            f"Benchmark by benchmark: none {many} is separated (Holm); the closest is {what}, p "
            f"{p_text(first.p)}, {p_text(first.p_holm)} after correction."
        )
        return
    names = [f"{c.method} on {c.metric} {scale.difference(c.difference)}" for c in apart]
    verb = "is" if len(apart) == 1 else "are"
    caveat = "" if max(c.p_sign_flip for c in apart) <= by.alpha else f", {IF_NORMAL}"
    yield (
        f"Benchmark by benchmark: {in_words(len(apart))} {many} {verb} separated (Holm){caveat}: "
        f"{capped(names)}."
    )


def _precision(cell: CellResult, by: Standard, scale: Scale) -> Iterator[str]:
    found = cell.precision
    if found is None or found.std.value == 0:
        return
    first = f", {scale.size(found.detectable_holm.value)} at Holm's first step"
    first = first if len(cell.compared) > 1 else ""
    yield (
        f"With {count(found.seeds, 'seed')} a true difference of {_range(found.detectable, scale)} "
        f"is the smallest found with probability {by.power:g} at level {by.alpha:g}{first}. The "
        f"bracket is what {count(found.seeds, 'pair')} leave open about the noise."
    )
    needed = found.seeds_needed
    if needed is not None and by.margin is not None:
        yield (
            f"To find {scale.amount(by.margin)}: about {_whole(needed.value)} seeds "
            f"({_whole(needed.low)} … {_whole(needed.high)})."
            + (" Correction for so many methods takes more." if len(cell.compared) > 1 else "")
        )


def _range(found: Range, scale: Scale) -> str:
    ends = f"({scale.size(found.low)} … {scale.size(found.high)})"
    return f"{scale.size(found.value)}{scale.unit} {ends}"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "over a million"


def _ranks(cell: CellResult, by: Standard) -> Iterator[str]:
    """The named subset, or the weakest agreement; the rest stands in the table."""
    subsets = [r for r in cell.ranks if not r.left_out]
    known = sorted((r for r in cell.ranks if not math.isnan(r.p)), key=lambda r: r.p)
    looked = len(subsets or known)
    for rank in subsets or known[:1]:
        yield _rank(rank, by.alpha / looked)


def _rank(rank: RankStability, level: float) -> str:
    """One pair of orders, at a level shared by all pairs that were looked at."""
    if math.isnan(rank.correlation):
        equal = rank.first if rank.spread_first <= rank.spread_second else rank.second
        return f"The order of methods by {equal} is not defined: all are equal."
    if rank.correlation > _SAME_ORDER:
        noise = "it is the same"
    elif rank.p <= level:
        noise = "noise alone would rarely give so little agreement"
    elif rank.correlation < 0:
        noise = "noise alone reverses them that often"
    else:
        noise = "noise alone gives as little agreement that often"
    if rank.median is not None:
        return (
            f"The order of methods changes most by leaving out {rank.left_out}: it then correlates "
            f"{signed(rank.correlation)} with the order by all (median over "
            f"benchmarks {signed(rank.median)}); if all methods were alike, P(so low) "
            f"{_is(rank.p)}: {noise}."
        )
    return (
        f"The order of methods by {rank.first} and by {rank.second} correlates "
        f"{signed(rank.correlation)}; if all methods were alike, P(so low) {_is(rank.p)}: {noise}. "
        f"Method means spread over {rank.spread_first:.4g} and {rank.spread_second:.4g} "
        f"(P(so wide) {_is(rank.p_spread_first)} and {p_text(rank.p_spread_second)})."
    )


def _is(p: float) -> str:
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


def signed(value: float) -> str:
    """A correlation with its sign."""
    return "–" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def summary(cell: CellResult) -> str:
    """A cell's name and size, for a heading."""
    name = f"{title(cell.name)} · " if cell.name else ""
    many = len(cell.seeds)
    seeds = f"{many} seeds" if many > _LISTED else f"seed{'s'[: many - 1]} {', '.join(cell.seeds)}"
    return f"{name}{len(cell.methods)} method{'s'[: len(cell.methods) - 1]} · {seeds}"
