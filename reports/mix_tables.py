"""What a mixer's replay says, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..sim.mix_result import CAUTIONS, MixResult, MixSummary
from .tables import number, print_findings, print_notes


def print_mixing(results: Sequence[MixResult], out: Console) -> None:
    """Print a table, the diagnoses, and what they can't show."""
    domains = results[0].log.domains
    table = Table(box=None, padding=(0, 2), header_style="bold", pad_edge=False)
    table.add_column("mixer", no_wrap=True)
    table.add_column("clock", no_wrap=True)
    for domain in domains:
        table.add_column(f"{domain}\nmean→last", justify="right", no_wrap=True)
    for heading in ("off\ntarget", "moves\na step", "on\nfloor", "steps\nplayed"):
        table.add_column(heading, justify="right")
    for result in results:
        for label, summary in result.summaries().items():
            table.add_row(result.name, label, *_cells(summary, domains))
    out.print(table)
    out.print()
    for result in results:
        print_findings(result.name, result.diagnosis(), out)
        gap = result.clock_gap()
        if gap:
            out.print(Text(f"  The two clocks differ by {gap:.1%} of the mix on average.", "dim"))
    out.print()
    print_notes([_setting(results[0]), *CAUTIONS], out)


def _cells(summary: MixSummary, domains: Sequence[str]) -> list[str]:
    shares = [
        f"{summary.mean_target[d]:.2f}→{summary.last_target[d]:.2f}" if summary.steps else "–"
        for d in domains
    ]
    end = summary.supported_until
    return [
        *shares,
        number(summary.total_variation, ".0%"),
        number(summary.volatility, ".1%"),
        number(summary.floor_hits, ".0%"),
        f"{summary.steps}" + ("" if end is None else "*"),
    ]


def _setting(result: MixResult) -> str:
    run = next(iter(result.runs.values()))
    return (
        f"Candidates: {run.candidates}. Off target: total variation between the mix asked for and "
        "the mix drawn. A star: a domain's log was used up there, and nothing is said after it."
    )
