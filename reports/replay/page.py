"""The page of a replay, built from its JSON record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...sim.estimators import CATALOG
from ...sim.mix.summary import MixReport
from ...sim.replay.diagnosis import live_groups
from ...sim.result import Estimates, ReplayResult, StrategyResult
from ...traces.findings import Finding
from ..html import Cell, Column, Figure, Findings, Page, Section, Sentence, Table
from ..mix.page import mix_section
from ..origin import made_by
from ..tables import HEADINGS, number, sampling, span, strategy_cells, trace_line
from .sensitivity import STEM, sweeps
from .text import NO_TEXT, text_sections

MANY = 4
"""Domains that a sentence names."""
INTERVAL = (
    "Resamples prompt groups inside the logged steps: how sure the effective batch is on this "
    "trace. It says nothing about another run."
)


def replay_page(record: Mapping[str, Any]) -> Page:
    """What ``replay --out`` shows.

    Args:
        record: of ``replay.json``.
    """
    result = ReplayResult.from_dict(record)
    mixers = [MixReport.from_dict(n, m) for n, m in record.get("mixers", {}).items()]
    alone = len(result.strategies) == 1 and bool(mixers)
    sections = [] if alone else list(_sections(result))
    sections += [mix_section(mixers)] if mixers else []
    sections += _sweep_section(result, mixers)
    text = record.get("text")
    sections += text_sections(text) if text else []
    label = result.trace["label"]
    return Page(
        title="What these strategies would have done" if not alone else "What these mixers ask for",
        lede=trace_line(result),
        sentences=list(_sentences(result, mixers, alone)),
        sections=sections,
        notes=[n for n in record["notes"] if n != label] + ([] if text else [NO_TEXT]),
        provenance=[
            ("Trace", str(result.trace["path"])),
            ("Fingerprint", str(result.trace["fingerprint"])),
            *made_by(record),
        ],
        caution=label,
    )


def _sentences(
    result: ReplayResult, mixers: Sequence[MixReport], alone: bool
) -> Iterator[Sentence]:
    for finding in result.findings:
        yield Sentence(finding.message, "The data", [finding.name])
    if not alone:
        yield from (Sentence(line) for line in sampling(result))
        none = result.strategies["none"].estimates["effective_batch"].mean
        for name, strategy in result.strategies.items():
            if name != "none":
                yield Sentence(_in_short(strategy, none), name, _names(strategy.diagnosis))
    for mixer in mixers:
        yield Sentence(_asks_for(mixer), mixer.name, _names(mixer.diagnosis))


def _asks_for(mixer: MixReport) -> str:
    """A mixer in one sentence: the largest shares that it would have asked for."""
    asked = mixer.runs["asked"].last_target
    if not asked:
        return "could not be played."
    order = sorted(asked, key=lambda domain: -asked[domain])
    shares = [f"{domain} {number(asked[domain], '.0%')}" for domain in order[:MANY]]
    if order[MANY:]:
        shares.append(f"and {len(order[MANY:])} domains less")
    return f"asks for {', '.join(shares)} at the end of this run."


def _names(diagnosis: Sequence[Finding]) -> list[str]:
    return [d.name for d in diagnosis]


def _in_short(strategy: StrategyResult, none: float) -> str:
    """A strategy in one sentence."""
    found = strategy.estimates
    size = found["effective_batch"].mean
    if math.isnan(size):
        return f"has no effective batch: {found['effective_batch'].reason}."
    low, high = (found[f"effective_batch_{end}"].mean for end in ("low", "high"))
    parts = [
        f"effective batch {live_groups(size)} of {live_groups(none)} {span(low, high)}",
        *_part("trains {:.0%} of the tokens", found, "trained_token_frac"),
        *_part("signal × {:.2f}", found, "signal_scale"),
    ]
    return ", ".join(parts) + "."


def _part(words: str, found: Estimates, name: str) -> list[str]:
    value = found[name].mean
    return [] if math.isnan(value) else [words.format(value)]


def _sections(result: ReplayResult) -> Iterator[Section]:
    names = ", ".join(result.strategies)
    figures = [
        Figure(
            "effective_batch",
            f"Line chart over training steps: effective batch of {names}.",
            "The level is what an update is worth; where all lines fall together, groups stop "
            "being live. Bands, where drawn, are what the noise model leaves open.",
        ),
        Figure(
            "kept_and_live",
            f"Two line charts over training steps: share of responses kept, and share of groups "
            f"with signal, for {names}.",
            "Fewer responses at the same share of groups with signal is compute saved; fewer "
            "groups with signal is learning given up.",
        ),
        Figure(
            "signal_scale",
            f"Line chart over training steps: signal scale of {names}.",
            "A level other than 1 acts like another learning rate, a drift like a schedule.",
        ),
    ]
    yield Section("Strategies", tables=[_table(result)], figures=figures)
    split = [
        _split(result, "by_domain", "Effective batch by domain"),
        _split(result, "by_phase", "Effective batch by third of the run"),
    ]
    if any(split):
        yield Section("Where and when", tables=[table for table in split if table])
    findings = [Findings("The data", result.findings)] if result.findings else []
    findings += [Findings(s.name, s.diagnosis) for s in result.strategies.values() if s.diagnosis]
    quiet = [n for n, s in result.strategies.items() if n != "none" and not s.diagnosis]
    if findings or quiet:
        text = [f"Nothing stands out in {', '.join(quiet)}."] if quiet else []
        yield Section("Findings", text=text, findings=findings)


def _table(result: ReplayResult) -> Table:
    columns = [Column("strategy", kind="text")]
    for name, heading in HEADINGS.items():
        columns.append(Column(" ".join(heading.split()), CATALOG[name].help))
        if name == "effective_batch_low":
            columns.append(Column("95 % interval", INTERVAL))
    rows = []
    for strategy in result.strategies.values():
        found = strategy.estimates
        cells = [
            Cell(text, found[name].mean)
            for name, text in zip(HEADINGS, strategy_cells(strategy), strict=True)
        ]
        size = found["effective_batch"]
        cells.insert(2, Cell(span(size.low, size.high), size.low))
        rows.append([Cell(strategy.name), *cells])
    return Table("The run under each strategy", columns, rows, _missing(result))


def _missing(result: ReplayResult) -> list[str]:
    """Why values of the table are missing."""
    reasons: dict[str, list[str]] = {}
    for name, heading in HEADINGS.items():
        for strategy in result.strategies.values():
            found = strategy.estimates[name]
            if math.isnan(found.mean):
                reasons.setdefault(str(found.reason), []).append(" ".join(heading.split()))
                break
    return [f"– in {', '.join(names)}: {reason}." for reason, names in reasons.items()]


def _split(result: ReplayResult, by: str, caption: str) -> Table | None:
    """Effective batch of each strategy in each part of the run."""
    parts = list(getattr(result.strategies["none"], by))
    if len(parts) < 2:
        return None
    rows = []
    for strategy in result.strategies.values():
        values = [getattr(strategy, by)[p]["effective_batch"].mean for p in parts]
        rows.append([Cell(strategy.name), *(Cell(live_groups(v), v) for v in values)])
    columns = [Column("strategy", kind="text"), *(Column(part) for part in parts)]
    note = "In live groups a step of that part, each part judged by itself, without an interval."
    return Table(caption, columns, rows, [note])


def _sweep_section(result: ReplayResult, mixers: Sequence[MixReport]) -> list[Section]:
    swept = [
        *sweeps({n: (s.params, s) for n, s in result.strategies.items()}),
        *sweeps({m.name: (m.params, m) for m in mixers}),
    ]
    figures = [
        Figure(
            f"{STEM}_{index}",
            f"Line charts: what {parameter} changes in {base}.",
            f"{base} by {parameter}. Each point is one replay; lines only join them.",
        )
        for index, (base, parameter, _) in enumerate(swept, start=1)
    ]
    return [Section("What a parameter changes", figures=figures)] if figures else []
