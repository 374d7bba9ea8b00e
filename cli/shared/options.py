"""What commands of every panel share: options, and how a wrong call is answered."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ...sim.provenance import command_line

TracePath = Annotated[Path, typer.Argument(help="A trace, or a folder with one below it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what dfsim wrote there before.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Out = Annotated[Path | None, typer.Option(help="Folder for a page, JSON, tables and figures.")]
PageFolder = Annotated[Path | None, typer.Option("--out", help="Folder for a page and its JSON.")]
Strategies = Annotated[
    list[str] | None,
    typer.Option("--strategy", "-s", help="Preset, FILE.py:Class, or all; may be repeated."),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option("-p", help="name=value, or strategy.name=value; a YAML list is a sweep."),
]
SuccessColumn = Annotated[
    str, typer.Option("--success", help="Column that says how well a response did.")
]
SuccessThreshold = Annotated[
    float | None,
    typer.Option("--success-threshold", help="A response is solved above this; default 0.5."),
]
DrawnFrom = Annotated[
    str, typer.Option(help="Mixers: sync, prompts, or oversample=K; where draws come from.")
]
Clocks = Annotated[
    str, typer.Option(help="Mixers: step, exposure or both; what a reward depends on.")
]
Resamples = Annotated[int, typer.Option(help="Bootstrap resamples.")]
Seed = Annotated[int, typer.Option(help="Seed of the resampling.")]

_USAGE_ERROR: Any = typer.BadParameter.__base__

Params = Annotated[list[str] | None, typer.Option("-p", help="name=value.")]

Override = Annotated[
    list[str] | None, typer.Option("--override", help="A Hydra override for verl; may be repeated.")
]


class Commands(TyperGroup):
    """Commands whose results carry the call that made them, and whose mistakes are one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the call, then read it."""
        ctx.with_resource(command_line(list(args)))
        return super().parse_args(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run; a mistake in the call itself is one line, too."""
        call = (args, prog_name, complete_var, False, windows_expand_args)
        if not standalone_mode:
            return super().main(*call, **extra)
        try:
            code = super().main(*call, **extra)
        except _USAGE_ERROR as error:
            place = error.ctx.command_path if error.ctx else "dfsim"
            said = " ".join(error.format_message().split())
            typer.echo(f"dfsim: {said.rstrip('.')}; see {place} --help", err=True)
            sys.exit(error.exit_code)
        except typer.Abort:
            sys.exit(130)
        sys.exit(code if isinstance(code, int) else 0)
