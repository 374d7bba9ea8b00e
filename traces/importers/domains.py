"""Domains for rollouts that come without: from a training set, from patterns, or inferred."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ..errors import TraceError
from .base import ImportSummary
from .sources import PLACE, read_chunks

OTHER = "other"
_NAMES = ("domain", "data_source", "ability", "source")
_USER = re.compile(
    r"(?:^|\n)(?:<\|im_start\|>)?user\n(.*?)(?:<\|im_end\|>)?"
    r"(?:\n(?:<\|im_start\|>)?assistant|\Z)",
    re.DOTALL,
)


class Domains:
    """Gives each row a domain by its prompt's text.

    Args:
        lookup: prompt text → domain.
        patterns: (name, pattern) pairs; the first that is found in the prompt wins.
        clusters: number of clusters to infer, after :meth:`fit`.
        seed: of the clustering.
    """

    def __init__(
        self,
        lookup: dict[str, str] | None = None,
        patterns: Sequence[tuple[str, re.Pattern[str]]] = (),
        clusters: int | None = None,
        seed: int = 0,
    ) -> None:
        self._lookup, self._patterns, self._clusters, self._seed = lookup, patterns, clusters, seed
        self._found: dict[str, str | None] = {}

    @property
    def needs_fit(self) -> bool:
        """Whether all prompts must be seen first."""
        return self._clusters is not None

    def fit(self, prompts: Iterable[str], summary: ImportSummary) -> None:
        """Cluster the distinct prompts: TF-IDF of words, then KMeans (scikit-learn)."""
        from sklearn.cluster import KMeans
        from sklearn.feature_extraction.text import TfidfVectorizer

        assert self._clusters is not None
        texts = sorted(set(prompts))
        if len(texts) < self._clusters:
            raise TraceError(
                f"--domain-clusters {self._clusters}: there are only {len(texts)} distinct prompts"
            )
        vectors = TfidfVectorizer(max_features=20_000, sublinear_tf=True, token_pattern=r"\S+")
        try:
            matrix = vectors.fit_transform([_question(t) for t in texts])
        except ValueError:
            raise TraceError("--domain-clusters: the prompts hold no words") from None
        means = KMeans(self._clusters, n_init=4, random_state=self._seed).fit(matrix)
        words = vectors.get_feature_names_out()
        names = []
        for number, centre in enumerate(means.cluster_centers_, start=1):
            top = " ".join(words[i] for i in centre.argsort()[::-1][:2])
            names.append(f"inferred-{number} ({top})")
        self._found = {t: names[label] for t, label in zip(texts, means.labels_, strict=True)}
        summary.note(
            f"Domains were inferred: {self._clusters} clusters of prompts by their words, each "
            "named by its two weightiest. Look at them before trusting a number per domain."
        )

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the column ``domain``; a prompt that nothing matches gets ``other``."""
        if "prompt" not in frame.columns:
            raise TraceError("domains are told by the prompt; name its text: --map prompt=COLUMN")
        texts = prompt_texts(frame["prompt"])
        for text in set(texts) - self._found.keys():
            self._found[text] = self._of(text)
        names = [self._found[t] or OTHER for t in texts]
        return frame.with_columns(pl.Series("domain", names, dtype=pl.String))

    def report(self, summary: ImportSummary) -> None:
        """Say what share of the prompts was matched."""
        if self.needs_fit or not self._found:
            return
        matched = sum(name is not None for name in self._found.values())
        how = "the training set" if self._lookup is not None else "a pattern"
        summary.note(
            f"Domains: {matched:,} of {len(self._found):,} prompts "
            f"({matched / len(self._found):.0%}) match {how}; the rest are '{OTHER}'."
        )

    def _of(self, text: str) -> str | None:
        if self._lookup is not None:
            for key in (text, _question(text)):
                if (name := self._lookup.get(_normal(key))) is not None:
                    return name
            return None
        for name, pattern in self._patterns:
            if pattern.search(text):
                return name
        return None


def choose_domains(
    training_set: Path | None, patterns: Sequence[tuple[str, str]], clusters: int | None
) -> Domains | None:
    """Domains by at most one of the three ways.

    Raises:
        TraceError: more than one way is given, or one of them can't be used.
    """
    ways = [w for w in (training_set, patterns, clusters) if w]
    if len(ways) > 1:
        raise TraceError("give one of --domains-from, --domain-regex and --domain-clusters")
    if training_set is not None:
        return from_training_set(training_set)
    if patterns:
        return from_patterns(patterns)
    return None if clusters is None else Domains(clusters=clusters)


def from_training_set(path: Path) -> Domains:
    """Look prompts up in a training set: Parquet or JSONL with a prompt and a domain column.

    The prompt is text or chat messages (their last user turn counts); the domain is the first of
    ``domain``, ``data_source``, ``ability``, ``source``.

    Raises:
        TraceError: the file or one of the columns is missing.
    """
    if not path.is_file():
        raise TraceError(f"--domains-from {path} does not exist")
    lookup: dict[str, str] = {}
    for chunk in read_chunks(path):
        frame = chunk.frame
        domain = next((n for n in _NAMES if n in frame.columns), None)
        prompt = next((n for n in ("prompt", "input", "question") if n in frame.columns), None)
        if domain is None or prompt is None:
            have = ", ".join(n for n in frame.columns if n != PLACE)
            raise TraceError(
                f"--domains-from {path} needs a prompt and a domain column (domain, data_source, "
                f"ability or source); it has: {have}"
            )
        for text, name in zip(frame[prompt].to_list(), frame[domain].to_list(), strict=True):
            if name is not None:
                lookup[_normal(_content(text))] = str(name)
    return Domains(lookup=lookup)


def from_patterns(items: Iterable[tuple[str, str]]) -> Domains:
    """Match prompts against ``NAME=RE`` pairs.

    Raises:
        TraceError: a pattern is no regular expression.
    """
    patterns = []
    for name, text in items:
        try:
            patterns.append((name, re.compile(text)))
        except re.error as error:
            raise TraceError(f"--domain-regex {name}={text}: {error}") from None
    return Domains(patterns=patterns)


def prompt_texts(prompts: pl.Series) -> list[str]:
    """Text of each prompt; empty where there is none."""
    return ["" if p is None else _content(p) for p in prompts.to_list()]


def _content(prompt: Any) -> str:
    """Text of a prompt; of chat messages the last user turn."""
    if isinstance(prompt, list):
        turns = [m for m in prompt if isinstance(m, dict) and m.get("role") == "user"]
        return str(turns[-1].get("content", "")) if turns else str(prompt)
    return str(prompt)


def _question(text: str) -> str:
    """The last user turn of a rendered chat template, or the whole text."""
    turns = _USER.findall(text)
    return turns[-1] if turns else text


def _normal(text: str) -> str:
    return " ".join(text.split())
