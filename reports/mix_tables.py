"""What a mixer's replay says, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..sim.mix_result import CAUTIONS, MixResult, MixSummary
from .tables import number, print_findings, print_notes


def print_mixing(results: Sequence[MixResult], out: Console) -> None:
    """Print tables, the diagnoses, and what they can't show."""
    runs, domains = _table("mixer", "clock"), _table("mixer", "domain")
    for heading in ("off\ntarget", "moves\na step", "on\nfloor", "steps\nplayed"):
        runs.add_column(heading, justify="right", no_wrap=True)
    for label in results[0].summaries():
        domains.add_column(f"{label}\nmean→last", justify="right", no_wrap=True)
    for result in results:
        summaries = result.summaries()
        for label, summary in summaries.items():
            runs.add_row(result.name, label, *_figures(summary))
        for domain in result.log.domains:
            domains.add_row(result.name, domain, *(_share(s, domain) for s in summaries.values()))
    for table in (runs, domains):
        out.print(table)
        out.print()
    for result in results:
        print_findings(result.name, result.diagnosis(), out)
        gap = result.clock_gap()
        if gap:
            out.print(Text(f"  The two clocks differ by {gap:.1%} of the mix on average.", "dim"))
    out.print()
    print_notes([_setting(results[0]), *CAUTIONS], out)


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _share(summary: MixSummary, domain: str) -> str:
    if not summary.steps:
        return "–"
    return f"{summary.mean_target[domain]:.2f}→{summary.last_target[domain]:.2f}"


def _figures(summary: MixSummary) -> list[str]:
    return [
        number(summary.total_variation, ".0%"),
        number(summary.volatility, ".1%"),
        number(summary.floor_hits, ".0%"),
        f"{summary.steps}" + ("" if summary.supported_until is None else "*"),
    ]


def _setting(result: MixResult) -> str:
    run = next(iter(result.runs.values()))
    return (
        f"Candidates: {run.candidates}. Off target: total variation between the mix asked for and "
        "the mix drawn. A star: a domain's log was used up there, and nothing is said after it."
    )
