"""What the command line says: run in process, output and error apart."""

from __future__ import annotations

from typer.testing import CliRunner

from dfsim.cli.app import app

QUICK = ("--resamples", "2")


def run(*args):
    return CliRunner().invoke(app, [str(a) for a in args])


def printed(*args):
    result = run(*args)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def refused(*args):
    """The one line that a mistake gets."""
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("dfsim: ")
    return line
