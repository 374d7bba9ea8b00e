"""Options of ``dfsim import`` that the formats declare: read only where the command is."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

_GIVEN = "dfsim.format_options"


class ImportCommand(TyperCommand):
    """The command with the options of every format, and their names in its help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's own parameters, those of the formats after ``--format``."""
        from ...traces.importers import IMPORTERS

        params: list[Any] = super().get_params(ctx)
        index = next(i for i, param in enumerate(params) if param.name == "format")
        params[index].help = f"auto: told by the content; or {', '.join(IMPORTERS)}."
        return [*params[: index + 1], *_format_params(tuple(IMPORTERS)), *params[index + 1 :]]


@cache
def _format_params(_names: tuple[str, ...]) -> tuple[Any, ...]:
    """Typer's parameters of the options that the formats declare."""
    from ...traces.importers import format_options

    def noted(context: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        context.meta.setdefault(_GIVEN, {})[param.name] = value
        return value

    def command(**_values: Any) -> None: ...

    parameters = []
    for option, formats in format_options().items():
        declared = typer.Option(
            option.flag,
            help=f"{', '.join(formats)}: {option.help}",
            min=1 if option.kind == "count" else None,
            callback=noted,
            expose_value=False,
        )
        kind = int if option.kind == "count" else str
        parameters.append(
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[kind | None, declared],
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return tuple(typer.main.get_command(app).params)


def format_values(context: typer.Context) -> dict[str, Any]:
    """What the call gives of the formats' options, by name."""
    from ...strategies.grammar import assignments, number
    from ...traces.importers import format_options

    values = {k: v for k, v in context.meta.get(_GIVEN, {}).items() if v is not None}
    for option in format_options():
        if option.kind == "numbers" and option.name in values:
            pairs = assignments(values[option.name].split(","), option.flag)
            values[option.name] = {name: number(text, option.flag) for name, text in pairs}
    return values
