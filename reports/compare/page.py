"""The page of a comparison, built from its JSON record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ...sim.compare.cells import title
from ...sim.compare.result import CellResult, CompareResult
from ...sim.compare.verdict import Scale, p_text, summary
from ..html import Cell, Column, Figure, Page, Section, Sentence, Table
from ..origin import made_by
from .figures import with_figures
from .tables import (
    RANK_HEADINGS,
    extent,
    mean_columns,
    meanings,
    method_cells,
    method_headings,
    rank_cells,
    score,
)

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
    "verdict": "above or below: separated after correction (Holm; a star: if differences are "
    "normal, which sign flips do not show). alike: shown to be within the margin. open: neither.",
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
    alone = len(result.cells) == 1
    figures = {id(cell): stem for stem, cell in with_figures(result)}
    return Page(
        title="What the finished runs show",
        lede=extent(result),
        sentences=list(_sentences(result)),
        sections=[
            *([] if alone else [_overview(result)]),
            *(_section(cell, scale, figures.get(id(cell)), alone) for cell in result.cells),
        ],
        notes=[*result.notes, *meanings(result)],
        provenance=[*result.runs["files"].items(), *made_by(record)],
    )


def _sentences(result: CompareResult) -> Iterator[Sentence]:
    """All that is said of one cell; of several, in how many something is separated, and what."""
    if len(result.cells) == 1:
        cell = result.cells[0]
        yield Sentence("\n".join(cell.sentences), summary(cell))
        return
    found = [cell for cell in result.cells if _apart(cell)]
    many = f"{len(found)} of" if found else "none of"
    yield Sentence(
        f"In {many} {len(result.cells)} cells a method is separated from the baseline after "
        "correction inside its cell; cells are not corrected for each other."
    )
    for cell in found:
        yield Sentence(cell.sentences[0], title(cell.name))


def _apart(cell: CellResult) -> list[str]:
    return [m.name for m in cell.methods if m.verdict in ("above", "below")]


def _overview(result: CompareResult) -> Section:
    """One row a cell."""
    columns = [
        Column("cell", kind="text"),
        *(Column(name) for name in ("methods", "seeds")),
        Column("baseline", kind="text"),
        Column("separated", "Methods above or below the baseline after correction.", "text"),
        Column("smallest Holm p", "Of the cell's methods; cells are not corrected for each other."),
    ]
    rows = []
    for cell in result.cells:
        p = min((m.overall.p_holm for m in cell.compared if m.overall), default=math.nan)
        rows.append(
            [
                Cell(title(cell.name)),
                *(Cell(str(n), n) for n in (len(cell.methods), len(cell.seeds))),
                Cell(cell.baseline or "–"),
                Cell(", ".join(_apart(cell)) or "none"),
                Cell(p_text(p), p),
            ]
        )
    return Section("All cells", tables=[Table("One row a cell", columns, rows)])


def _section(cell: CellResult, scale: Scale, stem: str | None, alone: bool) -> Section:
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
    said = cell.cautions if alone else [*cell.sentences, *cell.cautions]
    heading = summary(cell) if alone else title(cell.name)
    return Section(heading, said, list(_tables(cell, scale)), figures)


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
