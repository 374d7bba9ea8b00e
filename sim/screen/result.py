"""What a screen returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...traces.findings import number_of, plain
from ...traces.version import __version__
from ..mix.screened import ScreenedSampler
from ..result import RECORD_VERSION, ReplayResult, StrategyResult
from ..stats.series import ALPHA, MIN_STEPS, Differences
from .choice import Choice

if TYPE_CHECKING:
    import polars as pl

NOTES = (
    "Worth a live run: on the Pareto front, where no other strategy has at least as much effective "
    "batch (at both ends of its bracket) from as few tokens with as little group bias, and more of "
    "one of them. Dropping responses at random gets there, too; which trains better, only live "
    "runs say.",
    "Fewer trained tokens save compute only where dropped rows are left out of the update; verl "
    "computes rows of weight 0 all the same.",
)


@dataclass(frozen=True)
class Difference:
    """Of one strategy to the baseline, in the screen's estimator.

    Attributes:
        mean: over the steps that all have a value.
        low: simultaneous 95 % interval; NaN where nothing is claimed.
        high: its upper end.
        p_adjusted: Holm-adjusted over all pairs.
        claimed: 1 above the baseline, -1 below, 0 where nothing is claimed.
        above: strategies, the baseline or not, that it is claimed to be above.
        below: those that it is claimed to be below.
    """

    mean: float
    low: float
    high: float
    p_adjusted: float
    claimed: int
    above: Sequence[str]
    below: Sequence[str]


@dataclass(frozen=True, eq=False)
class Screened:
    """One strategy of a screen.

    Attributes:
        result: its replay.
        rank: its place by the screen's estimator, 1 = best.
        beaten_by: a strategy that is no worse in effective batch (both ends), trained tokens
            (responses where lengths are unknown) and group bias, and better in one; ``None`` on the
            Pareto front.
        beaten_low_by: the same with the lower end of brackets alone: what is on the front in spite
            of it rests on its upper end.
        told_apart: whether paired steps tell it from that one, in a criterion where that is better;
            at 5 % over all pairs and criteria.
        difference: to the baseline, and to which others one is claimed.
        verdict: ``baseline``, ``promote``, ``care``, ``beaten``, ``unclear``, ``thin``, ``no_op``,
            ``splits_nothing``, ``same``, ``no_signal`` or ``not_chosen``.
        sentence: why, to act on.
    """

    result: StrategyResult
    rank: int
    beaten_by: str | None
    told_apart: bool
    difference: Difference
    beaten_low_by: str | None = None
    verdict: str = ""
    sentence: str = ""

    @property
    def name(self) -> str:
        """The strategy's name."""
        return self.result.name

    def to_dict(self) -> dict[str, Any]:
        """As JSON; domains and phases are in the JSON of ``dfsim replay``."""
        return {
            "rank": self.rank,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "on_front": self.beaten_by is None,
            "beaten_by": self.beaten_by,
            "beaten_low_by": self.beaten_low_by,
            "told_apart": self.told_apart,
            "difference": {name: plain(value) for name, value in vars(self.difference).items()},
            **self.result.to_dict(),
            "by_domain": {},
            "by_phase": {},
        }

    @classmethod
    def from_dict(cls, name: str, record: Mapping[str, Any]) -> Screened:
        """Read what :meth:`to_dict` wrote."""
        return cls(
            result=StrategyResult.from_dict(name, record),
            rank=record["rank"],
            beaten_by=record["beaten_by"],
            beaten_low_by=record.get("beaten_low_by"),
            told_apart=record["told_apart"],
            difference=Difference(**{n: number_of(v) for n, v in record["difference"].items()}),
            verdict=record["verdict"],
            sentence=record["sentence"],
        )


@dataclass(frozen=True, eq=False)
class TraceScreen:
    """A screen of one trace.

    Attributes:
        replay: of every strategy that it can run.
        rows: strategies in the order of the screen.
        differences: of every pair, by index in ``names``.
        names: strategies in the order of the replay, ``none`` first.
        choices: sweeps, chosen on the first half and judged on the second.
        cannot_run: strategy → what it needs.
        foreign: whether another trainer than verl made it, so that nothing of it can be promoted.
        shortlist: headings and their sentences, most useful first.
        by: the estimator that orders.
        baseline: the strategy that differences are taken to.
        mixers: samplers, in the order of the replay.
    """

    replay: ReplayResult
    rows: Sequence[Screened]
    differences: Differences
    names: Sequence[str]
    choices: Sequence[Choice]
    cannot_run: Mapping[str, str]
    foreign: bool
    shortlist: Sequence[tuple[str, Sequence[str]]]
    by: str
    baseline: str
    mixers: Sequence[ScreenedSampler] = ()

    def __repr__(self) -> str:
        return f"TraceScreen of {self.replay.trace['path']}: {len(self.rows)} strategies"

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        found = self.differences
        return {
            **{
                n: v
                for n, v in self.replay.to_dict().items()
                if n not in ("dfsim", "version", "mixers")
            },
            "shortlist": [{"heading": h, "sentences": list(s)} for h, s in self.shortlist],
            "comparison": {
                "steps": found.steps,
                "comparisons": found.comparisons,
                "degrees_of_freedom": found.freedom,
                "related": plain(found.related),
                "no_claim": found.reason,
            },
            "choices": [
                {name: plain(value) for name, value in vars(choice).items()}
                for choice in self.choices
            ],
            "cannot_run": dict(self.cannot_run),
            "strategies": {row.name: row.to_dict() for row in self.rows},
            **({"mixers": {m.name: m.to_dict() for m in self.mixers}} if self.mixers else {}),
        }


@dataclass(frozen=True)
class RankAgreement:
    """How alike two traces order the strategies that both ran.

    Attributes:
        traces: their paths.
        strategies: how many both ran.
        spearman: rank correlation; NaN with fewer than three.
        p: two-sided, of no relation.
    """

    traces: tuple[str, str]
    strategies: int
    spearman: float
    p: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> RankAgreement:
        """Read what :meth:`to_dict` wrote."""
        one, other = record["traces"]
        figures = (number_of(record[name]) for name in ("spearman", "p"))
        return cls((one, other), record["strategies"], *figures)


@dataclass(frozen=True, eq=False)
class ScreenResult:
    """Many strategies on one or more traces.

    Attributes:
        by: the estimator that orders.
        baseline: the strategy that differences are taken to.
        settings: resamples, seed, φ.
        traces: one screen a trace.
        agreement: of the orders of each pair of traces.
    """

    by: str
    baseline: str
    settings: Mapping[str, Any]
    traces: Sequence[TraceScreen]
    agreement: Sequence[RankAgreement]

    def __repr__(self) -> str:
        lines = [f"ScreenResult by {self.by}, against {self.baseline}; .table(), .to_dict()"]
        for screened in self.traces:
            lines.append(f"  {screened.replay.trace['path']}")
            lines += [f"    {row.verdict}  {row.result!r}" for row in screened.rows]
            lines += [f"    {mixer.verdict}  {mixer.sentence}" for mixer in screened.mixers]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As the JSON of ``dfsim screen --json``."""
        return {
            "dfsim": __version__,
            "version": RECORD_VERSION,
            "by": self.by,
            "baseline": self.baseline,
            "settings": {**self.settings, "alpha": ALPHA, "min_steps": MIN_STEPS},
            "notes": list(NOTES),
            "traces": [trace.to_dict() for trace in self.traces],
            "agreement": [pair.to_dict() for pair in self.agreement],
        }

    def table(self) -> pl.DataFrame:
        """One row a trace and strategy: rank, verdict, estimates, difference to the baseline."""
        import polars as pl

        rows = []
        for screened in self.traces:
            for row in screened.rows:
                difference = {
                    f"difference_{name}": plain(getattr(row.difference, name))
                    for name in ("mean", "low", "high", "p_adjusted", "claimed")
                }
                estimates = {n: plain(e.mean) for n, e in row.result.estimates.items()}
                rows.append(
                    {
                        "trace": str(screened.replay.trace["path"]),
                        "strategy": row.name,
                        "rank": row.rank,
                        "verdict": row.verdict,
                        "beaten_by": row.beaten_by,
                        **difference,
                        **estimates,
                    }
                )
        return pl.DataFrame(rows, infer_schema_length=None)
