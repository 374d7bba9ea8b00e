"""``dfsim verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..shared.options import Force, Json, PageFolder, Quiet
from ..shared.output import check_out, print_gates, print_json
from ..shared.progress import progress


def verify(
    live: Annotated[Path, typer.Argument(help="The capture of the live run.")],
    promotion: Annotated[Path | None, typer.Option(help="promotion.json, or its folder.")] = None,
    out: PageFolder = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Recompute a live run's decisions, read its proof of delivery, compare with the forecast."""
    from ...live.core.promotion import read_promotion
    from ...live.core.verification.verify import verify as run
    from ...reports.folders.result import write_record
    from ...reports.pages import VERIFY_JSON
    from ...traces.storage.store import open_trace

    trace = open_trace(live)
    chosen = None if promotion is None else read_promotion(promotion)
    check_out(out, VERIFY_JSON, force)
    with progress("verify", quiet or json) as tick:
        found = run(trace, chosen, progress=tick)
    if out is not None:
        settings = {"promotion": None if chosen is None else chosen.digest}
        write_record(VERIFY_JSON, found.to_dict(), settings, out, force)
    if json:
        print_json(found.to_dict())
    else:
        print_gates(found.gates)
        shown = [c for c in found.comparisons if c.headline]
        if shown:
            typer.echo(f"\n{'':<22}{'forecast':>9}  {'for steps like those':<22}{'live':>9}")
        for c in shown:
            interval = "" if c.low is None else f"[{_figure(c.low)}, {_figure(c.high)}]"
            note = "" if c.inside is not False else "  outside"
            figures = f"{_figure(c.forecast):>9}  {interval:<22}{_figure(c.observed):>9}"
            typer.echo(f"{c.name:<22}{figures}{note}")
        for note in found.notes:
            typer.echo(f"· {note}")
        typer.echo("Verified." if found.passed else "NOT verified: a gate failed.")
        if out is not None:
            typer.echo(f"Written: {out}")
    if not found.passed:
        raise typer.Exit(1)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
