"""Builds a ``RolloutBatch`` from columns in any row order, and checks what a batch promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .advantage import AdvantageConfig, advantages
from .batch import FIELDS, RolloutBatch, Strings, is_extra, one_minus_prob_sq
from .errors import TraceError
from .ragged import AnyArray, Float, Int, offsets_of, segment_sum
from .schema import REQUIRED


def from_columns(
    columns: Mapping[str, Any],
    *,
    where: str = "batch",
    domains: tuple[str, ...] | None = None,
    advantage_config: AdvantageConfig | None = None,
    mini_batch_rows: int | None = None,
    loss_scale_factor: float | None = None,
) -> RolloutBatch:
    """Build a batch from columns in any row order.

    Args:
        columns: canonical name → array (N); list columns as a pair (values, lengths (N)).
            ``step`` is one number or an array (N) of it. Names that are not canonical become
            ``extras``.
        where: what errors call the source.
        domains: names for domain codes; default: the sorted names that occur.
        advantage_config: the run's estimator, for recomputing absent advantages.
        mini_batch_rows: configured output rows of a mini-batch, padding included.
        loss_scale_factor: verl's setting of that name.

    Returns:
        The batch, in canonical order.

    Raises:
        TraceError: a required column is missing, a response occurs twice, a group has two
            domains or prompts, or list lengths disagree.

    Example:
        >>> batch = dfsim.from_columns({"step": 1, "group_uid": ["a", "a"], "reward": [1.0, 0.0]})
        >>> dfsim.build("maxvar").decide(batch)
        Decision(1 of 2 responses with weight > 0, mean weight 0.5)
    """
    return _Assembler(columns, where).build(
        domains, advantage_config or AdvantageConfig(), mini_batch_rows, loss_scale_factor
    )


@dataclass(frozen=True, eq=False)
class Runs:
    """A text column as runs of equal values, which is how a sorted trace holds it.

    Attributes:
        values: the value of each run.
        lengths: rows of each run.
    """

    values: Strings
    lengths: Int

    def expand(self) -> Strings:
        """One value a row."""
        return np.repeat(self.values, self.lengths)

    def at(self, rows: Int) -> Strings:
        """Values at the given rows."""
        return self.values[np.searchsorted(np.cumsum(self.lengths), rows, side="right")]

    def starts(self) -> Int:
        """First row of each run."""
        return offsets_of(self.lengths)[:-1]


class _Assembler:
    """Sorts columns into canonical order and checks what a batch promises."""

    def __init__(self, columns: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.columns = dict(columns)
        for name in REQUIRED:
            if name not in self.columns:
                raise TraceError(f"{where}: column '{name}' is missing; every trace needs it")
        given = self.columns["group_uid"]
        runs = given if isinstance(given, Runs) else None
        uid = np.zeros(0, object) if runs is not None else np.asarray(given, dtype=object)
        self.count = len(uid) if runs is None else int(runs.lengths.sum())
        index = self.columns.get("rollout_idx")
        if index is None:
            uid = uid if runs is None else runs.expand()
            index = _position_in_group(uid)
        index = np.asarray(index, dtype=np.int64).view()
        if len(index) != self.count:
            raise TraceError(f"{where}: column 'rollout_idx' has {len(index)} of {self.count} rows")
        if runs is not None:
            starts, uid_G = runs.starts(), runs.values
        else:
            starts = _run_starts(uid)
            uid_G = uid[starts]
        heads = [str(u) for u in uid_G]  # code point order is the order of UTF-8 bytes
        self.order: Int | None = None
        in_order = all(a < b for a, b in pairwise(heads))
        if in_order:
            same_group = np.ones(max(self.count - 1, 0), dtype=bool)
            same_group[starts[1:] - 1] = False
            in_order = bool((np.diff(index)[same_group] > 0).all())
        if not in_order:
            uid = uid if runs is None else runs.expand()
            rank = {name: i for i, name in enumerate(sorted({str(u) for u in uid}))}
            code = np.fromiter((rank[str(u)] for u in uid), np.int64, self.count)
            self.order = np.lexsort((index, code))
            uid, index = uid[self.order], index[self.order]
            starts = _run_starts(uid)
            uid_G = uid[starts]
        self.index = index
        self.offsets = np.concatenate((starts, [self.count])).astype(np.int64)
        self.uid_G = uid_G
        self._refuse_repeats()

    def _refuse_repeats(self) -> None:
        repeat = np.flatnonzero(np.diff(self.index) == 0) + 1
        repeat = repeat[~np.isin(repeat, self.offsets)]
        if len(repeat):
            group = int(np.searchsorted(self.offsets, repeat[0], side="right")) - 1
            raise TraceError(
                f"{self.where}: response rollout_idx={self.index[repeat[0]]} of group "
                f"'{self.uid_G[group]}' occurs twice in one step; drop the copy, or map "
                "output_idx if it is another output of the same session"
            )

    def rows(self, name: str, dtype: Any) -> AnyArray | None:
        value = self.columns.get(name)
        if value is None:
            return None
        array = np.asarray(value, dtype=dtype)
        if len(array) != self.count:
            raise TraceError(f"{self.where}: column '{name}' has {len(array)} of {self.count} rows")
        return array.view() if self.order is None else array[self.order]

    def ragged(self, name: str, dtype: Any, offsets: Int | None) -> tuple[AnyArray | None, Any]:
        """A list column's values in canonical order, and its offsets (checked against given)."""
        pair = self.columns.get(name)
        if pair is None:
            return None, offsets
        values, lengths = np.asarray(pair[0], dtype=dtype), np.asarray(pair[1], dtype=np.int64)
        if len(lengths) != self.count or len(values) != lengths.sum():
            raise TraceError(
                f"{self.where}: column '{name}' has {len(values)} values in {len(lengths)} lists "
                f"of {lengths.sum()} for {self.count} rows"
            )
        if self.order is None:
            values = values.view()
        else:
            starts = offsets_of(lengths)[:-1][self.order]
            lengths = lengths[self.order]
            within = np.arange(lengths.sum()) - np.repeat(offsets_of(lengths)[:-1], lengths)
            values = values[np.repeat(starts, lengths) + within]
        own = offsets_of(lengths)
        if offsets is not None:
            self._refuse_mismatch(name, lengths, "others have", np.diff(offsets))
        return values, own

    def _refuse_mismatch(self, name: str, own: AnyArray, other: str, wanted: AnyArray) -> None:
        differs = np.flatnonzero(own != wanted)
        if len(differs):
            row = int(differs[0])
            group = int(np.searchsorted(self.offsets, row, side="right")) - 1
            raise TraceError(
                f"{self.where}: column '{name}' has {own[row]} where {other} "
                f"{wanted[row]}, in group '{self.uid_G[group]}' rollout_idx={self.index[row]}"
            )

    def per_group(self, name: str) -> AnyArray | None:
        """A text column's value of each group (G), which must be one."""
        runs = self.columns.get(name)
        if isinstance(runs, Runs):
            if self.order is None and np.isin(runs.starts(), self.offsets).all():
                return runs.at(self.offsets[:-1])
            self.columns[name] = runs.expand()
        values = self.rows(name, object)
        if values is None:
            return None
        first = values[self.offsets[:-1]]
        differs = np.flatnonzero(values != np.repeat(first, np.diff(self.offsets)))
        if len(differs):
            group = int(np.searchsorted(self.offsets, differs[0], side="right")) - 1
            raise TraceError(
                f"{self.where}: group '{self.uid_G[group]}' has two values of '{name}' "
                f"({first[group]!r} and {values[differs[0]]!r}); a group is one prompt"
            )
        return first

    def domain_codes(self, domains: tuple[str, ...] | None) -> tuple[tuple[str, ...], Int | None]:
        values = self.per_group("domain")
        if values is None:
            return (), None
        names = domains if domains is not None else tuple(sorted({str(v) for v in values}))
        code = {name: i for i, name in enumerate(names)}
        unknown = {str(v) for v in values} - set(names)
        if unknown:
            raise TraceError(
                f"{self.where}: domain '{min(unknown)}' is not among the domains given: "
                f"{', '.join(names)}"
            )
        code_G = np.fromiter((code[str(v)] for v in values), np.int64, len(values))
        return names, np.repeat(code_G, np.diff(self.offsets))

    def build(
        self,
        domains: tuple[str, ...] | None,
        config: AdvantageConfig,
        mini_batch_rows: int | None,
        loss_scale_factor: float | None,
    ) -> RolloutBatch:
        reward = self.rows("reward", np.float64)
        assert reward is not None
        given: dict[str, Any] = {}
        tokens: Int | None = None
        for name in ("old_log_probs", "rollout_log_probs", "ref_log_probs", "entropy"):
            given[FIELDS[name]], tokens = self.ragged(name, np.float32, tokens)
        given["advantage_T"], tokens = self.ragged("advantages", np.float64, tokens)
        num_tokens = self.rows("num_tokens", np.int64)
        if num_tokens is None and tokens is not None:
            num_tokens = np.diff(tokens)
        outputs: Int | None = None
        for name in ("output_tokens", "mini_batch"):
            given[FIELDS[name]], outputs = self.ragged(name, np.int64, outputs)
        given["output_tokens_O"] = self._output_tokens(given, outputs, num_tokens, tokens)
        sums, outputs = self.ragged("output_one_minus_prob_sq", np.float64, outputs)
        if sums is None:
            sums = self._one_minus_prob_sq(given, tokens, outputs)
        names, codes = self.domain_codes(domains)
        advantage = self.rows("advantage", np.float64)
        if advantage is None:
            advantage = advantages(reward, self.offsets, config)
        extras = {n: self.rows(n, np.float64) for n in self.columns if is_extra(n)}
        prompts = self.per_group("prompt_id")
        return RolloutBatch(
            step=self._step(),
            reward_N=reward,
            advantage_N=advantage,
            group_offsets=self.offsets,
            rollout_idx_N=self.index,
            uid_G=self.uid_G,
            prompt_id_G=None if prompts is None or None in prompts else prompts,
            domains=names,
            domain_N=codes,
            num_tokens_N=num_tokens,
            output_offsets=outputs,
            one_minus_prob_sq_O=sums,
            ref_kl_N=self.rows("ref_kl", np.float64),
            token_offsets=tokens,
            truncated_N=self.rows("truncated", np.int64),
            policy_version_N=self.rows("policy_version_min", np.int64),
            policy_version_max_N=self.rows("policy_version_max", np.int64),
            extras={n: v for n, v in extras.items() if v is not None},
            advantage_config=config,
            mini_batch_rows=mini_batch_rows,
            loss_scale_factor=loss_scale_factor,
            **given,
        )

    def _output_tokens(
        self,
        given: Mapping[str, Any],
        outputs: Int | None,
        num_tokens: AnyArray | None,
        tokens: Int | None,
    ) -> AnyArray | None:
        """Tokens of each output; checks that they, the lists and the lengths add up."""
        found = given["output_tokens_O"]
        if num_tokens is None:
            return found
        if tokens is not None:
            self._refuse_mismatch("num_tokens", num_tokens, "token lists have", np.diff(tokens))
        if found is not None and outputs is not None:
            sums = segment_sum(found, outputs)
            self._refuse_mismatch("output_tokens", sums, "num_tokens has", num_tokens)
        elif outputs is not None:
            ones = np.ones(self.count, dtype=np.int64)
            self._refuse_mismatch(
                "mini_batch", np.diff(outputs), "without output_tokens it has", ones
            )
            found = num_tokens.view()
        return found

    def _step(self) -> int:
        steps = np.unique(np.asarray(self.columns["step"]))
        if len(steps) > 1:
            raise TraceError(f"{self.where}: one batch holds steps {steps[0]} and {steps[1]}")
        return int(steps[0]) if len(steps) else 0

    def _one_minus_prob_sq(
        self, given: Mapping[str, Any], tokens: Int | None, outputs: Int | None
    ) -> Float | None:
        log_prob = given["old_log_prob_T"]
        if log_prob is None or tokens is None:
            single = outputs is None or len(outputs) == outputs[-1] + 1
            return self.rows("one_minus_prob_sq", np.float64) if single else None
        cuts = tokens if outputs is None else offsets_of(given["output_tokens_O"])
        return segment_sum(one_minus_prob_sq(log_prob), cuts)


def _run_starts(values: Strings) -> Int:
    change = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate(([0], change)) if len(values) else change


def _position_in_group(uid: Strings) -> Int:
    """rollout_idx of rows that have none: their order of appearance inside the group."""
    seen: dict[Any, int] = {}
    out = np.empty(len(uid), dtype=np.int64)
    for row, name in enumerate(uid):
        out[row] = seen.get(name, 0)
        seen[name] = out[row] + 1
    return out
