"""The command line: thin commands over the library."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..traces.errors import DfsimError
from ..traces.files import refuse_here
from ..traces.spelling import speaking
from . import live_commands as live_commands
from . import report_commands as report_commands
from .import_options import ImportCommand, format_values
from .options import (
    Clocks,
    Commands,
    DrawnFrom,
    Force,
    Json,
    Out,
    Quiet,
    Resamples,
    Seed,
    Strategies,
    SuccessColumn,
    SuccessThreshold,
    Sweep,
    TracePath,
)

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


def _progress(title: str, quiet: bool) -> Any:
    from .progress import progress

    return progress(title, quiet)


@app.command(rich_help_panel="Offline")
@_command
def replay(
    path: TracePath,
    strategy: Strategies = None,
    param: Sweep = None,
    scorer: Annotated[str | None, typer.Option(help="Compose: a scorer …")] = None,
    actuator: Annotated[str | None, typer.Option(help="… and an actuator.")] = None,
    loss_agg_mode: Annotated[
        str | None, typer.Option(help="verl's loss aggregation; default: the run's own.")
    ] = None,
    out: Out = None,
    decisions: Annotated[
        Path | None, typer.Option(help="Parquet file for one strategy's weights.")
    ] = None,
    resamples: Resamples = 200,
    seed: Seed = 0,
    tie_seed: Annotated[int, typer.Option(help="Seed that breaks ties across groups.")] = 0,
    phi: Annotated[float, typer.Option(help="Response share of the noise, a fit.")] = 0.25,
    success: SuccessColumn = "reward",
    success_threshold: SuccessThreshold = None,
    candidates: DrawnFrom = "prompts",
    clock: Clocks = "both",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what strategies would have done to the updates of a captured run."""
    from ..sim.mix.simulate import Candidates, clocks_of
    from ..sim.replay.loop import OnDecision, each_of
    from ..sim.replay.loop import replay as run
    from ..sim.success import Success
    from ..strategies.grammar import strategies_from
    from ..strategies.sample.base import SamplingStrategy
    from ..traces.files import check_new_folder
    from ..traces.store import open_trace

    pool, clocks = Candidates.parse(candidates), clocks_of(clock)
    trace = open_trace(path)
    skipped: dict[str, str] = {}
    if strategy and "all" in strategy:
        from ..sim.inspect.census import cannot_run

        skipped = cannot_run(trace)
    solved = Success(success, success_threshold)
    strategies = strategies_from(
        strategy or [],
        param or [],
        scorer,
        actuator,
        tie_seed=tie_seed,
        skip=skipped,
        shared=solved.parameters,
    )
    chosen = [s for s in strategies if not isinstance(s, SamplingStrategy)]
    watchers: list[OnDecision] = []
    text = None
    if out is not None:
        from ..reports.pages import REPLAY_JSON
        from ..sim.replay.samples import TextSamples, has_text

        refuse_here(out)
        check_new_folder(out, REPLAY_JSON, force)
        text = TextSamples(trace) if has_text(trace) else None
        watchers += [text] if text else []
    with contextlib.ExitStack() as stack:
        if decisions is not None:
            from ..reports.files import writing_decisions

            if len(chosen) != 1:
                raise DfsimError("--decisions writes one strategy's weights; name one strategy")
            watchers.append(stack.enter_context(writing_decisions(decisions, chosen[0].name)))
        with _progress("replay", quiet or json) as tick:
            result = run(
                trace,
                strategies,
                loss_agg_mode=loss_agg_mode,
                resamples=resamples,
                seed=seed,
                phi=phi,
                candidates=pool,
                clocks=clocks,
                progress=tick,
                on_decision=each_of(watchers),
            )
    mixers = list(result.mixers.values())
    left_out = [f"{name} was left out: {reason}" for name, reason in skipped.items()]
    result = dataclasses.replace(result, notes=[*left_out, *result.notes])
    if out is not None:
        from ..reports.files import write_replay

        write_replay(result, out, force, text.to_dict() if text else None)
    if json:
        from ..reports.files import replay_record
        from ..sim.result import dump_json

        typer.echo(dump_json(replay_record(result)))
        return
    from ..reports.mix_tables import print_mixing
    from ..reports.tables import console, print_replay, trace_line

    screen = console()
    if chosen or not mixers:
        print_replay(result, screen)
    else:
        screen.print(trace_line(result))
    if mixers:
        screen.print()
        print_mixing(mixers, screen)
    for written in filter(None, (out, decisions)):
        screen.print(f"Written: {written}")


@app.command(rich_help_panel="Offline")
@_command
def inspect(
    path: TracePath,
    prompts: Annotated[
        Path | None, typer.Option(help="Write one row a prompt (.csv or .parquet).")
    ] = None,
    success: SuccessColumn = "reward",
    success_threshold: SuccessThreshold = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what a trace holds, what is odd about it, and what it can run."""
    from ..reports.files import check_prompts, write_prompts
    from ..reports.tables import console, print_census
    from ..sim.inspect.census import census
    from ..sim.replay.loop import describe
    from ..sim.result import dump_json
    from ..sim.success import Success
    from ..traces.store import open_trace

    trace = open_trace(path)
    if prompts is not None:
        check_prompts(trace, prompts)
    with _progress("inspect", quiet or json) as tick:
        found = census(trace, tick, success=Success(success, success_threshold))
    if prompts is not None:
        write_prompts(found, prompts)
    if json:
        typer.echo(dump_json({"trace": describe(trace), **found.to_dict()}))
        return
    print_census(trace, found, console())


@app.command(rich_help_panel="Offline")
@_command
def strategies(
    path: Annotated[Path | None, typer.Argument(help="A trace, to see what it can run.")] = None,
    check: Annotated[
        str | None, typer.Option(help="Check a strategy of your own: FILE.py:Class.")
    ] = None,
    json: Json = False,
) -> None:
    """List the strategies: kind, signals, parameters, source, and whether a trace can run them."""
    from ..reports.tables import console, print_strategies, strategies_record
    from ..sim.result import dump_json

    if check is not None:
        from ..strategies.check import check_strategy

        passed = check_strategy(check)
        if json:
            typer.echo(dump_json({"strategy": check, "invariants": passed}))
            return
        typer.echo(f"{check}: {len(passed)} invariants hold: {', '.join(passed)}")
        return
    reasons = None
    if path is not None:
        from ..sim.inspect.census import cannot_run
        from ..strategies.catalog import PRESETS
        from ..traces.store import open_trace

        reasons = cannot_run(open_trace(path), PRESETS)
    if json:
        typer.echo(dump_json(strategies_record(reasons)))
        return
    print_strategies(console(), reasons)


@app.command("import", cls=ImportCommand, rich_help_panel="Offline")
@_command
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
    from ..reports.tables import console, print_import
    from ..sim.inspect.census import cannot_run
    from ..sim.result import dump_json
    from ..strategies.grammar import assignments, one_of, yaml_value
    from ..traces.importers.base import GROUP_IDS, LENGTHS, NAN_REWARDS, PURPOSES, ImportOptions
    from ..traces.importers.domains import choose_domains
    from ..traces.importers.importing import import_trace
    from ..traces.store import open_trace

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
    with _progress("import", quiet or json) as tick:
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
        typer.echo(dump_json(record))
        return
    print_import(summary, str(out), lacking, console())


@app.command(rich_help_panel="Offline")
@_command
def compact(
    path: TracePath,
    out: Annotated[Path, typer.Option(help="The trace folder to create.")],
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Copy a trace into few files: the same content and fingerprint, faster to read."""
    from ..sim.result import dump_json
    from ..traces.compact import compact as run
    from ..traces.store import open_trace

    refuse_here(out)
    trace = open_trace(path)
    with _progress("compact", quiet or json) as tick:
        files = run(trace, out, force=force, progress=tick)
    record = {"trace": str(out), "steps": len(trace.manifest.steps), "files": files}
    typer.echo(dump_json(record) if json else f"{out}: {record['steps']} steps in {files} files")


for _panel, _functions in (("Live", live_commands.COMMANDS), *report_commands.PANELS.items()):
    for _function in _functions:
        app.command(rich_help_panel=_panel)(_command(_function))


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


def main() -> None:
    """Entry point of ``dfsim``."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # many small products: threads only wait
    app()


if __name__ == "__main__":
    main()
