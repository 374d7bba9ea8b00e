"""``dfsim import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...traces.storage.files import refuse_here
from ..shared.import_options import format_values
from ..shared.options import (
    Force,
    Json,
    Quiet,
)
from ..shared.output import print_json
from ..shared.progress import progress


def import_(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="A file, or a folder of files.")],
    out: Annotated[Path, typer.Option(help="The trace folder to create.")],
    format: Annotated[str, typer.Option(help="Name of a format.")] = "auto",
    map: Annotated[
        list[str] | None, typer.Option("--map", help="canonical_name=column of the source.")
    ] = None,
    reward: Annotated[
        str | None, typer.Option(help="Column that is the reward; short for --map reward=.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Column not to read, such as advantage.")
    ] = None,
    nan_reward: Annotated[
        str, typer.Option(help="Without a finite reward: fail, drop-response, drop-group.")
    ] = "fail",
    step: Annotated[
        int | None, typer.Option(help="Training step of rows that say none, such as 0.", min=0)
    ] = None,
    group_ids: Annotated[
        str | None,
        typer.Option(help="Several files: ids hold over the run, or each file numbers its own."),
    ] = None,
    purpose: Annotated[
        str, typer.Option(help="auto, training or evaluation: whether the rows trained.")
    ] = "auto",
    domains_from: Annotated[
        Path | None, typer.Option(help="Training set to look domains up in, by prompt.")
    ] = None,
    domain_regex: Annotated[
        list[str] | None, typer.Option(help="NAME=RE: domain of prompts that match.")
    ] = None,
    domain_clusters: Annotated[
        int | None, typer.Option(help="Infer this many domains from prompts.", min=2)
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json that measures responses.")
    ] = None,
    length: Annotated[
        str | None, typer.Option(help="chars: measure responses in characters.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the run, e.g. ppo_mini_batch_size=24."),
    ] = None,
    label: Annotated[str, typer.Option(help="A caution to print beside every result.")] = "",
    keep_text: Annotated[bool, typer.Option(help="Store prompt and response text.")] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a trace from rollouts that are already on disk."""
    from ...reports.tables import console, print_import
    from ...sim.inspect.census import cannot_run
    from ...strategies.grammar import assignments, one_of, yaml_value
    from ...traces.importers.base import GROUP_IDS, LENGTHS, NAN_REWARDS, PURPOSES, ImportOptions
    from ...traces.importers.domains import choose_domains
    from ...traces.importers.importing import import_trace
    from ...traces.storage.store import open_trace

    refuse_here(out)
    columns = dict(assignments(map or [], "--map"))
    if reward is not None:
        columns["reward"] = reward
    options = ImportOptions(
        columns=columns,
        without=tuple(without or ()),
        tokenizer=tokenizer,
        length=None if length is None else one_of(length, LENGTHS, "--length"),
        keep_text=keep_text,
        format_options=format_values(context),
        nan_reward=one_of(nan_reward, NAN_REWARDS, "--nan-reward"),
        step=step,
        group_ids=None if group_ids is None else one_of(group_ids, GROUP_IDS, "--group-ids"),
        purpose=one_of(purpose, PURPOSES, "--purpose"),
        domains=choose_domains(
            domains_from, list(assignments(domain_regex or [], "--domain-regex")), domain_clusters
        ),
    )
    config = {k: yaml_value(v, "--set") for k, v in assignments(set or [], "--set")}
    with progress("import", quiet or json) as tick:
        summary = import_trace(
            source,
            out,
            format=format,
            options=options,
            config=config,
            label=label,
            force=force,
            progress=lambda rows: tick(rows, None),
        )
    lacking = cannot_run(open_trace(out))
    if json:
        findings = [finding.to_dict() for finding in summary.findings]
        record = {"trace": str(out), **vars(summary), "findings": findings, "cannot_run": lacking}
        print_json(record)
        return
    print_import(summary, str(out), lacking, console())
