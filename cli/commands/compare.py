"""``dfsim compare``: thin, and free of heavy imports until it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ...traces.errors import DfsimError
from ..shared.options import Force, Json, Out, Quiet
from ..shared.output import check_out, print_json
from ..shared.progress import progress


def compare(
    runs: Annotated[
        list[str], typer.Argument(help="Tables of finished runs: .csv, .parquet or .jsonl.")
    ],
    method: Annotated[str | None, typer.Option(help="Column of the method.")] = None,
    seed: Annotated[str | None, typer.Option(help="Column of the seed.")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="a,b: columns of scores; default: numeric, no setting.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="column=value[,value]: rows to take; repeat for more.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="a,b: columns that separate cells; default: text columns.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="a,b: first that a cell has; none,baseline,static,grpo.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="A method shown and never tested, such as untrained.")
    ] = None,
    domains: Annotated[
        list[str] | None,
        typer.Option(help="math=a,b logic=c: the overall is the mean over domains."),
    ] = None,
    subset: Annotated[
        list[str] | None, typer.Option(help="name=a,b: does it order the methods alike?")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="Differences up to this count as none.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Level of tests.")] = 0.05,
    power: Annotated[float, typer.Option(help="Chance to find a true difference.")] = 0.8,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples.")] = 10_000,
    rng_seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    out: Out = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge finished runs: paired seeds, corrected tests, what they could have found."""
    from ...reports.pages import COMPARE_JSON
    from ...sim.compare.compare import compare as run

    paths, more = _split(runs)
    check_out(out, COMPARE_JSON, force)
    with progress("compare", quiet or json) as tick:
        result = run(
            paths,
            method=method,
            seed=seed,
            metrics=_names(metrics, "--metrics"),
            where=_groups(where, "--where"),
            by=_names(by, "--by"),
            baseline=_names(baseline, "--baseline"),
            reference=reference,
            domains=_groups([*(domains or []), *more], "--domains") or None,
            subsets=_groups(subset, "--subset"),
            margin=margin,
            alpha=alpha,
            power=power,
            resamples=resamples,
            rng_seed=rng_seed,
            progress=tick,
        )
    if out is not None:
        from ...reports.folders.compare import write_compare

        write_compare(result, out, force)
    if json:
        from ...reports.folders.compare import compare_record

        print_json(compare_record(result))
        return
    from ...reports.compare.tables import print_compare
    from ...reports.tables import console

    screen = console()
    print_compare(result, screen)
    if out is not None:
        screen.print(f"Written: {out}")


def _split(runs: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Files, and domains that follow ``--domains`` without a flag of their own."""
    more = [r for r in runs if "=" in r and not Path(r).exists()]
    return [Path(r) for r in runs if r not in more], more


def _names(text: str | None, flag: str) -> list[str] | None:
    """Split a,b.

    Raises:
        DfsimError: a name is empty.
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise DfsimError(f"{flag} '{text}' holds an empty name; write {flag} a,b")
    return names


def _groups(items: Sequence[str] | None, flag: str) -> dict[str, list[str]]:
    """Read name=a,b items, several of them in one text if blanks separate them.

    Raises:
        DfsimError: an item is not name=a,b, or a name comes twice.
    """
    from ...strategies.grammar import assignments

    groups: dict[str, list[str]] = {}
    for item in items or []:
        whole = [item] if flag == "--where" else item.split()
        for name, text in assignments(whole, flag):
            if name in groups:
                raise DfsimError(f"{flag} {name}=… is given twice; write {name}=a,b")
            groups[name] = [text] if flag == "--where" and not text else _names(text, flag) or []
    return groups
