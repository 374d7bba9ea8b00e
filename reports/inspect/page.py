"""The page of ``dfsim inspect --out``, built from its JSON record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...traces.findings import Finding, number_of
from ..html import Cell, Column, Findings, Page, Section, Sentence, Table
from ..origin import made_by
from ..tables import number


def inspect_page(record: Mapping[str, Any]) -> Page:
    """What ``inspect --out`` shows.

    Args:
        record: of ``inspect.json``.
    """
    trace = record["trace"]
    findings = [Finding.from_dict(finding) for finding in record["findings"]]
    facts = Table(
        "What it holds",
        [Column("what", kind="text"), Column("found", kind="text")],
        [[Cell(name), Cell(text)] for name, text in record["facts"]],
    )
    sections = [Section("The trace", tables=[facts])]
    if record["domains"]:
        sections.append(Section("Domains", tables=[_domains(record["domains"])]))
    if findings:
        sections.append(Section("Findings", findings=[Findings("The data", findings)]))
    return Page(
        title="What this trace holds",
        lede=f"{trace['path']} · {trace['fingerprint']}",
        sentences=[Sentence(f.message, "Stands out", [f.name]) for f in findings]
        or [Sentence("Nothing stands out.", "Stands out")],
        sections=sections,
        provenance=[(str(trace["path"]), str(trace["fingerprint"])), *made_by(record)],
        caution=trace["label"],
    )


def _domains(domains: Mapping[str, Mapping[str, Any]]) -> Table:
    names = ("groups", "responses", "mean_reward", "constant_share")
    columns = [Column("domain", kind="text")]
    columns += [Column(name.replace("_", " ")) for name in names]
    rows = []
    for domain, values in domains.items():
        figures = [number_of(values[name]) for name in names]
        rows.append([Cell(domain), *(Cell(number(v, ".3g"), v) for v in figures)])
    return Table("Each domain", columns, rows)
