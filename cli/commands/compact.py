"""``dfsim compact``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...traces.storage.files import refuse_here
from ..shared.options import (
    Force,
    Json,
    Quiet,
    TracePath,
)
from ..shared.progress import progress


def compact(
    path: TracePath,
    out: Annotated[Path, typer.Option(help="The trace folder to create.")],
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Copy a trace into few files: the same content and fingerprint, faster to read."""
    from ...sim.result import dump_json
    from ...traces.storage.compact import compact as run
    from ...traces.storage.store import open_trace

    refuse_here(out)
    trace = open_trace(path)
    with progress("compact", quiet or json) as tick:
        files = run(trace, out, force=force, progress=tick)
    record = {"trace": str(out), "steps": len(trace.manifest.steps), "files": files}
    typer.echo(dump_json(record) if json else f"{out}: {record['steps']} steps in {files} files")
