"""The part of a replay's page that is about mixers."""

from __future__ import annotations

from collections.abc import Sequence

from ...sim.mix.screened import ScreenedSampler
from ...sim.mix.summary import MixReport
from ..html import Cell, Column, Figure, Findings, Section, Table
from ..tables import number
from .tables import (
    HEADINGS,
    STEERING_LEGEND,
    clock_gap,
    noise_cell,
    run_cells,
    setting,
)

HELP = {
    "total_variation": "Total variation between the mix asked for and the mix drawn: 0 where it "
    "gets what it asks for.",
    "volatility": "Mean change of a domain's target from step to step. Noise in a short window "
    "moves it too.",
    "floor_hits": "Share of steps and domains where the floor decides, not the signal.",
    "steps": "Steps of which anything can be said. A star: a domain's log was used up there.",
}


def mix_section(mixers: Sequence[MixReport]) -> Section:
    """Tables, figures and findings of all mixers of a replay."""
    figures = []
    for index, mixer in enumerate(mixers, start=1):
        domains = ", ".join(mixer.domains)
        figures += [
            Figure(
                f"mix_{index}_shares",
                f"Stacked shares over training steps: what {mixer.name} asks for and gets of "
                f"{domains}, and the signal that drives it.",
                f"{mixer.name}: what it asks for and what it gets.",
            ),
            Figure(
                f"mix_{index}_clocks",
                f"Lines over training steps: targets of {mixer.name} under each clock, and the "
                f"logged mean reward of {domains}.",
                f"{mixer.name}: the gap between the clocks is the model's uncertainty.",
            ),
            Figure(
                f"mix_{index}_exposure",
                f"Lines: mean reward of {domains} by how much of the domain was consumed.",
                "Reward by exposure, an isotonic fit, least sure at its ends.",
            ),
        ]
    return Section(
        "Mixers",
        text=[setting(mixers[0])],
        tables=[_runs(mixers), _shares(mixers)],
        figures=figures,
        findings=[Findings(m.name, m.diagnosis, clock_gap(m)) for m in mixers],
    )


def steering_section(samplers: Sequence[ScreenedSampler]) -> Section:
    """How far each sampler of a screen steers, and what it asks for."""
    columns = [Column("sampler", kind="text")]
    columns += [Column(label) for label in samplers[0].steering]
    columns += [Column("noise", "What chance alone would move."), Column("verdict", kind="text")]
    rows = [
        [
            Cell(sampler.name),
            *(Cell(number(value, ".1%"), value) for value in sampler.steering.values()),
            Cell(noise_cell(sampler), sampler.noise_high),
            Cell(sampler.verdict),
        ]
        for sampler in samplers
    ]
    reports = [sampler.report for sampler in samplers]
    return Section(
        "Samplers",
        text=[STEERING_LEGEND],
        tables=[Table("How far each moves the draw", columns, rows), _shares(reports)],
        findings=[Findings(r.name, r.diagnosis, clock_gap(r)) for r in reports],
    )


def _runs(mixers: Sequence[MixReport]) -> Table:
    columns = [Column("mixer", kind="text"), Column("clock", kind="text")]
    columns += [Column(" ".join(h.split()), HELP[name]) for name, h in HEADINGS.items()]
    rows = [
        [
            Cell(mixer.name),
            Cell(label),
            *(
                Cell(text, getattr(summary, name))
                for name, text in zip(HEADINGS, run_cells(summary), strict=True)
            ),
        ]
        for mixer in mixers
        for label, summary in mixer.runs.items()
    ]
    return Table("How each mixer steers", columns, rows)


def _shares(mixers: Sequence[MixReport]) -> Table:
    labels = list(mixers[0].runs)
    columns = [Column("mixer", kind="text"), Column("domain", kind="text")]
    for label in labels:
        columns += [Column(f"{label}, mean"), Column(f"{label}, last")]
    rows = []
    for mixer in mixers:
        for domain in mixer.domains:
            cells = [Cell(mixer.name), Cell(domain)]
            for label in labels:
                run = mixer.runs[label]
                for target in (run.mean_target, run.last_target):
                    value = target.get(domain)
                    cells.append(Cell("–" if value is None else f"{value:.2f}", value))
            rows.append(cells)
    return Table("Shares of the mix asked for", columns, rows)
