"""The command line: thin commands over the library."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from ..traces.errors import DfsimError
from ..traces.spelling import speaking
from .commands.compact import compact
from .commands.compare import compare
from .commands.doctor import doctor
from .commands.import_ import import_
from .commands.inspect import inspect
from .commands.promote import promote
from .commands.rehearse import rehearse
from .commands.replay import replay
from .commands.report import report
from .commands.screen import screen
from .commands.strategies import strategies
from .commands.verify import verify
from .shared.import_options import ImportCommand
from .shared.options import Commands

app = typer.Typer(
    name="dfsim",
    cls=Commands,
    help="Replay data strategies over captured GRPO rollouts, before spending GPUs on them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

F = TypeVar("F", bound=Callable[..., Any])


def _command(function: F) -> F:
    """Turn a user's mistake into one line and exit 2, Ctrl-C into exit 130."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with speaking("shell"):
                return function(*args, **kwargs)
        except DfsimError as error:
            _stop(f"dfsim: {error}", 2)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            _stop(f"dfsim: {place}{error.strerror or error}", 2)
        except KeyboardInterrupt:
            _stop("dfsim: interrupted; nothing partial was left behind", 130)

    return run  # type: ignore[return-value]


def _stop(message: str, code: int) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(code)


def _register() -> None:
    """Every command: one file each."""
    panels: dict[str, tuple[Callable[..., None], ...]] = {
        "Offline": (replay, inspect, strategies, import_, compact, screen, report),
        "Live": (doctor, rehearse, promote, verify),
        "Finished runs": (compare,),
    }
    for panel, functions in panels.items():
        for function in functions:
            kind = ImportCommand if function is import_ else None
            name = function.__name__.rstrip("_")
            app.command(name, cls=kind, rich_help_panel=panel)(_command(function))


def _version(value: bool) -> None:
    if value:
        from .. import __version__

        typer.echo(f"dfsim {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


_register()


def main() -> None:
    """Entry point of ``dfsim``."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # many small products: threads only wait
    app()


if __name__ == "__main__":
    main()
