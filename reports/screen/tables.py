"""A screen in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Set
from functools import partial

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...sim.screen.result import NOTES, RankAgreement, Screened, ScreenResult, TraceScreen
from ...strategies.build import build
from ...strategies.spec import Spec
from ..mix.tables import STEERING_LEGEND, steering_table
from ..tables import (
    HEADINGS,
    NAME_WIDTH,
    fitted,
    lacking_lines,
    number,
    print_findings,
    print_notes,
    strategy_cells,
    trace_line,
)

COLUMNS = (
    "effective_batch",
    "effective_batch_low",
    "trained_token_frac",
    "signal_scale",
    "group_bias",
)

MARKS = {"promote": "●", "care": "○"}

LABELS = {
    "baseline": "baseline",
    "promote": "promote",
    "care": "care",
    "beaten": "beaten",
    "unclear": "unclear",
    "thin": "thin",
    "no_op": "no-op",
    "splits_nothing": "no change",
    "same": "same",
    "not_chosen": "not chosen",
    "no_signal": "no signal",
}
"""Verdict → word."""


def print_screen(result: ScreenResult, out: Console) -> None:
    """Print a table and the shortlist of every trace, how their orders agree, and the limits."""
    for screened in result.traces:
        _print_trace(screened, out)
        out.print()
    for pair in result.agreement:
        out.print(Text(agreement_sentence(pair)))
    if result.agreement:
        out.print()
    notes = [note for screened in result.traces for note in screened.replay.notes]
    print_notes(dict.fromkeys([*notes, *NOTES]), out)
    command = next_command(result)
    if command:
        out.print()
        out.print(Text(f"Next: {command}"), soft_wrap=True)


def _print_trace(screened: TraceScreen, out: Console) -> None:
    out.print(Text(trace_line(screened.replay), style="dim"))
    out.print()
    if screened.replay.findings:
        print_findings("the data", screened.replay.findings, out)
        out.print()
    found = screened.differences
    spare = ("signal_scale", "trained_token_frac", "group_bias", "effective_batch_low")
    out.print(fitted(partial(_table, screened), map(_name, screened.names), spare, out))
    out.print()
    legend = difference_legend(screened.by, found.reason, found.comparisons)
    out.print(Text(legend, style="dim"))
    for heading, sentences in screened.shortlist:
        out.print()
        out.print(Text(heading, style="bold"))
        for sentence in sentences:
            out.print(Padding(Text(sentence), (0, 0, 0, 2)))
    if screened.mixers:
        out.print()
        out.print(steering_table(screened.mixers))
        out.print()
        out.print(Text(STEERING_LEGEND, style="dim"))
        for sampler in screened.mixers:
            out.print(Padding(Text(sampler.sentence), (0, 0, 0, 2)))
    if screened.cannot_run:
        out.print()
        out.print(Text("Can't run here", style="bold"))
        for line in lacking_lines(screened.cannot_run):
            out.print(Padding(Text(line), (0, 0, 0, 2)))


def _table(screened: TraceScreen, without: Set[str]) -> Table:
    found = screened.differences
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    table.add_column("\nstrategy", min_width=NAME_WIDTH, overflow="fold")
    columns = [name for name in COLUMNS if name not in without]
    for name in columns:
        table.add_column(HEADINGS[name], justify="right", no_wrap=True)
    baseline = screened.baseline if len(screened.baseline) <= 14 else "baseline"
    table.add_column(f"difference\nto {baseline}", justify="right", no_wrap=True)
    table.add_column("\nverdict", no_wrap=True)
    for row in screened.rows:
        verdict = f"{MARKS.get(row.verdict, ' ')} {label_of_verdict(row.verdict, found.reason)}"
        cells = dict(zip(HEADINGS, strategy_cells(row.result), strict=True))
        shown = (cells[column] for column in columns)
        table.add_row(_name(row.name), *shown, difference_cell(row, screened.baseline), verdict)
    return table


def _name(name: str) -> str:
    """A strategy, the point of its sweep on a line of its own."""
    spec = Spec.parse(name)
    return f"{spec.unswept}\n  [{spec.point}]" if spec.point else name


def label_of_verdict(verdict: str, no_claim: str | None) -> str:
    """A verdict in a word; where nothing may be claimed, the front is called that and no more."""
    return "front" if verdict == "promote" and no_claim else LABELS[verdict]


def difference_legend(by: str, reason: str | None, comparisons: int) -> str:
    """How to read the order and the column of differences.

    Args:
        by: the estimator that orders.
        reason: why nothing is claimed, or ``None``.
        comparisons: pairs in the family.
    """
    text = f"Sorted by {by}; difference: of it, mean over steps"
    if reason:
        return f"{text}. No interval and no claim: {reason}."
    return (
        f"{text} ± simultaneous 95 % interval over {comparisons} pairs; * claimed by Holm, which "
        "may be where the wider ± covers 0."
    )


def difference_cell(row: Screened, baseline: str) -> str:
    """Mean difference to the baseline, half its simultaneous interval, a star where claimed."""
    if row.name == baseline:
        return "–"
    found = row.difference
    text = number(found.mean, "+.2f")
    if found.low == found.low:
        text += f" ±{(found.high - found.low) / 2:.2f}"
    return text + ("*" if found.claimed else " ")


def agreement_sentence(pair: RankAgreement) -> str:
    """How alike two traces order the strategies."""
    one, other = pair.traces
    if pair.spearman != pair.spearman:
        return (
            f"{one} and {other} share {pair.strategies} strategies with values that differ: too "
            "few to compare their orders."
        )
    return (
        f"{one} and {other} rank {pair.strategies} strategies with a correlation of "
        f"{pair.spearman:.2f} (Spearman; p {pair.p:.2g} of no relation at all, a low bar)."
    )


def next_command(result: ScreenResult) -> str | None:
    """The command that takes the first strategy worth it further; ``None`` where none is."""
    first = result.traces[0]
    best = next((row for row in first.rows if row.verdict == "promote"), None)
    if best is None or first.differences.reason:
        return None
    name, params = str(Spec.parse(best.name).unswept), best.result.params
    default = build(name).params
    tie_seed = result.settings["tie_seed"]
    words = [str(first.replay.trace["path"]), "--strategy", name]
    for key, value in params.items():
        words += ["-p", f"{key}={value}"] if value != default[key] else []
    words += ["--tie-seed", str(tie_seed)] if tie_seed else []
    if first.foreign:  # live delivery is for verl only; others take a file of weights
        return shlex.join(["dfsim", "replay", *words, "--decisions", "weights.parquet"])
    return shlex.join(["dfsim", "promote", *words, "--out", "promotion"])
