"""The page of ``dfsim verify --out``, built from its JSON record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...traces.findings import number_of
from ..html import Cell, Column, Page, Section, Sentence, Table
from ..origin import made_by
from ..tables import number

_WORDS = {True: "holds", False: "FAILS", None: "not checkable"}


def verify_page(record: Mapping[str, Any]) -> Page:
    """What ``verify --out`` shows.

    Args:
        record: of ``verify.json``.
    """
    trace = record["trace"]
    verdict = "Verified: every gate that could be checked holds."
    if not record["passed"]:
        verdict = "NOT verified: a gate failed, or none could be checked."
    gates = Table(
        "Gates",
        [Column(name, kind="text") for name in ("gate", "verdict", "what was found")],
        [[Cell(g["name"]), Cell(_WORDS[g["passed"]]), Cell(g["message"])] for g in record["gates"]],
    )
    sections = [Section("What was recomputed", tables=[gates])]
    shown = [c for c in record["estimates"] if c["headline"]]
    if shown:
        sections.append(Section("Forecast and live", tables=[_comparisons(shown)]))
    return Page(
        title="Does the live run do what was promoted?",
        lede=f"{trace['path']}: {trace['steps']} steps · {trace['fingerprint']}",
        sentences=[
            Sentence(verdict, "Verdict"),
            *(Sentence(g["message"], g["name"]) for g in record["gates"] if not g["passed"]),
        ],
        sections=sections,
        notes=record["notes"],
        provenance=[(str(trace["path"]), str(trace["fingerprint"])), *made_by(record)],
    )


def _comparisons(shown: Sequence[Mapping[str, Any]]) -> Table:
    columns = [
        Column("figure", kind="text"),
        Column("forecast"),
        Column("low", "Lower end for as many steps like the promoted ones as the run has."),
        Column("high", "Upper end of that."),
        Column("live"),
        Column("outside", "News, not a fault: another policy makes other data.", "text"),
    ]
    rows = []
    for one in shown:
        values = [number_of(one[name]) for name in ("forecast", "low", "high", "observed")]
        outside = "outside" if one["inside"] is False else ""
        cells = [Cell(number(value, ".3g"), value) for value in values]
        rows.append([Cell(one["name"]), *cells, Cell(outside)])
    return Table("Forecast beside what the live run gives", columns, rows)
