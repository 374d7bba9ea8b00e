"""What a format declares: how it is told and read, its options, and its near misses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...errors import TraceError
from ..base import ImportOptions, ImportSummary
from ..sources import Chunk, Sample


@dataclass(frozen=True)
class FormatOption:
    """An option of ``dfsim import`` that only some formats have a use for.

    Attributes:
        name: in Python; the shell's has hyphens.
        help: what it says, in one line.
        kind: ``text``, ``count`` (a whole number above 0) or ``numbers`` (name → number).
    """

    name: str
    help: str
    kind: Literal["text", "count", "numbers"]

    @property
    def flag(self) -> str:
        """The option of the shell."""
        return "--" + self.name.replace("_", "-")

    def value(self, options: ImportOptions) -> Any:
        """What the user gave, or ``None``."""
        return options.format_options.get(self.name)

    def check(self, value: Any) -> None:
        """Refuse a value of another kind.

        Raises:
            TraceError: names the option and what it takes.
        """
        fits, needed = {
            "text": (isinstance(value, str), "text"),
            "count": (isinstance(value, int) and value > 0, "a whole number above 0"),
            "numbers": (isinstance(value, Mapping), "NAME=NUMBER pairs"),
        }[self.kind]
        if not fits:
            raise TraceError(f"{self.flag} {value!r}: it must be {needed}")


@dataclass(frozen=True)
class Hint:
    """A kind of file that no importer reads as it is.

    Attributes:
        matches: whether a sample is of this kind.
        about: what it is, and why it can't be read as it is.
        recipe: options of ``dfsim import`` that read it; empty where nothing does.
    """

    matches: Callable[[Sample], bool]
    about: str
    recipe: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Importer:
    """A format.

    Attributes:
        about: what it is, in words.
        trainer: what made such rows, as in the manifest; empty where rows of any trainer look so.
        recognise: whether a sample is of this format.
        read: yields a source's rows with canonical names where the format has them.
        options: that only some formats have a use for, and this one has.
        hints: near misses, which are refused with the way on.
    """

    about: str
    trainer: str
    recognise: Callable[[Sample], bool]
    read: Callable[[Path, ImportOptions, ImportSummary], Iterator[Chunk]]
    options: tuple[FormatOption, ...] = ()
    hints: tuple[Hint, ...] = ()

    def check(self, options: ImportOptions) -> None:
        """Refuse an option that would change nothing, or of another kind.

        Raises:
            TraceError: names the option and the remedy.
        """
        by_name = {option.name: option for option in self.options}
        for name, value in options.format_options.items():
            if value in (None, "", {}):
                continue
            if name not in by_name:
                flag = "--" + name.replace("_", "-")
                raise TraceError(f"{flag} has no use for {self.about}; leave it out")
            by_name[name].check(value)


GROUP_SIZE = FormatOption("group_size", "rows of a block that is one group.", "count")


def has(*names: str) -> Callable[[Sample], bool]:
    """Whether a sample has all of these columns."""
    return lambda sample: set(names) <= sample.columns


def maps(**columns: str) -> tuple[str, ...]:
    """Options that name columns: canonical name → column of the source."""
    return tuple(part for name, column in columns.items() for part in ("--map", f"{name}={column}"))


POLARS = (
    "Convert it: import polars as pl; pl.DataFrame(rows, schema=['step', 'group_uid', "
    "'rollout_idx', 'reward'], orient='row').write_parquet('flat.parquet'), then dfsim import "
    "flat.parquet --out TRACE"
)
"""How rows that were flattened by hand become a file that is read."""
