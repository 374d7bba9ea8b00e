"""The command line: one file a command, thin over the library."""

from __future__ import annotations


def main() -> None:
    """Entry point of ``dfsim``."""
    from .app import main as run

    run()
