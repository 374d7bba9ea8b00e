"""What a mixer's replay says, on a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...sim.mix.result import CAUTIONS, MixResult
from ...sim.mix.screened import ScreenedSampler
from ...sim.mix.summary import MixReport, MixSummary
from ..tables import number, print_findings, print_notes

HEADINGS = {
    "total_variation": "off\ntarget",
    "volatility": "moves\na step",
    "floor_hits": "on\nfloor",
    "steps": "steps\nplayed",
}
"""Estimator → heading of its column."""


def print_mixing(results: Sequence[MixResult], out: Console) -> None:
    """Print tables, the diagnoses, and what they can't show."""
    reports = [result.report() for result in results]
    runs, domains = _table("mixer", "clock"), _table("mixer", "domain")
    for heading in HEADINGS.values():
        runs.add_column(heading, justify="right", no_wrap=True)
    for label in reports[0].runs:
        domains.add_column(f"{label}\nmean→last", justify="right", no_wrap=True)
    for report in reports:
        for label, summary in report.runs.items():
            runs.add_row(report.name, label, *run_cells(summary))
        for domain in report.domains:
            shares = (share_cell(s, domain) for s in report.runs.values())
            domains.add_row(report.name, domain, *shares)
    for table in (runs, domains):
        out.print(table)
        out.print()
    for report in reports:
        print_findings(report.name, report.diagnosis, out)
        gap = clock_gap(report)
        if gap:
            out.print(Text(f"  {gap}", "dim"))
    out.print()
    print_notes([setting(reports[0]), *CAUTIONS], out)


def steering_table(samplers: Sequence[ScreenedSampler]) -> Table:
    """How far each sampler of a screen steers, beside the noise of its own signal."""
    table = _table("sampler")
    for heading in (*samplers[0].steering, "noise"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for sampler in samplers:
        moved = (number(value, ".1%") for value in sampler.steering.values())
        table.add_row(sampler.name, *moved, noise_cell(sampler), sampler.verdict)
    return table


def noise_cell(sampler: ScreenedSampler) -> str:
    """The band that chance gives."""
    low, high = sampler.noise_low, sampler.noise_high
    return "–" if math.isnan(low) else f"[{low:.1%}, {high:.1%}]"


STEERING_LEGEND = (
    "Share of the draw that a sampler moves, mean over steps: what it asks for on the log itself, "
    "and under each clock. Noise: 95 % of what it would ask for if outcomes were exchanged between "
    "the groups of a step."
)


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def clock_gap(report: MixReport) -> str:
    """How much the clock matters, in a sentence; empty where it does not."""
    if not report.clock_gap:
        return ""
    return f"The two clocks differ by {report.clock_gap:.1%} of the mix on average."


def share_cell(summary: MixSummary, domain: str) -> str:
    """A domain's mean and last target."""
    if not summary.steps:
        return "–"
    return f"{summary.mean_target[domain]:.2f}→{summary.last_target[domain]:.2f}"


def run_cells(summary: MixSummary) -> list[str]:
    """What the table of runs says of one, in the order of ``HEADINGS``."""
    return [
        number(summary.total_variation, ".0%"),
        number(summary.volatility, ".1%"),
        number(summary.floor_hits, ".0%"),
        f"{summary.steps}" + ("" if summary.supported_until is None else "*"),
    ]


def setting(report: MixReport) -> str:
    """Where draws came from, and how to read the table of runs."""
    return (
        f"Candidates: {report.candidates}. Off target: total variation between the mix asked for "
        "and the mix drawn. A star: a domain's log was used up there, and nothing is said after it."
    )
