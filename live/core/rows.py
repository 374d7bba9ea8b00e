"""Output rows in the trainer's order ↔ responses in canonical order. NumPy only.

The trainer holds R output rows: one per output of an agent-loop session, padding rows among them,
balanced over data-parallel ranks. A ``RolloutBatch`` holds N responses, each a session whose tokens
are its outputs' tokens in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...traces.assemble import from_columns
from ...traces.batch import RolloutBatch
from ...traces.errors import TraceError
from ...traces.ragged import AnyArray, Bool, Int, offsets_of, segment_sum
from ...traces.schema import COLUMNS, NO_DOMAIN

TOKEN_LISTS = ("old_log_probs", "rollout_log_probs", "ref_log_probs", "entropy")
"""Token values that a trace keeps."""


@dataclass(frozen=True, eq=False)
class OutputRows:
    """One step as the trainer holds it.

    Attributes:
        step: the trainer's number of the step.
        keys: ``{uid}_{session}_{output}`` of each row (R).
        is_padding_R: rows that the trainer appended to fill mini-batches.
        offsets: cuts (R+1) of rows in the flat response tokens (F).
        mask_F: response mask after every correction: what the loss trains on.
        advantage_F: advantage of each token.
        reward_R: what the advantage was computed from, summed over the row.
        task_reward_R: the verifier's score, where a KL penalty is in the reward.
        tokens: trace name → token values (F): log-probs, entropy.
        returns_F: return of each token, needed where advantages are replaced.
        is_weight_F: importance weights before dfsim, or ``None``.
        prompt_R: digest of each row's prompt token ids, or ``None``.
        domain_R: domain of each row, or ``None``.
        dataset_row_R: row of the training set, or ``None``.
        mini_batch_R: mini-batch of each row, or ``None`` where rows are shuffled.
        policy_version_min_R: oldest policy that wrote a token, or ``None``.
        policy_version_max_R: newest, or ``None``.
        extras: the verifier's numbers (R).
        texts: ``prompt`` and ``response`` (R), on request.
    """

    step: int
    keys: Sequence[str]
    is_padding_R: Bool
    offsets: Int
    mask_F: Bool
    advantage_F: AnyArray
    reward_R: AnyArray
    task_reward_R: AnyArray | None = None
    tokens: Mapping[str, AnyArray] | None = None
    returns_F: AnyArray | None = None
    is_weight_F: AnyArray | None = None
    prompt_R: AnyArray | None = None
    domain_R: AnyArray | None = None
    dataset_row_R: Int | None = None
    mini_batch_R: Int | None = None
    policy_version_min_R: AnyArray | None = None
    policy_version_max_R: AnyArray | None = None
    extras: Mapping[str, AnyArray] | None = None
    texts: Mapping[str, AnyArray] | None = None


class Responses:
    """A step's responses in canonical order, and the way back to the trainer's rows.

    Args:
        rows: one step.

    Attributes:
        rows: the same.
        order_O: output rows without padding, by uid, session, output.
        outputs_N: outputs of each response.
        flat_T: position in the trainer's flat tokens of each trained token.
    """

    def __init__(self, rows: OutputRows) -> None:
        self.rows = rows
        named = [key_parts(key) for key in rows.keys]
        real = np.flatnonzero(~rows.is_padding_R).tolist()
        if not real:
            raise TraceError(f"step {rows.step}: every row is padding; no response came back")
        real.sort(key=lambda row: named[row])
        self.order_O = np.array(real, dtype=np.int64)
        sessions = [named[row][:2] for row in real]
        first = np.array(
            [i == 0 or sessions[i] != sessions[i - 1] for i in range(len(real))], dtype=bool
        )
        starts = np.flatnonzero(first)
        self.outputs_N = np.diff(np.append(starts, len(real)))
        self._first_O, self._last_O = starts, np.append(starts[1:], len(real)) - 1
        self._uid_N = np.array([sessions[i][0] for i in starts], dtype=object)
        self._session_N = np.array([sessions[i][1] for i in starts], dtype=np.int64)
        lengths = np.diff(rows.offsets)[self.order_O]
        within = np.arange(lengths.sum()) - np.repeat(offsets_of(lengths)[:-1], lengths)
        flat = np.repeat(rows.offsets[:-1][self.order_O], lengths) + within
        kept = rows.mask_F[flat]
        self.flat_T = flat[kept]
        self.output_tokens_O = segment_sum(kept.astype(np.int64), offsets_of(lengths))

    def _first(self, values_R: AnyArray) -> AnyArray:
        return values_R[self.order_O[self._first_O]]

    def _last(self, values_R: AnyArray) -> AnyArray:
        return values_R[self.order_O[self._last_O]]

    @cached_property
    def num_tokens_N(self) -> Int:
        """Trained tokens of each response."""
        return segment_sum(self.output_tokens_O, offsets_of(self.outputs_N))

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Canonical columns, token lists included, as ``from_columns`` takes them."""
        rows = self.rows
        found: dict[str, Any] = {
            "step": rows.step,
            "group_uid": self._uid_N,
            "rollout_idx": self._session_N,
            "reward": self._last(rows.reward_R).astype(np.float64),
            "num_tokens": self.num_tokens_N,
            **self._advantages(),
        }
        if rows.task_reward_R is not None:
            found["task_reward"] = self._last(rows.task_reward_R).astype(np.float64)
        if self.outputs_N.max() > 1 or rows.mini_batch_R is not None:
            found["output_tokens"] = (self.output_tokens_O, self.outputs_N)
        if rows.mini_batch_R is not None:
            found["mini_batch"] = (rows.mini_batch_R[self.order_O], self.outputs_N)
        if rows.prompt_R is not None:
            found["prompt_id"] = self._of_group(rows.prompt_R)
        if rows.domain_R is not None:
            domain = self._of_group(rows.domain_R)
            found["domain"] = np.array([NO_DOMAIN if d is None else str(d) for d in domain], object)
        if rows.dataset_row_R is not None:
            found["dataset_row"] = self._of_group(rows.dataset_row_R)
        for name, extreme in (
            ("policy_version_min", np.minimum),
            ("policy_version_max", np.maximum),
        ):
            values = getattr(rows, f"{name}_R")
            if values is not None:
                found[name] = extreme.reduceat(values[self.order_O], self._first_O)
        for name, values in (rows.tokens or {}).items():
            found[name] = (values[self.flat_T].astype(np.float32), self.num_tokens_N)
        for name, values in (rows.extras or {}).items():
            found[name if name not in COLUMNS else f"verifier_{name}"] = self._last(values)
        if rows.is_weight_F is not None:
            found["is_weight_in"] = self._token_mean(rows.is_weight_F).astype(np.float32)
        return found

    def _advantages(self) -> dict[str, Any]:
        """One advantage a response, or also one a token where they differ inside a response."""
        values = self.rows.advantage_F[self.flat_T].astype(np.float64)
        offsets = offsets_of(self.num_tokens_N)
        has = self.num_tokens_N > 0
        first = np.zeros(len(has))
        first[has] = values[offsets[:-1][has]]
        if np.array_equal(values, np.repeat(first, self.num_tokens_N), equal_nan=True):
            return {"advantage": first}
        return {
            "advantage": self._token_mean(self.rows.advantage_F).astype(np.float64),
            "advantages": (values, self.num_tokens_N),
        }

    def _token_mean(self, values_F: AnyArray) -> AnyArray:
        sums = segment_sum(values_F[self.flat_T].astype(np.float64), offsets_of(self.num_tokens_N))
        return sums / np.maximum(self.num_tokens_N, 1)

    def _of_group(self, values_R: AnyArray) -> AnyArray:
        """The group's value of its first row: later outputs of a session may have grown prompts."""
        values = self._first(values_R)
        starts = np.flatnonzero(np.append(True, self._uid_N[1:] != self._uid_N[:-1]))
        return np.repeat(values[starts], np.diff(np.append(starts, len(values))))

    def texts(self) -> dict[str, AnyArray]:
        """Prompt of the first and response of the last output of each response, where given."""
        given = self.rows.texts or {}
        found = {"prompt": self._first, "response": self._last}
        return {name: found[name](values) for name, values in given.items()}

    def batch(self, **options: Any) -> RolloutBatch:
        """The step as strategies see it; options as of ``from_columns``."""
        batch = from_columns(self.columns, where=f"step {self.rows.step}", **options)
        assert batch.num_responses == len(self.num_tokens_N)
        return batch

    def spread(self, values_T: AnyArray, into_F: AnyArray) -> AnyArray:
        """Copy of the trainer's flat tokens with those that train replaced (T → F), float32."""
        out = np.array(into_F, dtype=np.float32)
        out[self.flat_T] = values_T
        return out


def key_parts(key: str) -> tuple[str, int, int]:
    """Group, session and output of a trajectory ``{uid}_{session}_{output}``."""
    uid, session, output = key.rsplit("_", 2)
    return uid, int(session), int(output)


def prompt_digest(token_ids: AnyArray) -> str:
    """Name of a prompt that is the same in every epoch and run: blake2b-64 of its token ids."""
    raw = np.ascontiguousarray(token_ids, dtype="<i8").tobytes()
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def mini_batches(rows: int, ranks: int, mini_batch_rows: int) -> Int:
    """Mini-batch of each row (R) where the trainer does not shuffle.

    Each of ``ranks`` data-parallel ranks holds a contiguous share and cuts it into mini-batches of
    ``mini_batch_rows / ranks`` rows.
    """
    per_rank = rows // ranks
    return (np.arange(rows) % per_rank) // (mini_batch_rows // ranks)
