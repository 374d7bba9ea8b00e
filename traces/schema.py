"""Columns of a trace: name, type, unit, and what to do when one is missing.

One row is one response (one agent-loop session). Lists per *output* describe the outputs of a
session in order; lists per *token* hold response tokens with mask 1 only, the outputs' tokens in
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TRACE_VERSION = 1

Level = Literal["response", "output", "token"]
Kind = Literal["int", "float64", "float32", "str"]


@dataclass(frozen=True)
class Column:
    """One canonical column.

    Attributes:
        name: canonical name, as in a trace and in ``--map name=column``.
        kind: value type; rewards and advantages are float64, log-probs float32.
        level: one value a response, or a list with one value an output or a token.
        help: meaning and unit.
        remedy: how a user gets it; completes "… is missing: ".
    """

    name: str
    kind: Kind
    level: Level
    help: str
    remedy: str = ""


_MAP = "import it with --map {0}=YOUR_COLUMN"
_TOKENS = "capture with token lists, or import them with --map {0}=YOUR_COLUMN"
_LENGTHS = "import with --map num_tokens=YOUR_COLUMN, --tokenizer FILE or --length chars"


def _column(name: str, kind: Kind, level: Level, help: str, remedy: str = _MAP) -> Column:
    return Column(name, kind, level, help, remedy.format(name))


COLUMNS: dict[str, Column] = {
    c.name: c
    for c in (
        _column("step", "int", "response", "training step"),
        _column("group_uid", "str", "response", "the prompt group a response was drawn in"),
        _column("rollout_idx", "int", "response", "index of the response inside its group"),
        _column("reward", "float64", "response", "what the advantage was computed from"),
        _column("task_reward", "float64", "response", "verifier's score before a KL penalty"),
        _column("prompt_id", "str", "response", "the prompt, stable across epochs"),
        _column("domain", "str", "response", "domain of the prompt"),
        _column("split", "str", "response", "data split of the prompt"),
        _column("dataset_row", "int", "response", "row of the training set, for samplers"),
        _column("advantage", "float64", "response", "advantage before any replacement"),
        _column("advantage_applied", "float64", "response", "advantage after a replacement"),
        _column("weight", "float32", "response", "weight a live run applied"),
        _column("is_weight_in", "float32", "response", "rollout_is_weights before dfsim"),
        _column("num_tokens", "int", "response", "trainable tokens of the response", _LENGTHS),
        _column("finish_reason", "str", "response", "why generation ended"),
        _column("truncated", "int", "response", "1 where generation ended at the length limit"),
        _column("policy_version_min", "int", "response", "oldest policy that wrote a token"),
        _column("policy_version_max", "int", "response", "newest policy that wrote a token"),
        _column("prompt", "str", "response", "prompt text"),
        _column("response", "str", "response", "response text"),
        _column(
            "one_minus_prob_sq", "float64", "response", "Σ over tokens of (1−π)²; stored, derived"
        ),
        _column("ref_kl", "float64", "response", "Σ over tokens of the k3 KL to the reference"),
        _column("output_tokens", "int", "output", "trainable tokens of each output"),
        _column("mini_batch", "int", "output", "mini-batch each output row was trained in"),
        _column(
            "output_one_minus_prob_sq", "float64", "output", "Σ of (1−π)² of each output; derived"
        ),
        _column("old_log_probs", "float32", "token", "log-prob under the policy", _TOKENS),
        _column("rollout_log_probs", "float32", "token", "log-prob under the sampler", _TOKENS),
        _column("ref_log_probs", "float32", "token", "log-prob under the reference", _TOKENS),
        _column("entropy", "float32", "token", "entropy of the next-token distribution", _TOKENS),
        _column("advantages", "float64", "token", "advantage per token, not one a response"),
        _column("token_weight", "float32", "token", "weight per token a live run applied"),
    )
}

REQUIRED = ("step", "group_uid", "reward")

TOKEN_COLUMNS = tuple(c.name for c in COLUMNS.values() if c.level == "token")
OUTPUT_COLUMNS = tuple(c.name for c in COLUMNS.values() if c.level == "output")

WHOLE = (
    *("step", "group_uid", "rollout_idx", "advantage", "num_tokens"),
    *OUTPUT_COLUMNS,
    *TOKEN_COLUMNS,
)
"""Columns with a value for every response of a step, or for none."""

NO_DOMAIN = "unlabelled"
"""Domain of a response without one, where others have one."""
