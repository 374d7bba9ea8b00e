"""Terminal tables and sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..sim.estimators import CATALOG
from ..sim.inspect.census import Census
from ..sim.replay.data_check import Truncation
from ..sim.replay.diagnosis import live_groups
from ..sim.result import ReplayResult, StrategyResult
from ..strategies.base import ParamInfo
from ..strategies.build import build
from ..strategies.catalog import PRESETS, WEIGHING, preset_parameters
from ..traces.findings import Finding, counted
from ..traces.importers.base import ImportSummary
from ..traces.storage.store import Trace


def console(stderr: bool = False) -> Console:
    """Console that prints brackets as they are, at least 100 columns wide when piped."""
    found = Console(stderr=stderr, highlight=False, soft_wrap=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = max(found.width, 100)
    return found


def number(value: float, form: str) -> str:
    """A number, or a dash where it is NaN."""
    return "–" if math.isnan(value) else format(value, form)


def span(low: float, high: float) -> str:
    """Two ends in live groups."""
    return f"[{live_groups(low)}, {live_groups(high)}]"


_SHOWN = (
    *("effective_batch", "effective_batch_low", "trained_token_frac"),
    *("signal_scale", "group_bias", "wasted_token_frac"),
)
HEADINGS = {name: CATALOG[name].heading for name in _SHOWN}
"""Estimator → heading of the column whose value it is, or starts with."""


NAME_WIDTH = 12
"""Columns that the names of strategies keep; longer ones fold."""


def fitted(
    build: Callable[[Set[str]], Table], names: Iterable[str], spare: Sequence[str], out: Console
) -> Table:
    """The table that fits the terminal: columns are left out in turn until it does.

    Args:
        build: makes the table without the given columns.
        names: what stands in its first column, which may fold.
        spare: columns to do without, the first to go first.
        out: the terminal.
    """
    folds = max(0, max(map(len, names), default=0) - NAME_WIDTH)
    wide = out.options.update(width=10_000)
    for left_out in range(len(spare) + 1):
        table = build(set(spare[:left_out]))
        if out.measure(table, options=wide).maximum - folds <= out.width:
            break
    return table


def trace_line(result: ReplayResult) -> str:
    """One line: what was replayed."""
    t = result.trace
    tokens = "lengths unknown" if t["tokens"] is None else f"{t['tokens']:,} tokens"
    domains = f", {len(t['domains'])} domains" if t["domains"] else ""
    return (
        f"{t['path']}: {t['steps']} steps, {t['groups']:,} groups, {t['responses']:,} responses, "
        f"{tokens}{domains} · {result.loss_agg_mode} · {t['fingerprint']}"
    )


def strategy_cells(strategy: StrategyResult) -> list[str]:
    """What the table of a replay says of a strategy, in the order of ``HEADINGS``."""

    def mean(name: str) -> float:
        return strategy.estimates[name].mean

    return [
        live_groups(mean("effective_batch")),
        span(mean("effective_batch_low"), mean("effective_batch_high")),
        number(mean("trained_token_frac"), ".0%"),
        number(mean("signal_scale"), ".2f"),
        number(mean("group_bias"), ".2f"),
        number(mean("wasted_token_frac"), ".0%"),
    ]


def print_replay(result: ReplayResult, out: Console) -> None:
    """Print the table, the diagnoses, and the notes of a replay."""
    out.print(Text(trace_line(result), style="dim"))
    out.print()
    out.print(
        fitted(partial(_strategies, result), result.strategies, ("signal_scale", "group_bias"), out)
    )
    out.print()
    if result.findings:
        print_findings("the data", result.findings, out)
        out.print()
    _print_sampling(result, out)
    for name, strategy in result.strategies.items():
        if name != "none":
            print_findings(name, strategy.diagnosis, out)
    out.print()
    print_notes(result.notes, out)


def _strategies(result: ReplayResult, without: Set[str]) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold", pad_edge=False)
    table.add_column("strategy", min_width=NAME_WIDTH, overflow="fold")
    shown = [name for name in HEADINGS if name not in without]
    for name in shown:
        side: Literal["left", "right"] = "left" if name == "effective_batch_low" else "right"
        table.add_column(HEADINGS[name], justify=side, no_wrap=True)
    for name, strategy in result.strategies.items():
        cells = dict(zip(HEADINGS, strategy_cells(strategy), strict=True))
        table.add_row(name, *(cells[column] for column in shown))
    return table


def print_findings(name: str, diagnosis: Sequence[Finding], out: Console) -> None:
    """Print a name and what was found of it."""
    heading = Text(name, style="bold")
    if not diagnosis:
        heading.append("  no finding", style="not bold")
    out.print(heading)
    findings = Table.grid(padding=(0, 2))
    findings.add_column(no_wrap=True)
    findings.add_column()
    for finding in diagnosis:
        findings.add_row(Text(f"  {finding.name}", style="yellow"), Text(finding.message))
    if findings.row_count:
        out.print(findings)


def print_notes(notes: Iterable[str], out: Console) -> None:
    """Print cautions, one a line."""
    lines = Table.grid(padding=(0, 1))
    for note in notes:
        lines.add_row(Text("·", style="dim"), Text(note, style="dim"))
    if lines.row_count:
        out.print(lines)


def _print_sampling(result: ReplayResult, out: Console) -> None:
    for line in sampling(result):
        out.print(Text(line, style="dim"))
    if not math.isnan(result.strategies["none"].estimates["effective_batch"].mean):
        out.print()


def sampling(result: ReplayResult) -> list[str]:
    """What an effective batch counts, how large the uniform one is, and how sure that is."""
    none = result.strategies["none"].estimates["effective_batch"]
    if math.isnan(none.mean):
        return [f"effective batch: {none.reason}"]
    size = live_groups(none.mean)
    if not math.isnan(none.low):
        size += f" here (95 % {span(none.low, none.high)})"
    lines = [
        f"Effective batch counts live prompt groups of the uniform update, {size}; its bracket is "
        "what the noise model leaves open."
    ]
    sizes = [
        f"{name} {live_groups(s.per_update['effective_batch'])}"
        for name, s in result.strategies.items()
        if s.per_update is not None
    ]
    if sizes:
        lines.append(f"Per optimizer update: {', '.join(sizes)}.")
    return lines


def print_census(trace: Trace, found: Census, out: Console) -> None:
    """Print what ``dfsim inspect`` found."""
    manifest = trace.manifest
    out.print(Text(f"{trace.path} · {manifest.fingerprint} · {manifest.source}", style="dim"))
    if manifest.label:
        out.print(Text(manifest.label, style="bold yellow"))
    rows = Table(box=None, show_header=False, padding=(0, 2), pad_edge=False)
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column()
    for name, value in census_facts(trace, found):
        rows.add_row(name, value)
    out.print()
    out.print(rows)
    out.print()
    if found.domains:
        domains = Table(box=None, padding=(0, 2), pad_edge=False, header_style="bold")
        for name in ("domain", "groups", "mean reward", "constant groups"):
            domains.add_column(name, justify="left" if name == "domain" else "right")
        for name, d in found.domains.items():
            domains.add_row(
                name,
                f"{d.groups:,}",
                number(d.mean_reward, ".3f"),
                f"{d.constant / d.groups:.0%}",
            )
        out.print(domains)


def census_facts(trace: Trace, found: Census) -> Iterable[tuple[str, str]]:
    """What a trace holds, a name and a sentence or two each."""
    steps = found.steps
    yield "steps", f"{len(steps)} ({steps[0]} … {steps[-1]})"
    sizes = ", ".join(f"{n}×{c}" for n, c in sorted(found.sizes.items())[:6])
    more = " …" if len(found.sizes) > 6 else ""
    yield "groups", f"{found.groups:,}; responses × groups: {sizes}{more}"
    yield "responses", f"{found.responses:,}"
    yield "columns", ", ".join(trace.columns)
    if found.lengths is None:
        yield "lengths", "unknown: token figures will be null"
    else:
        q = found.lengths
        unit = trace.manifest.lengths or "tokens"
        yield (
            "lengths",
            f"mean {q['mean']:.1f}, 5 % {q['p5']:.0f}, median {q['median']:.0f}, 95 % "
            f"{q['p95']:.0f}, max {q['max']:.0f} {unit}",
        )
    if found.truncation is not None:
        yield "truncated", _truncated(found.truncation)
    if found.lag is not None:
        unit = "steps" if found.lag.by_step else "versions"
        yield "policy lag", f"mean {found.lag.mean:.2f}, at most {found.lag.max} {unit}"
    levels = ", ".join(f"{r:g}: {c:,}" for r, c in sorted(found.levels.items()))
    mean, column = number(found.reward_mean, ".3f"), found.success.column
    of = "" if column == "reward" else f"{column} "
    yield "rewards", f"mean {mean}; {of}{levels or 'continuous'}"
    if found.advantages is not None:
        yield "advantages", "\n".join(found.advantage_sentences()) or "no live group tells"
    yield (
        "no signal",
        f"{found.constant_share:.0%} of the groups have one reward; "
        f"{found.singleton_share:.0%} hold a single response",
    )
    shown = [f for f in found.findings if f.name not in ("advantage_mismatch", "advantages_zero")]
    nothing = "nothing" if len(shown) == len(found.findings) else "see advantages"
    yield "stands out", "\n".join(finding.message for finding in shown) or nothing
    yield "prompts", _prompts(found)
    ran = [n for n in WEIGHING if n not in found.cannot_run]
    yield "can run", ", ".join(ran)
    for name, reason in found.cannot_run.items():
        yield "can't run", f"{name} needs {reason}"
    yield "precision", _precision(found)


def _truncated(found: Truncation) -> str:
    tokens = "" if math.isnan(found.token_frac) else f", {found.token_frac:.0%} of the tokens"
    return (
        f"{found.frac:.0%} of the responses ended by length{tokens}; {found.live_by_length:,} of "
        f"{found.live:,} live groups fail only by it"
    )


def _prompts(found: Census) -> str:
    if not found.prompts:
        return "no prompt ids, so drift over visits can't be seen"
    if found.drift is None:
        why = "none seen twice, so drift can't be seen"
        if found.chosen:
            why = "rows were chosen by their outcome, so drift can't be told"
        elif found.revisited:
            why = (
                "rewards are continuous, so drift takes a threshold: --success-threshold, or "
                "--success COLUMN"
            )
        return f"{len(found.prompts):,}; {why}"
    parts = ", ".join(f"{c:,} {s.replace('_', ' ')}" for s, c in found.drift.items())
    return (
        f"{len(found.prompts):,}; of {found.revisited:,} seen at several steps: {parts} "
        f"(solved: {found.success})"
    )


def _precision(found: Census) -> str:
    e = found.baseline
    if e is None or math.isnan(e.future_low):
        return f"no interval over steps: {len(found.steps)} steps, 12 are needed"
    return (
        f"effective batch {e.mean:.1f}, over steps like these 95 % [{e.future_low:.1f}, "
        f"{e.future_high:.1f}]; {found.more_steps} more steps would halve that"
    )


def print_strategies(out: Console, reasons: dict[str, str] | None) -> None:
    """Print the catalog; ``reasons`` says which presets a trace can't run, and why."""
    for name, preset in PRESETS.items():
        strategy = build(name)
        reads = ", ".join((*([preset.scorer] if preset.scorer else []), *strategy.columns))
        heading = Text(name, style="bold")
        heading.append(f"  {strategy.kind}, reads {reads}; {preset.source}", style="not bold dim")
        out.print(heading)
        lines = [preset.summary]
        if reasons is not None:
            lines.append(
                f"can't run here: needs {reasons[name]}" if name in reasons else "runs here"
            )
        for line in lines:
            out.print(Padding(Text(line), (0, 0, 0, 2)))
        _print_parameters(preset_parameters(preset).values(), out)


def _print_parameters(found: Iterable[ParamInfo], out: Console) -> None:
    table = Table.grid(padding=(0, 2))
    for p in found:
        table.add_row(f"    {p.name}={p.default}", Text(p.range), Text(p.help, style="dim"))
    if table.row_count:
        out.print(table)


def print_import(
    summary: ImportSummary, target: str, lacking: Mapping[str, str], out: Console
) -> None:
    """Print what an import read, dropped and could not find, and what that rules out."""
    out.print(
        Text(
            f"{target}: {counted(summary.responses, 'response')} in "
            f"{counted(summary.steps, 'step')}, from {counted(summary.rows, 'row')}"
        )
    )
    lines = []
    if summary.padding:
        lines.append(f"{summary.padding:,} padding rows dropped")
    if summary.outputs:
        lines.append(f"{summary.outputs:,} further outputs merged into their session's response")
    if summary.dropped:
        lines.append(
            f"{summary.dropped:,} responses without a finite reward dropped (--nan-reward)"
        )
    lines.append(f"lengths: {summary.lengths or 'unknown; token figures will be null'}")
    lines += [f"can't run {line}" for line in lacking_lines(lacking)]
    if summary.evaluation:
        lines.insert(
            0,
            f"an evaluation ({summary.evaluation}): its responses never trained, so it is neither "
            "screened nor mixed (--purpose training overrides)",
        )
    if summary.findings:
        print_findings("stands out", summary.findings, out)
    print_notes([*lines, *summary.notes], out)


def lacking_lines(lacking: Mapping[str, str]) -> list[str]:
    """Why strategies can't run, those with one reason on one line."""
    names_by_need: dict[str, list[str]] = {}
    for name, need in lacking.items():
        names_by_need.setdefault(need, []).append(name)
    return [f"{', '.join(names)}: needs {need}" for need, names in names_by_need.items()]


def strategies_record(reasons: dict[str, str] | None) -> dict[str, object]:
    """The catalog as JSON."""
    return {
        name: {
            "kind": build(name).kind,
            "scorer": preset.scorer or None,
            "actuator": None if preset.samples else preset.actuator,
            "columns": list(build(name).columns),
            "summary": preset.summary,
            "source": preset.source,
            "parameters": {
                p.name: {"default": p.default, "range": p.range, "help": p.help}
                for p in preset_parameters(preset).values()
            },
            **(
                {}
                if reasons is None
                else {"runs": name not in reasons, "reason": reasons.get(name)}
            ),
        }
        for name, preset in PRESETS.items()
    }
