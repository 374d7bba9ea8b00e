"""``RolloutBatch``: the responses of one training step, the only thing a strategy sees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .advantage import AdvantageConfig, live_groups
from .errors import MissingColumnError
from .ragged import AnyArray, Bool, Bucket, Float, Int, buckets, offsets_of, segment_sum
from .schema import COLUMNS, REQUIRED

Strings = NDArray[np.object_]

# What a column of a trace is called here.
FIELDS = {
    "reward": "reward_N",
    "advantage": "advantage_N",
    "num_tokens": "num_tokens_N",
    "domain": "domain_N",
    "prompt_id": "prompt_id_G",
    "truncated": "truncated_N",
    "policy_version_min": "policy_version_N",
    "policy_version_max": "policy_version_max_N",
    "one_minus_prob_sq": "one_minus_prob_sq_O",
    "output_one_minus_prob_sq": "one_minus_prob_sq_O",
    "ref_kl": "ref_kl_N",
    "output_tokens": "output_tokens_O",
    "mini_batch": "mini_batch_O",
    "old_log_probs": "old_log_prob_T",
    "rollout_log_probs": "rollout_log_prob_T",
    "ref_log_probs": "ref_log_prob_T",
    "entropy": "entropy_T",
    "advantages": "advantage_T",
}


def is_extra(name: str) -> bool:
    """Whether a column is a number a response that has no field of its own."""
    column = COLUMNS.get(name)
    if column is None:
        return True
    fixed = name in FIELDS or name in ("step", "rollout_idx", *REQUIRED)
    return column.level == "response" and column.kind != "str" and not fixed


def one_minus_prob_sq(log_prob: AnyArray) -> Float:
    """(1−π)² per token, from float32 log-probs; 0 where a log-prob is NaN or +inf."""
    known = ~np.isnan(log_prob) & (log_prob != np.inf)
    prob = np.exp(np.where(known, log_prob, 0.0).astype(np.float64))
    return np.square(1.0 - prob)


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """One step's responses in canonical order: group_uid bytes, then rollout_idx.

    Suffix letters give shapes: N responses, G prompt groups, O outputs (a session may have
    several), T response tokens with mask 1. A column that is absent is ``None``, never zeros.
    Arrays are read-only. Build one with
    :func:`dfsim.traces.assemble.from_columns`.

    Attributes:
        step: training step.
        reward_N: reward the advantage was computed from; NaN allowed (see ``advantage_N``).
        advantage_N: the run's advantage, or recomputed from rewards where the trace has none.
        group_offsets: cuts (G+1); rows of a group are contiguous.
        rollout_idx_N: index of a response inside its group, ascending.
        uid_G: group uids.
        prompt_id_G: prompt ids, stable across epochs.
        domains: names of D domains; ``domain_N`` holds codes into it. A live step knows only its
            own domains, so a rule must go by names, not codes.
        num_tokens_N: trainable tokens.
        output_offsets: cuts (N+1) of outputs in responses.
        output_tokens_O: trainable tokens of each output.
        mini_batch_O: mini-batch each output row was trained in.
        one_minus_prob_sq_O: Σ (1−π)² over the output's tokens.
        ref_kl_N: Σ k3 KL to the reference over the response's tokens.
        token_offsets: cuts (N+1) of tokens in responses.
        truncated_N: 1 where generation ended at the length limit.
        policy_version_N: oldest policy that wrote a token.
        policy_version_max_N: newest policy that wrote a token.
        extras: further numeric columns under their own names, each (N): the verifier's own,
            ``task_reward`` and others without a field here.
        advantage_config: how the run computes advantages.
        mini_batch_rows: configured output rows of a mini-batch, padding included.
        loss_scale_factor: verl's ``actor.loss_scale_factor``.
    """

    step: int
    reward_N: Float
    advantage_N: Float
    group_offsets: Int
    rollout_idx_N: Int
    uid_G: Strings
    prompt_id_G: Strings | None = None
    domains: tuple[str, ...] = ()
    domain_N: Int | None = None
    num_tokens_N: Int | None = None
    output_offsets: Int | None = None
    output_tokens_O: Int | None = None
    mini_batch_O: Int | None = None
    one_minus_prob_sq_O: Float | None = None
    ref_kl_N: Float | None = None
    token_offsets: Int | None = None
    old_log_prob_T: NDArray[np.float32] | None = None
    rollout_log_prob_T: NDArray[np.float32] | None = None
    ref_log_prob_T: NDArray[np.float32] | None = None
    entropy_T: NDArray[np.float32] | None = None
    advantage_T: Float | None = None
    truncated_N: Int | None = None
    policy_version_N: Int | None = None
    policy_version_max_N: Int | None = None
    extras: Mapping[str, Float] = field(default_factory=dict)
    advantage_config: AdvantageConfig = field(default_factory=AdvantageConfig)
    mini_batch_rows: int | None = None
    loss_scale_factor: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "extras", MappingProxyType(dict(self.extras)))
        for value in [*(getattr(self, f.name) for f in fields(self)), *self.extras.values()]:
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        assert self.group_offsets[-1] == len(self.reward_N)

    def __repr__(self) -> str:
        sizes = np.unique(self.group_size_G)
        size = "–" if not len(sizes) else f"{sizes[0]}" + (f"–{sizes[-1]}" * (len(sizes) > 1))
        arrays = [
            f"{f.name}{list(value.shape)}"
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray)
        ]
        lines = [
            f"RolloutBatch step {self.step}: {self.num_responses} responses in {self.num_groups} "
            f"groups of {size}, {int(self.live_G.sum())} live",
            f"  {', '.join(arrays)}",
        ]
        if self.extras:
            lines.append(f"  extras: {', '.join(self.extras)}")
        if self.domains:
            lines.append(f"  domains: {', '.join(self.domains)}")
        return "\n".join(lines)

    @property
    def num_responses(self) -> int:
        """N."""
        return len(self.reward_N)

    @property
    def num_groups(self) -> int:
        """G."""
        return len(self.group_offsets) - 1

    @cached_property
    def group_size_G(self) -> Int:
        """Responses of each group."""
        return np.diff(self.group_offsets)

    @cached_property
    def group_N(self) -> Int:
        """Index of each response's group."""
        return np.repeat(np.arange(self.num_groups), self.group_size_G)

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        """Groups by size, as (g, n) index matrices."""
        return buckets(self.group_offsets)

    @cached_property
    def live_G(self) -> Bool:
        """Whether a group's rewards differ (max − min above ``REWARD_TOL``)."""
        return live_groups(self.reward_N, self.group_offsets)

    @cached_property
    def domain_G(self) -> Int | None:
        """Domain code of each group."""
        return None if self.domain_N is None else self.domain_N[self.group_offsets[:-1]]

    @cached_property
    def abs_advantage_N(self) -> Float:
        """Mean |A| over the response's tokens (|A| itself where A is one value a response)."""
        if self.advantage_T is None or self.token_offsets is None:
            return np.abs(self.advantage_N)
        sizes = np.diff(self.token_offsets)
        sums = segment_sum(np.abs(self.advantage_T), self.token_offsets)
        return np.where(sizes > 0, sums / np.maximum(sizes, 1), np.abs(self.advantage_N))

    def column(self, name: str, wanted_by: str) -> AnyArray:
        """Return the array of a canonical column or extra.

        Raises:
            TraceError: the batch lacks it; names the asker, the column and the remedy.
        """
        if name in FIELDS:
            value = getattr(self, FIELDS[name])
            if value is not None:
                return value
        elif name in self.extras:
            return self.extras[name]
        raise missing_column(name, wanted_by, self.extras)

    def tie_keys(self, tie_seed: int, groups: Int) -> NDArray[np.uint64]:
        """Order in which the given groups win ties: ascending blake2b-64.

        The key hashes ``tie_seed|step|prompt_id|dup``, where dup ranks the groups of one prompt by
        (sorted rewards, lengths, uid). Without prompt ids the group uid stands in.
        """
        if self.prompt_id_G is None:
            names = [f"{self.uid_G[g]}|0" for g in groups]
        else:
            dup = self._duplicate_rank
            names = [f"{self.prompt_id_G[g]}|{dup[g]}" for g in groups]
        head = f"{tie_seed}|{self.step}|"
        digests = b"".join(
            hashlib.blake2b((head + name).encode(), digest_size=8).digest() for name in names
        )
        return np.frombuffer(digests, dtype=">u8").astype(np.uint64)

    @cached_property
    def _duplicate_rank(self) -> Int:
        assert self.prompt_id_G is not None
        rank = np.zeros(self.num_groups, dtype=np.int64)
        if len(set(self.prompt_id_G)) == self.num_groups:
            return rank
        groups_of: dict[str, list[int]] = {}
        for group, prompt in enumerate(self.prompt_id_G):
            groups_of.setdefault(prompt, []).append(group)
        for groups in groups_of.values():
            if len(groups) > 1:
                for position, group in enumerate(sorted(groups, key=self._content_key)):
                    rank[group] = position
        return rank

    def _content_key(self, group: int) -> tuple[Any, ...]:
        rows = slice(self.group_offsets[group], self.group_offsets[group + 1])
        lengths = () if self.num_tokens_N is None else tuple(self.num_tokens_N[rows].tolist())
        return tuple(sorted(self.reward_N[rows].tolist())), lengths, self.uid_G[group]

    def take(self, keep_N: Bool) -> RolloutBatch:
        """Return the batch of the kept responses only; groups left empty disappear."""
        sizes = segment_sum(keep_N.astype(np.int64), self.group_offsets)
        changes: dict[str, Any] = {"group_offsets": offsets_of(sizes[sizes > 0])}
        cuts = {"T": self.token_offsets, "O": self.output_offsets}
        keep = {"N": keep_N, "G": sizes > 0}
        for letter, offsets in cuts.items():
            if offsets is not None:
                lengths = np.diff(offsets)
                keep[letter] = np.repeat(keep_N, lengths)
                name = "token_offsets" if letter == "T" else "output_offsets"
                changes[name] = offsets_of(lengths[keep_N])
            else:
                keep[letter] = keep_N
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray) and not item.name.endswith("offsets"):
                changes[item.name] = value[keep[item.name[-1]]]
        changes["extras"] = {name: value[keep_N] for name, value in self.extras.items()}
        return replace(self, **changes)


def missing_column(name: str, wanted_by: str, extras: Mapping[str, Any]) -> MissingColumnError:
    """Build the error for a column that a trace lacks."""
    if name in COLUMNS:
        return MissingColumnError(
            wanted_by,
            f"column '{name}' ({COLUMNS[name].help}), which the trace lacks: "
            f"{COLUMNS[name].remedy}",
        )
    have = ", ".join(sorted(extras)) or "none"
    return MissingColumnError(
        wanted_by,
        f"column '{name}', which the trace lacks: numeric extra columns of this trace are {have}",
    )
