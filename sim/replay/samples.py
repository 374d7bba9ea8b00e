"""Captured text for a page: rewards by prompt, and responses to read beside their weights.

Prompts are drawn by the hash of what identifies them, smallest first: a random sample that one pass
finds, each of its prompts followed from its first visit on, in memory of the sample alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from ...strategies.base import Decision
from ...traces.batch import RolloutBatch
from ...traces.findings import plain

if TYPE_CHECKING:
    import polars as pl

    from ...traces.storage.store import Trace

PROMPTS = 50
SAMPLES = 5
CHARACTERS = 2000


def has_text(trace: Trace) -> bool:
    """Whether prompts or responses were captured as text."""
    return "prompt" in trace.columns or "response" in trace.columns


@dataclass
class _Rewards:
    """Sum and count of the finite rewards of a visit, or of all."""

    total: float = 0.0
    count: int = 0

    def add(self, rewards: Any) -> None:
        known = rewards[np.isfinite(rewards)]
        self.total += float(known.sum())
        self.count += len(known)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass
class _Prompt:
    id: str | None
    text: dict[str, Any] | None
    domain: str | None
    visits: int = 0
    responses: int = 0
    last_step: int = 0
    all: _Rewards = field(default_factory=_Rewards)
    first: _Rewards = field(default_factory=_Rewards)
    last: _Rewards = field(default_factory=_Rewards)

    def visit(self, step: int, rewards: Any) -> None:
        """Add a group; groups of one step are one visit."""
        if not self.visits or step != self.last_step:
            self.visits += 1
            self.last_step, self.last = step, _Rewards()
        for sums in (self.all, self.last, *([self.first] if self.visits == 1 else [])):
            sums.add(rewards)
        self.responses += len(rewards)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "text": self.text,
            "domain": self.domain,
            "visits": self.visits,
            "responses": self.responses,
            "mean_reward": self.all.mean,
            "first_visit": self.first.mean,
            "last_visit": self.last.mean,
        }


@dataclass(frozen=True)
class _Group:
    """One group of a step, and the hash by which its prompt is drawn."""

    key: bytes
    id: str | None
    text: str | None
    domain: str | None
    first: int
    rewards: Any

    @classmethod
    def of(cls, batch: RolloutBatch, frame: pl.DataFrame, index: int) -> _Group:
        first, end = batch.group_offsets[index : index + 2].tolist()
        assert frame["group_uid"][first] == batch.uid_G[index]
        text, id = (
            frame[name][first] if name in frame.columns else None
            for name in ("prompt", "prompt_id")
        )
        domain = None if batch.domain_G is None else batch.domains[batch.domain_G[index]]
        name = id or text or str(batch.uid_G[index])
        key = blake2b(name.encode("utf-8", "replace"), digest_size=8).digest()
        return cls(key, id, text, domain, first, batch.reward_N[first:end])


class TextSamples:
    """Watches a replay, step by step, and keeps what a page shows of the text.

    Args:
        trace: with text; its text is read in step with the replay.
        prompts: prompts to keep at most.
        samples: of them with differing rewards, those to show responses of.
        characters: of a text to keep at most.
    """

    def __init__(
        self,
        trace: Trace,
        prompts: int = PROMPTS,
        samples: int = SAMPLES,
        characters: int = CHARACTERS,
    ) -> None:
        self._frames = trace.frames(["prompt", "response", "prompt_id"])
        self._limits = {"prompts": prompts, "samples": samples, "characters": characters}
        self._prompts: dict[bytes, _Prompt] = {}
        self._samples: dict[bytes, dict[str, Any]] = {}
        self._more = False
        self._binary = True

    def __call__(self, batch: RolloutBatch, decisions: Mapping[str, Decision]) -> None:
        """Take in one step, its decisions beside it."""
        entry, frame = next(self._frames)
        assert entry.step == batch.step
        assert frame.height == batch.num_responses
        known = batch.reward_N[np.isfinite(batch.reward_N)]
        self._binary = self._binary and bool(np.isin(known, (0.0, 1.0)).all())
        for index in range(batch.num_groups):
            group = _Group.of(batch, frame, index)
            self._visit(group, batch)
            known = group.rewards[np.isfinite(group.rewards)]
            if len(known) and known.max() > known.min():
                self._sample(group, batch, decisions, frame)

    def _visit(self, group: _Group, batch: RolloutBatch) -> None:
        prompt = self._prompts.get(group.key)
        if prompt is None:
            text = self._cut(group.text)
            prompt = self._prompts[group.key] = _Prompt(group.id, text, group.domain)
            self._more |= _keep_smallest(self._prompts, self._limits["prompts"])
        prompt.visit(batch.step, group.rewards)

    def _sample(
        self,
        group: _Group,
        batch: RolloutBatch,
        decisions: Mapping[str, Decision],
        frame: pl.DataFrame,
    ) -> None:
        """Keep the latest visit of a prompt whose responses differ."""
        if len(self._samples) == self._limits["samples"] and group.key > max(self._samples):
            return
        best, worst = np.nanargmax(group.rewards), np.nanargmin(group.rewards)
        texts = frame["response"] if "response" in frame.columns else None
        self._samples[group.key] = {
            "id": group.id,
            "step": batch.step,
            "prompt": self._cut(group.text),
            "responses": [
                {
                    "text": None if texts is None else self._cut(texts[i]),
                    "reward": plain(float(batch.reward_N[i])),
                    "advantage": plain(float(batch.advantage_N[i])),
                    "weights": {n: float(d.weight_N[i]) for n, d in decisions.items()},
                }
                for i in (group.first + int(best), group.first + int(worst))
            ],
        }
        _keep_smallest(self._samples, self._limits["samples"])

    def _cut(self, text: str | None) -> dict[str, Any] | None:
        """As much of a text as is kept, and its whole length."""
        if text is None:
            return None
        return {"shown": text[: self._limits["characters"]], "characters": len(text)}

    def to_dict(self) -> dict[str, Any]:
        """As JSON, in the order of the hashes: the same trace gives the same sample."""
        return {
            "limits": self._limits,
            "more_prompts": self._more,
            "binary_rewards": self._binary,
            "prompts": [self._prompts[key].to_dict() for key in sorted(self._prompts)],
            "samples": [self._samples[key] for key in sorted(self._samples)],
        }


def _keep_smallest(held: dict[bytes, Any], limit: int) -> bool:
    """Drop the largest key of one too many; whether one was dropped."""
    if len(held) <= limit:
        return False
    del held[max(held)]
    return True
