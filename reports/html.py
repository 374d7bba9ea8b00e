"""The page: what it consists of, and how that becomes one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..traces.findings import Finding

PAGE = "index.html"
SVG_LIMIT = 400_000
"""Bytes from which on a figure is embedded as PNG: a browser redraws an SVG at every scroll."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading.
        help: what the number means and where it ends; stands under the table.
        kind: numbers sort by value, those missing last; text by its letters.
    """

    name: str
    help: str = ""
    kind: Literal["text", "number"] = "number"


@dataclass(frozen=True)
class Cell:
    """A cell: what is read, and for a number what it sorts by."""

    text: str
    value: float | None = None

    @property
    def sort(self) -> str | None:
        """The value for the page's script, or ``None`` where there is none."""
        known = self.value is not None and math.isfinite(self.value)
        return f"{self.value:.12g}" if known else None


@dataclass(frozen=True)
class Table:
    """A sortable table; the first column names the row.

    Attributes:
        caption: what it shows.
        columns: headings, C of them.
        rows: cells, C a row.
        notes: what stands under it, such as why a value is missing.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """A picture that lies beside the page as ``stem``.svg and .png; left out where it does not."""

    stem: str
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class Findings:
    """What was found of one thing; none is worth saying too."""

    about: str
    items: Sequence[Finding] = ()
    text: str = ""


@dataclass(frozen=True)
class Excerpt:
    """A piece of captured text.

    Attributes:
        label: what it is.
        text: as captured, or as much of it as was kept.
        facts: short pairs beside it.
        cut: how much is missing, in words.
    """

    label: str
    text: str
    facts: Sequence[tuple[str, str]] = ()
    cut: str = ""


@dataclass(frozen=True)
class Sample:
    """Excerpts that belong together: a prompt and responses to it."""

    title: str
    excerpts: Sequence[Excerpt]


@dataclass(frozen=True)
class Section:
    """A part of a page, shown in the order of its attributes."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    findings: Sequence[Findings] = ()
    samples: Sequence[Sample] = ()


@dataclass(frozen=True)
class Sentence:
    """A headline: what it is about, what is said, and findings by name."""

    text: str
    about: str = ""
    tags: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """A page, from its most important sentence to where its numbers come from.

    Attributes:
        title: of the page and the window.
        lede: what it is about, in one line.
        sentences: what a hurried reader takes along.
        sections: tables, figures, findings.
        notes: cautions that hold for every number.
        provenance: pairs of name and value.
        caution: the trace's own, shown before any number.
    """

    title: str
    lede: str
    sentences: Sequence[Sentence]
    sections: Sequence[Section]
    notes: Sequence[str] = ()
    provenance: Sequence[tuple[str, str]] = ()
    caution: str = ""


def render(page: Page, folder: Path) -> str:
    """One HTML file that loads nothing.

    Args:
        page: what to show.
        folder: where its figures lie.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    templates = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters["breakable"] = _breakable
    style, script = (
        (templates / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    return environment.get_template("page.html.j2").render(
        page=page,
        policy="; ".join(
            [
                "default-src 'none'",
                "img-src data:",
                f"style-src {_hash(style)}",
                f"script-src {_hash(script)}",
                "base-uri 'none'",
                "form-action 'none'",
            ]
        ),
        style=Markup(style),
        script=Markup(script),
        pictures=_pictures(page.sections, folder),
    )


def _hash(source: str) -> str:
    """A content security policy's name for an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _pictures(sections: Iterable[Section], folder: Path) -> dict[str, str]:
    """Stem → data URI of every figure that is there."""
    found = {}
    for figure in (f for section in sections for f in section.figures):
        svg, png = (folder / f"{figure.stem}.{suffix}" for suffix in ("svg", "png"))
        small = svg.is_file() and svg.stat().st_size <= SVG_LIMIT
        path, kind = (svg, "svg+xml") if small or not png.is_file() else (png, "png")
        if path.is_file():
            data = base64.b64encode(path.read_bytes()).decode()
            found[figure.stem] = f"data:image/{kind};base64,{data}"
    return found


_PICTURED = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE = {
    **_PICTURED,
    0x7F: "␡",
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
    **{code: f"\\u{code:04x}" for code in _DIRECTIONS},
    **dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\N{REPLACEMENT CHARACTER}"),
}


def visible(text: str) -> str:
    """Text whose control and direction characters are shown instead of obeyed.

    No XML may hold the former, and the latter turn round what stands beside them.
    """
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def short(text: str, limit: int) -> str:
    """A name on one line, its middle left out where it is long: both ends tell names apart."""
    line = re.sub(r"\s+", " ", visible(text)).strip()
    if len(line) <= limit:
        return line
    head = (limit - 1) // 2
    return f"{line[:head]}…{line[len(line) - (limit - 1 - head) :]}"


def _breakable(text: str) -> Any:
    """A name that may break where its parts meet, as in ``dump_ucb+maxvar[floor=0.1]``."""
    from markupsafe import Markup, escape

    parts = re.split(r"(?=[@+\[/])|(?<=,)", visible(text))
    return Markup("<wbr>").join(escape(part) for part in parts)


def _finalize(value: Any) -> Any:
    return visible(value) if type(value) is str else value
