"""The page of a comparison, built from its JSON record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..sim.seeds.result import CellResult, CompareResult
from ..sim.seeds.verdict import Scale, summary
from .compare_figures import with_figures
from .compare_tables import (
    RANK_HEADINGS,
    extent,
    mean_columns,
    meanings,
    method_cells,
    method_headings,
    rank_cells,
    score,
)
from .html import Cell, Column, Figure, Page, Section, Sentence, Table
from .origin import made_by

HELP = {
    "overall": "Mean over domains of the mean over their benchmarks where domains are known, else "
    "over benchmarks, over the runs that have every score.",
    "t interval": "Paired t over seeds: assumes normal differences. The one to quote below 15 "
    "seeds.",
    "bootstrap of seeds": "Seeds drawn with replacement. Far too narrow with few seeds; the one to "
    "quote from 15.",
    "p": "Two-sided paired t, of no difference.",
    "Holm": "p adjusted for all methods of the cell: what a claim rests on.",
    "sign flip": "Assumes only symmetric noise. Few seeds can't give a small one.",
    "max-T": "Sign flips adjusted for all methods at once.",
    "wins": "Share of seed × benchmark pairs in which the method is above the baseline, ties one "
    "half.",
    "verdict": "open: neither separated from the baseline nor shown to be alike.",
    "correlation": "Spearman's, of the methods' means.",
    "P(so low)": "Chance of a correlation so low if all methods were alike: labels permuted within "
    "each seed.",
    "spreads": "Largest minus smallest method mean, by either score.",
    "P(so wide)": "Chance of such spreads if all methods were alike.",
}
_TEXT = ("method", "verdict", *RANK_HEADINGS[:2])


def compare_page(record: Mapping[str, Any]) -> Page:
    """What ``compare --out`` shows.

    Args:
        record: of ``compare.json``.
    """
    result = CompareResult.from_dict(record)
    scale = Scale(**result.settings["scale"])
    figures = {id(cell): stem for stem, cell in with_figures(result)}
    return Page(
        title="What the finished runs show",
        lede=extent(result),
        sentences=[Sentence("\n".join(c.sentences), summary(c)) for c in result.cells],
        sections=[_section(cell, scale, figures.get(id(cell))) for cell in result.cells],
        notes=[*result.notes, *meanings(result)],
        provenance=[*result.runs["files"].items(), *made_by(record)],
    )


def _section(cell: CellResult, scale: Scale, stem: str | None) -> Section:
    figures = []
    if stem is not None:
        names = ", ".join(m.name for m in cell.compared)
        figures.append(
            Figure(
                stem,
                f"Dot plot: difference from {cell.baseline} of {names}, with intervals.",
                "Intervals are over seeds, each method by itself; a claim rests on Holm's p.",
            )
        )
    return Section(summary(cell), cell.cautions, list(_tables(cell, scale)), figures)


def _tables(cell: CellResult, scale: Scale) -> Iterator[Table]:
    rows = [[Cell(*shown) for shown in row] for row in method_cells(cell, scale)]
    yield Table("Methods", [_column(h) for h in method_headings(cell)], rows)
    if cell.ranks:
        rows = [[Cell(*shown) for shown in row] for row in rank_cells(cell)]
        caption = "Would other benchmarks order the methods alike?"
        yield Table(caption, [_column(h) for h in RANK_HEADINGS], rows)
    columns = mean_columns(cell)
    rows = [
        [Cell(metric), *(Cell(score(means[metric], scale), means[metric]) for _, means in columns)]
        for metric in cell.metrics
    ]
    named = [Column("benchmark", kind="text"), *(Column(name) for name, _ in columns)]
    yield Table("Mean scores", named, rows)


def _column(heading: str) -> Column:
    name = " ".join(heading.split())
    return Column(name, HELP.get(name, ""), "text" if name in _TEXT else "number")
