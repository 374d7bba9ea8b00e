"""The page of a screen, built from its JSON record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...sim.estimators import CATALOG
from ...sim.mix.screened import ScreenedSampler
from ...sim.result import ReplayResult
from ...sim.screen.result import RankAgreement, Screened
from ...traces.findings import Finding
from ..html import Cell, Column, Figure, Findings, Page, Section, Sentence, Table
from ..mix.page import steering_section
from ..origin import made_by
from ..tables import HEADINGS, lacking_lines, strategy_cells, trace_line
from .tables import (
    COLUMNS,
    agreement_sentence,
    difference_cell,
    difference_legend,
    label_of_verdict,
)

_VERDICTS = (
    "promote: worth a live run (front: on it, but too few steps for a claim) · care: on the front, "
    "but with a grave finding · beaten: another is "
    "at least as good in everything · unclear: so it seems, but the steps do not tell them apart · "
    "thin: under half of the effective batch · no-op and no "
    "change: training would be as without it · same: another decides alike · no signal: nothing to "
    "weigh · not chosen: another point of its sweep was better "
    "on the first half of the run"
)


def screen_page(record: Mapping[str, Any]) -> Page:
    """What ``screen --out`` shows.

    Args:
        record: of ``screen.json``.
    """
    traces = record["traces"]
    pairs = [RankAgreement.from_dict(pair) for pair in record["agreement"]]
    labels = dict.fromkeys(t["trace"]["label"] for t in traces if t["trace"]["label"])
    notes = dict.fromkeys(note for t in traces for note in t["notes"] if note not in labels)
    return Page(
        title="What these strategies do to this data",
        lede=" · ".join(trace_line(ReplayResult.from_dict(t)) for t in traces),
        sentences=[
            *(s for t in traces for s in _sentences(t, len(traces) > 1)),
            *(Sentence(agreement_sentence(pair), "Agreement") for pair in pairs),
        ],
        sections=[s for i, t in enumerate(traces, start=1) for s in _sections(t, i, record)],
        notes=[*notes, *record["notes"]],
        provenance=[
            *((str(t["trace"]["path"]), str(t["trace"]["fingerprint"])) for t in traces),
            *made_by(record),
        ],
        caution=" · ".join(labels),
    )


def _sentences(trace: Mapping[str, Any], several: bool) -> Iterator[Sentence]:
    where = f"{trace['trace']['path']}: " if several else ""
    for finding in trace.get("findings", ()):
        yield Sentence(finding["message"], f"{where}The data", [finding["name"]])
    for part in trace["shortlist"]:
        yield Sentence("\n".join(part["sentences"]), f"{where}{part['heading']}")
    samplers = trace.get("mixers", {}).values()
    if samplers:
        yield Sentence("\n".join(m["sentence"] for m in samplers), f"{where}Samplers")


def _sections(trace: Mapping[str, Any], index: int, record: Mapping[str, Any]) -> Iterator[Section]:
    rows = [Screened.from_dict(name, r) for name, r in trace["strategies"].items()]
    names = ", ".join(row.name for row in rows)
    cannot = lacking_lines(trace["cannot_run"])
    yield Section(
        f"Strategies on {trace['trace']['path']}",
        text=[f"Can't run here: {line}" for line in cannot],
        tables=[_table(rows, trace, record)],
        figures=[
            Figure(
                f"front_{index}",
                f"Dot plot: effective batch, trained tokens and group bias of {names}.",
                "A strategy is on the front when no other is at least as good in all three panels "
                "and better in one. Lines are what the noise model leaves open.",
            ),
            Figure(
                f"differences_{index}",
                f"Dot plot: difference to {record['baseline']} of {names}.",
                "Paired over the same steps, so a hard batch does not count. Intervals hold for "
                "all pairs at once.",
            ),
        ],
    )
    samplers = [ScreenedSampler.from_dict(n, m) for n, m in trace.get("mixers", {}).items()]
    if samplers:
        yield steering_section(samplers)
    about = [Finding.from_dict(f) for f in trace.get("findings", ())]
    findings = [Findings("The data", about)] if about else []
    findings += [Findings(r.name, r.result.diagnosis) for r in rows if r.result.diagnosis]
    if findings:
        yield Section(f"Findings on {trace['trace']['path']}", findings=findings)


def _table(rows: Sequence[Screened], trace: Mapping[str, Any], record: Mapping[str, Any]) -> Table:
    compared = trace["comparison"]
    legend = difference_legend(record["by"], compared["no_claim"], compared["comparisons"])
    columns = [
        Column("strategy", kind="text"),
        *(Column(" ".join(HEADINGS[name].split()), CATALOG[name].help) for name in COLUMNS),
        Column(f"difference to {record['baseline']}", legend),
        Column("verdict", _VERDICTS, kind="text"),
    ]
    cells = []
    for row in rows:
        shown = dict(zip(HEADINGS, strategy_cells(row.result), strict=True))
        difference = difference_cell(row, record["baseline"])
        cells.append(
            [
                Cell(row.name),
                *(Cell(shown[name], row.result.estimates[name].mean) for name in COLUMNS),
                Cell(difference, row.difference.mean),
                Cell(label_of_verdict(row.verdict, compared["no_claim"])),
            ]
        )
    return Table(f"Sorted by {record['by']}", columns, cells)
