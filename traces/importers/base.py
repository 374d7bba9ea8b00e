"""What an import is told, and what it says: options and summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import polars as pl

from ..errors import TraceError, nearest
from ..findings import Finding
from ..schema import COLUMNS

IMPORT_ONLY = {
    "output_idx": "index of an output inside its session; outputs merge into one response",
    "is_padding": "whether a row is padding; such rows are dropped",
    "response_mask": "1 for trainable response tokens; token lists keep those only",
}
"""Canonical names that steer the import and are not stored."""


NanReward = Literal["fail", "drop-response", "drop-group"]
NAN_REWARDS: tuple[NanReward, ...] = get_args(NanReward)
GroupIds = Literal["run", "file"]
GROUP_IDS: tuple[GroupIds, ...] = get_args(GroupIds)
Purpose = Literal["auto", "training", "evaluation"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
Length = Literal["chars"]
LENGTHS: tuple[Length, ...] = get_args(Length)


class GivesDomains(Protocol):
    """Adds the column ``domain`` to rows, by their prompts (see ``domains``)."""

    @property
    def needs_fit(self) -> bool:
        """Whether all prompts must be seen first."""
        ...

    def fit(self, prompts: Iterable[str], summary: ImportSummary) -> None:
        """See all prompts."""
        ...

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the column."""
        ...

    def report(self, summary: ImportSummary) -> None:
        """Say how well it worked."""
        ...


@dataclass(frozen=True)
class ImportOptions:
    """How to read a source.

    Attributes:
        columns: canonical name → column of the source.
        tokenizer: ``tokenizer.json`` to measure responses with.
        length: ``chars`` measures responses in characters where no lengths are known.
        keep_text: store prompt and response text.
        format_options: options that only some formats have, by name (see ``Importer.options``).
        nan_reward: what to do with a response whose reward is missing, NaN or infinite.
        domains: gives rows a domain by their prompt.
        without: columns that are not read.
        step: training step of rows that say none.
        group_ids: whether group ids hold over all files of a step, or each file numbers its own;
            ``None``: told by the rows, and asked where they can't tell.
        purpose: whether the rows trained; ``auto``: told by the rows.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    tokenizer: Path | None = None
    length: Length | None = None
    keep_text: bool = False
    format_options: Mapping[str, Any] = field(default_factory=dict)
    nan_reward: NanReward = "fail"
    domains: GivesDomains | None = None
    without: tuple[str, ...] = ()
    step: int | None = None
    group_ids: GroupIds | None = None
    purpose: Purpose = "auto"

    def __post_init__(self) -> None:
        known = {**COLUMNS, **IMPORT_ONLY}
        for name in self.columns:
            if name not in known:
                raise TraceError(
                    f"--map {name}=…: no canonical column is called '{name}'{nearest(name, known)}"
                )


@dataclass
class ImportSummary:
    """What an import did, for the user.

    Attributes:
        rows: rows read.
        padding: padding rows dropped.
        outputs: output rows merged into another output's response.
        responses: responses written.
        steps: steps written.
        lengths: where response lengths came from, or ``None``.
        dropped: responses dropped for want of a reward.
        config: settings of the run that the format implies.
        reward_is_score: whether every row so far has verl's ``reward`` beside an equal ``score``.
        derived: whether the format's own rule was seen to give the stored advantages.
        evaluation: why the rows are an evaluation that never trained, or empty.
        notes: sentences about what was inferred.
        findings: what stands out in the rows.
    """

    rows: int = 0
    padding: int = 0
    outputs: int = 0
    responses: int = 0
    steps: int = 0
    lengths: str | None = None
    dropped: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    reward_is_score: bool | None = None
    derived: bool = False
    evaluation: str = ""
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a sentence once."""
        if text not in self.notes:
            self.notes.append(text)
