"""What comparing finished runs says, on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...sim.compare.result import CellResult, CompareResult, MethodResult
from ...sim.compare.verdict import IF_NORMAL, Scale, p_text, signed, summary
from ...traces.findings import counted
from ..html import short, visible
from ..tables import print_notes

MEANS_WIDTH = 100
NAME_WIDTH = 36
_VERDICTS = {"baseline": "", "not compared": "–", "equivalent": "alike"}


def extent(result: CompareResult) -> str:
    """One line: what was compared."""
    runs = result.runs
    files = ", ".join(runs["files"]) or "frame"
    where = ", ".join(f"{k}={','.join(v)}" for k, v in result.settings["where"].items())
    rows = f"{runs['rows']:,} rows"
    if where:
        rows = f"{runs['used']:,} of {rows}, those with {where}"
    if runs["runs"] != runs["used"]:
        rows += f", a score each, of {runs['runs']:,} runs"
    line = f"{files}: {rows}"
    return f"{line} · {counted(len(result.cells), 'cell')}"


def print_compare(result: CompareResult, out: Console) -> None:
    """Print, for each cell, sentences, methods and ranks; means where there is one cell; notes."""
    scale = Scale(**result.settings["scale"])
    out.print(Text(_line(extent(result)), style="dim"))
    alone = len(result.cells) == 1
    for cell in result.cells:
        out.print()
        _print_cell(cell, scale, out, alone)
        if alone:
            tables = [_ranks(cell)] if len(cell.ranks) > 1 else []
            for table in (*tables, *_means(cell, scale)):
                out.print()
                out.print(table)
        if cell.cautions:
            out.print()
            print_notes([_line(c) for c in cell.cautions], out)
    out.print()
    more = [] if alone else ["Means by benchmark: take one cell (--where), --json or --out DIR."]
    print_notes([_line(n) for n in (*result.notes, *meanings(result), *more)], out)


def _line(text: str) -> str:
    """Text on one line, its control characters shown and not obeyed."""
    return " ".join(visible(text).split())


def meanings(result: CompareResult) -> Iterator[str]:
    """What columns of the table mean that don't say so."""
    compared = [m for cell in result.cells for m in cell.compared]
    if not compared:
        return
    yield (
        "Wins: share of seed × benchmark pairs in which a method is above the baseline, ties one "
        "half (probability of improvement)."
    )
    if any(m.reason == IF_NORMAL for m in compared):
        yield (
            "A star: separated if differences are normal; sign flips, which assume only symmetric "
            "noise, do not show it."
        )


def _print_cell(cell: CellResult, scale: Scale, out: Console, alone: bool) -> None:
    out.print(Text(_line(summary(cell)), style="bold"))
    for sentence in cell.sentences if alone else [" ".join(cell.sentences)]:
        out.print(Padding(Text(_line(sentence)), (0, 0, 0, 2), expand=False))
    out.print()
    out.print(_methods(cell, scale, out.width))


def _table(*left: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    for heading in left:
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    return table


def method_headings(cell: CellResult) -> list[str]:
    """Headings of the columns that :func:`method_cells` fills."""
    headings = ["\nmethod", "\noverall"]
    if cell.reference is not None:
        headings.append("over\nreference")
    if cell.baseline is not None:
        headings += [f"minus\n{cell.baseline}", "t\ninterval", "bootstrap\nof seeds"]
        headings += ["\np", "\nHolm", "sign\nflip", "\nmax-T", "\nwins", "\nverdict"]
    return headings


def _methods(cell: CellResult, scale: Scale, width: int) -> Table:
    """Methods; where the line is too short for all columns, without the bootstrap's.

    The name gives way first: half a number is another number.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    first, *headings = method_headings(cell)
    names, *columns = zip(*_full_rows(cell, scale, len(headings) + 1), strict=True)
    kept = list(zip(headings, columns, strict=True))
    if _room(kept, width) < _LEAST_NAME:
        kept = [(h, texts) for h, texts in kept if not h.startswith("bootstrap")]
    most = min(max(_room(kept, width), _LEAST_NAME), NAME_WIDTH)
    table.add_column(first, no_wrap=True, overflow="ellipsis", max_width=most)
    for heading, _ in kept:
        side: JustifyMethod = "left" if heading == "\nverdict" else "right"
        table.add_column(_heading(heading), justify=side, no_wrap=True, min_width=5)
    for name, *row in zip(names, *(texts for _, texts in kept), strict=True):
        table.add_row(short(name, most), *row)
    return table


_LEAST_NAME = 10


def _full_rows(cell: CellResult, scale: Scale, columns: int) -> Iterator[list[str]]:
    """Texts of each method; a cell without a comparison of it is blank."""
    for row in method_cells(cell, scale):
        texts = [text for text, _ in row]
        yield texts + [""] * (columns - len(texts))


def _heading(heading: str) -> str:
    """A heading whose method's name is no wider than a number."""
    top, _, name = heading.partition("\n")
    return f"{top}\n{short(name, _LEAST_NAME)}" if top == "minus" else heading


def _room(columns: Sequence[tuple[str, Sequence[str]]], width: int) -> int:
    """What a line leaves for the name beside columns of numbers."""
    texts = [[*_heading(heading).split("\n"), *column] for heading, column in columns]
    return width - sum(max(5, *map(len, t)) + 1 for t in texts)


Shown = tuple[str, float | None]
"""What is read, and the number it stands for."""


def method_cells(cell: CellResult, scale: Scale) -> Iterator[list[Shown]]:
    """One row a method."""
    compared = [m.overall for m in cell.methods if m.overall is not None]
    ends = [abs(v) for c in compared for v in (c.low, c.high) if not math.isnan(v)]
    digits = scale.digits - (max(ends, default=0) >= 10 ** (3 - scale.digits))
    for method in cell.methods:
        yield list(_row(method, cell, scale, Scale(max(digits, 0), "")))


def _row(method: MethodResult, cell: CellResult, scale: Scale, ends: Scale) -> Iterator[Shown]:
    yield method.name, None
    yield score(method.mean, scale), method.mean
    if cell.reference is not None:
        gain = method.mean - cell.reference_mean
        yield scale.difference(gain), gain
    if cell.baseline is None:
        return
    c = method.overall
    if c is None:
        yield from [("", None)] * 8
    else:
        yield scale.difference(c.difference), c.difference
        yield _interval(c.low, c.high, ends), c.low
        yield _interval(c.boot_low, c.boot_high, ends), c.boot_low
        yield from ((p_text(p), p) for p in (c.p, c.p_holm, c.p_sign_flip, c.p_max_t))
        yield "–" if math.isnan(method.improve) else f"{method.improve:.0%}", method.improve
    star = "*" if method.reason == IF_NORMAL else ""
    yield _VERDICTS.get(method.verdict, method.verdict) + star, None


def score(value: float, scale: Scale) -> str:
    """A mean score, or a dash."""
    return "–" if math.isnan(value) else f"{value:.{scale.digits}f}"


def _interval(low: float, high: float, scale: Scale) -> str:
    return "–" if math.isnan(low) else f"{scale.difference(low)} … {scale.difference(high)}"


RANK_HEADINGS = (
    *("order of methods by", "and by"),
    *("correlation", "P(so low)", "spreads", "P(so wide)"),
)


def _ranks(cell: CellResult) -> Table:
    table = _table(*RANK_HEADINGS[:2])
    for heading in RANK_HEADINGS[2:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rank_cells(cell):
        table.add_row(*(_line(text) for text, _ in row))
    return table


def rank_cells(cell: CellResult) -> Iterator[list[Shown]]:
    """One row a pair of orders, in the order of ``RANK_HEADINGS``."""
    for r in cell.ranks:
        spreads = f"{p_text(r.p_spread_first)}, {p_text(r.p_spread_second)}"
        yield [
            (r.first, None),
            (r.second, None),
            (signed(r.correlation), r.correlation),
            (p_text(r.p), r.p),
            (f"{r.spread_first:.3g}, {r.spread_second:.3g}", r.spread_first),
            (spreads, r.p_spread_first),
        ]


def mean_columns(cell: CellResult) -> list[tuple[str, Mapping[str, float]]]:
    """Methods, and the reference last, with their mean scores."""
    columns = [(m.name, m.means) for m in cell.methods]
    return columns if cell.reference is None else [*columns, ("reference", cell.reference)]


def _means(cell: CellResult, scale: Scale) -> Iterator[Table]:
    """Means by benchmark, in as many tables as a line of 100 columns makes of the methods."""
    columns = [(short(name, NAME_WIDTH), means) for name, means in mean_columns(cell)]
    first = max(len(m) for m in ("mean score", *cell.metrics))
    room = MEANS_WIDTH - min(first, NAME_WIDTH)
    for part in _parts([len(name) for name, _ in columns], room):
        table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
        table.add_column("mean score", no_wrap=True)
        for name, _ in columns[part]:
            table.add_column(name, justify="right", no_wrap=True)
        for metric in cell.metrics:
            table.add_row(
                _tail(_line(metric)), *(score(m[metric], scale) for _, m in columns[part])
            )
        yield table


def _tail(name: str) -> str:
    """The end of a long name, which says more than its start."""
    return name if len(name) <= NAME_WIDTH else f"…{name[1 - NAME_WIDTH :]}"


def _parts(lengths: Sequence[int], room: int) -> Iterator[slice]:
    start, used = 0, 0
    for i, length in enumerate(lengths):
        width = max(length, 5) + 2
        if used + width > room and i > start:
            yield slice(start, i)
            start, used = i, 0
        used += width
    yield slice(start, len(lengths))
