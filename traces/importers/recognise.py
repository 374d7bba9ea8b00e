"""What a file is that no importer reads, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import TraceError, nearest
from ..schema import REQUIRED
from .base import Sample

_POLARS = (
    "Convert it: import polars as pl; pl.DataFrame(rows, schema=['step', 'group_uid', "
    "'rollout_idx', 'reward'], orient='row').write_parquet('flat.parquet'), then dfsim import "
    "flat.parquet --out TRACE"
)


def _has(*names: str) -> Callable[[Sample], bool]:
    return lambda sample: set(names) <= sample.columns


def _slashes(sample: Sample) -> bool:
    return sum("/" in name for name in sample.columns) >= 2


def _runs(sample: Sample) -> bool:
    return {"method", "seed"} <= sample.columns or {"run_id", "seed"} <= sample.columns


KNOWN: tuple[tuple[Callable[[Sample], bool], str], ...] = (
    (
        _has("input", "output", "score", "uid"),
        "a verl dump whose uid is no trajectory key UID_SESSION_OUTPUT. If it names the prompt "
        "group, import with --format flat --map group_uid=uid --map reward=score --map "
        "prompt=input --map response=output",
    ),
    (
        _has("responses_create_params", "reward"),
        "NeMo-Gym rollouts: rewards, but no training step, and groups only as _ng_task_index. "
        f"Write step (0), group_uid (the task) and reward yourself. {_POLARS}",
    ),
    (
        _has("responses_create_params"),
        "NeMo-Gym rows without a reward: prompts, not scored rollouts. Collect rollouts first "
        "(ng_collect_rollouts writes reward and _ng_task_index)",
    ),
    (
        _has("step", "data"),
        "verl's metric log, scalars of a run. Rollouts come with trainer.rollout_data_dir=DIR",
    ),
    (
        _has("content", "rewards", "generation_logprobs"),
        "a NeMo-RL train_data_step file: its values are lists of one, in blocks of "
        f"num_generations_per_prompt without a group id. {_POLARS}",
    ),
    (
        _has("prompt_idx", "reward", "response_tokens"),
        "open-instruct rollouts. Import them with --format flat --map group_uid=prompt_idx --map "
        "rollout_idx=sample_idx --map old_log_probs=logprobs",
    ),
    (
        _has("global_step", "scores", "responses"),
        f"a ROLL rollout dump: one line is a dict of columns. Explode it first. {_POLARS}",
    ),
    (
        _has("task_id", "sample_idx", "seqlen", "reward"),
        "AReaL rollouts. Import them with --format flat --map group_uid=task_id --map "
        "rollout_idx=sample_idx --map step=head_version --map response=completion (its seqlen "
        "counts the prompt too: measure lengths with --tokenizer FILE)",
    ),
    (
        _has("group", "traces", "task"),
        f"prime-rl episodes: rewards lie in traces[].rewards. Flatten them first. {_POLARS}",
    ),
    (
        _has("example_id", "prompt", "completion", "reward"),
        "verifiers results: an evaluation without training steps. Import them with --format flat "
        "--map group_uid=example_id after adding a column step",
    ),
    (
        _has("iteration", "group_idx", "traj_idx", "total_reward"),
        "tinker-cookbook summaries. Import them with --format flat --map step=iteration --map "
        "group_uid=group_idx --map rollout_idx=traj_idx --map reward=total_reward",
    ),
    (
        _has("_step", "_runtime"),
        "a wandb export: one row a step of scalars, no rollouts. In verl set "
        "trainer.rollout_data_dir=DIR, in TRL log_completions=True, and import that folder",
    ),
    (
        _runs,
        "a table of finished runs, one row a run, not rollouts: nothing in it can be replayed; "
        "dfsim compare judges it",
    ),
    (
        _slashes,
        "a metric log, one row a step of scalars, no rollouts. In verl set "
        "trainer.rollout_data_dir=DIR, in TRL log_completions=True, and import that folder",
    ),
)


_BINARY = {
    ".pt": "a torch pickle (verl's tq_batch.pt, slime's debug dumps)",
    ".pth": "a torch pickle",
    ".pkl": "a pickle (SkyRL's training inputs)",
    ".dp": "a pickle (verl's gen_batch.dp)",
}


def explain_file(source: Path) -> None:
    """Refuse files that only running their code would read.

    Raises:
        TraceError: the source is a pickle, or a folder of nothing else.
    """
    files = [source] if source.is_file() else sorted(source.glob("*"))
    kinds = {_BINARY.get(p.suffix.lower()) for p in files}
    what = kinds.pop() if len(kinds) == 1 else None
    if what is not None:
        raise TraceError(
            f"{source} is {what}: reading it runs code, so dfsim does not. Load it in its own "
            "environment and write step, group_uid, rollout_idx and reward to JSONL or Parquet"
        )


def explain(path: Path, sample: Sample) -> str:
    """One line: what the file is, and the capture setting or conversion that would work."""
    for matches, text in KNOWN:
        if matches(sample):
            return f"{path} is {text}"
    have = ", ".join(sorted(sample.columns)[:12])
    lacks = [f"'{n}'{nearest(n, sample.columns)}" for n in REQUIRED if n not in sample.columns]
    return (
        f"{path} is none of the formats dfsim knows; as plain rollouts it has no column "
        f"{', '.join(lacks)}. If it holds rollouts, name their columns: --map reward=COLUMN. It "
        f"has: {have}"
    )
