"""What a file is that no importer reads, and the command that would."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from ..errors import TraceError
from ..schema import REQUIRED
from .base import ImportOptions
from .conventions import named, remedy_for, step_of
from .formats.base import POLARS, Hint, has, maps
from .sources import Sample


def _slashes(sample: Sample) -> bool:
    return sum("/" in name for name in sample.columns) >= 2


def _runs(sample: Sample) -> bool:
    return {"method", "seed"} <= sample.columns or {"run_id", "seed"} <= sample.columns


OTHER_KINDS: tuple[Hint, ...] = (
    Hint(
        has("responses_create_params", "reward", "_ng_task_index"),
        "NeMo-Gym rollouts: rewards of one collection, without training steps; as one step:",
        (
            *("--format", "flat", "--step", "0"),
            *maps(group_uid="_ng_task_index", rollout_idx="_ng_rollout_index"),
        ),
    ),
    Hint(
        has("responses_create_params", "reward"),
        "NeMo-Gym rollouts: rewards, but no training step and no _ng_task_index, so no groups. "
        f"Write step (0), group_uid (the task) and reward yourself. {POLARS}",
    ),
    Hint(
        has("responses_create_params"),
        "NeMo-Gym rows without a reward: prompts, not scored rollouts. Collect rollouts first "
        "(ng_collect_rollouts writes reward and _ng_task_index)",
    ),
    Hint(
        has("content", "rewards", "generation_logprobs"),
        "a NeMo-RL train_data_step file: its values are lists of one, in blocks of "
        f"num_generations_per_prompt without a group id. {POLARS}",
    ),
    Hint(
        has("global_step", "scores", "responses"),
        f"a ROLL rollout dump: one line is a dict of columns. Explode it first. {POLARS}",
    ),
    Hint(
        has("group_id", "rollout_id", "reward_breakdown"),
        "torchtitan rollout samples: the best and the worst response of each group only. Rows "
        "chosen by outcome are no sample of what the policy does, so nothing can be replayed; log "
        "all rollouts",
    ),
    Hint(
        has("example_id", "prompt", "completion", "reward"),
        "verifiers results: an evaluation without training steps; as one step:",
        (
            *("--format", "flat", "--step", "0", "--purpose", "evaluation"),
            *maps(group_uid="example_id", response="completion"),
        ),
    ),
    Hint(
        has("input_prompt", "output_response", "score", "env_class"),
        "a SkyRL evaluation dump: its responses never trained. Nothing of it is screened or mixed; "
        "SkyRL keeps training rollouts in pickles (dump_data_batch)",
    ),
    Hint(
        has("_step", "_runtime"),
        "a wandb export: one row a step of scalars, no rollouts. In verl set "
        "trainer.rollout_data_dir=DIR, in TRL log_completions=True, and import that folder",
    ),
    Hint(
        _runs,
        "a table of finished runs, one row a run, not rollouts: nothing in it can be replayed; "
        "dfsim compare judges it",
    ),
    Hint(
        _slashes,
        "a metric log, one row a step of scalars, no rollouts. In verl set "
        "trainer.rollout_data_dir=DIR, in TRL log_completions=True, and import that folder",
    ),
)


_UNREAD = {
    ".pt": "a torch pickle (verl's tq_batch.pt, slime's debug dumps)",
    ".pth": "a torch pickle",
    ".pkl": "a pickle (SkyRL's training inputs)",
    ".dp": "a pickle (verl's gen_batch.dp)",
}
_PICKLE = (
    "reading it runs code, so dfsim does not. Load it in its own environment and write step, "
    "group_uid, rollout_idx and reward to JSONL or Parquet"
)
_NAMED = {
    "trainer_state.json": "transformers' log of metrics, one record a step, without rollouts: in "
    "TRL log_completions=True writes completions/ beside it; import that folder",
}
_ENDINGS = {
    ".eval": "a log of inspect-ai, an evaluation: its samples never trained. Its samples as a "
    "table: inspect_ai.analysis.samples_df(LOG), which dfsim imports as one step with --step 0 "
    "--purpose evaluation and the names of its columns",
    ".gz": "compressed: unpack it first, gunzip -k FILE",
    ".zst": "compressed: unpack it first, zstd -d FILE",
    ".zip": "compressed: unpack it first, unzip FILE",
    ".json": "one JSON value, where rollouts are one JSON object a line (.jsonl). Convert it: "
    "import polars as pl; pl.read_json(FILE).write_ndjson('rows.jsonl')",
}


def explain_file(source: Path) -> None:
    """Refuse files by what their names say, with the way on.

    Raises:
        TraceError: the source is a pickle or a folder of nothing else, or of a kind that holds no
            rows.
    """
    files = [source] if source.is_file() else sorted(source.glob("*"))
    kinds = {_UNREAD.get(p.suffix.lower()) for p in files}
    what = kinds.pop() if len(kinds) == 1 else None
    if what is not None:
        raise TraceError(f"{source} is {what}: {_PICKLE}")
    if source.is_file():
        ending = _ENDINGS.get(source.suffix.lower())
        about = next((text for end, text in _NAMED.items() if source.name.endswith(end)), ending)
        if about is not None:
            raise TraceError(f"{source} is {about}")


def explain(
    sample: Sample, source: Path, options: ImportOptions, near_misses: Iterable[Hint]
) -> str:
    """One line: what the source is, and the command or conversion that would work.

    Args:
        sample: its first rows.
        source: as the user named it.
        options: as the user gave them; columns that they name are not asked for again.
        near_misses: the hints of the formats.
    """
    for hint in (*near_misses, *OTHER_KINDS):
        if hint.matches(sample):
            return _told(f"{sample.path} is {hint.about}", source, hint.recipe)
    given = {name: c for name, c in options.columns.items() if c in sample.columns}
    recipe = _by_meaning(sample, given, options)
    if recipe is not None:
        return _told(f"{sample.path} seems to hold rollouts under other names:", source, recipe)
    have = ", ".join(sorted(sample.columns)[:20])
    wanted = [n for n in REQUIRED if n not in sample.columns and n not in given]
    if "step" in wanted and (options.step is not None or step_of(sample.path) is not None):
        wanted.remove("step")
    remedies = "; ".join(f"'{n}': {remedy_for(n, sample.columns)}" for n in wanted)
    return (
        f"{sample.path} is none of the formats dfsim knows; as plain rollouts it lacks columns. "
        f"{remedies}. It has: {have}"
    )


def _told(text: str, source: Path, recipe: Sequence[str]) -> str:
    if not recipe:
        return text
    return f"{text} {shlex.join(['dfsim', 'import', str(source), *recipe, '--out', 'TRACE'])}"


_ASKED = ("step", "group_uid", "rollout_idx", "reward", "advantage", "num_tokens", "domain")
_NUMBERS = ("step", "rollout_idx", "reward", "advantage", "num_tokens")


def _by_meaning(
    sample: Sample, given: Mapping[str, str], options: ImportOptions
) -> tuple[str, ...] | None:
    """Options that read a file whose columns mean what a trace needs, by their names."""
    chosen = dict(given)
    for name in _ASKED:
        if name in chosen or name in sample.columns:
            continue
        for column in named(name, sample.columns - set(chosen.values())):
            if _fits(name, column, sample, chosen):
                chosen[name] = column
                break
    if not all(n in chosen or n in sample.columns for n in ("group_uid", "reward")):
        return None
    recipe: list[str] = []
    if "step" not in chosen and "step" not in sample.columns:
        if step_of(sample.path.absolute()) is None:
            recipe += ["--step", str(options.step or 0)]
    elif options.step is not None:
        recipe += ["--step", str(options.step)]
    if options.purpose != "auto":
        recipe += ["--purpose", options.purpose]
    return ("--format", "flat", *recipe, *maps(**chosen))


def _fits(name: str, column: str, sample: Sample, chosen: Mapping[str, str]) -> bool:
    """Whether a column's values can be what its name says."""
    series = sample.frame[column]
    if name in _NUMBERS:
        if series.dtype == pl.Boolean:
            return name == "reward"
        if not series.dtype.is_numeric() or series.null_count():
            return False
        whole = bool((series.cast(pl.Float64) % 1 == 0).all())
        return whole or name in ("reward", "advantage")
    if name == "domain":
        return series.dtype == pl.String and series.n_unique() <= max(len(series) // 4, 1)
    if name == "group_uid":
        keys = pl.DataFrame({"group": _keys(series)})
        step = chosen.get("step", "step")
        if step in sample.columns:
            keys = keys.with_columns(step=_keys(sample.frame[step]))
        sizes = keys.group_by(keys.columns).len()["len"]
        prompts = [c for c in named("prompt", sample.columns) if c != column]
        if prompts and sizes.max() != 1:
            pairs = keys.with_columns(prompt=_keys(sample.frame[prompts[0]]))
            if pairs.unique().height > keys.unique().height:
                return False
        return bool(sizes.max() != 1)
    return True


def _keys(series: pl.Series) -> pl.Series:
    """Values as text, nested ones too."""
    return pl.Series([str(v) for v in series.to_list()], dtype=pl.String)
