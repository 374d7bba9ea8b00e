"""Options that commands of every panel share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TracePath = Annotated[Path, typer.Argument(help="A trace, or a folder with one below it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what dfsim wrote there before.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Out = Annotated[Path | None, typer.Option(help="Folder for a page, JSON, tables and figures.")]
Strategies = Annotated[
    list[str] | None,
    typer.Option("--strategy", "-s", help="Preset, FILE.py:Class, or all; may be repeated."),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option("-p", help="name=value, or strategy.name=value; a YAML list is a sweep."),
]
Resamples = Annotated[int, typer.Option(help="Bootstrap resamples.")]
Seed = Annotated[int, typer.Option(help="Seed of the resampling.")]
