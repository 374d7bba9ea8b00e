"""Benchmarks known by name: their domains, and sub-averages that papers report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType

DOMAINS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "math": (
            *("math", "math500", "math_500", "hendrycks_math*", "gsm8k*", "aime*", "amc*", "hmmt*"),
            *("minerva", "minerva_math*", "olympiadbench*", "olympiad_bench*", "omni_math*"),
        ),
        "logic": ("kk", "kk_*", "knights_*", "bbh", "bbh_*", "zebra*", "zebra_logic*"),
        "science": ("gpqa*", "mmlu_pro_*", "supergpqa*", "scibench*", "sciq"),
        "code": (
            *("humaneval*", "mbpp*", "livecodebench*", "lcb", "lcb_*", "bigcodebench*"),
            *("codeforces*", "codecontests*"),
        ),
    }
)
"""Domain → patterns of normalised benchmark names."""

SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "DataFlex-RL's six": (
            *("math500", "aime24", "olympiadbench", "minerva_math", "gsm8k", "gpqa_diamond"),
        )
    }
)
"""Published sub-averages: the plain mean over these benchmarks."""


def parts(metric: str) -> list[str]:
    """Normalised segments of a metric's name, the last first.

    ``val-core/openai/GSM8K/acc/mean@1`` has ``mean@1, acc, gsm8k, openai, val_core``.
    """
    return [re.sub(r"[\s.\-]+", "_", p.strip().lower()) for p in reversed(metric.split("/"))]


def domain_of(metric: str) -> str | None:
    """The domain of a well-known benchmark, or ``None``."""
    for part in parts(metric):
        for domain, patterns in DOMAINS.items():
            if any(fnmatchcase(part, pattern) for pattern in patterns):
                return domain
    return None


def known_domains(metrics: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Domain → metrics, if every metric is known and there are two domains; else empty."""
    found: dict[str, list[str]] = {}
    for metric in metrics:
        domain = domain_of(metric)
        if domain is None:
            return {}
        found.setdefault(domain, []).append(metric)
    return {d: tuple(m) for d, m in found.items()} if len(found) > 1 else {}


def known_suites(metrics: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Suite → metrics, for every suite that a table holds whole, and more than it."""
    found = {}
    for name, members in SUITES.items():
        own = [[m for m in metrics if member in parts(m)] for member in members]
        if all(len(m) == 1 for m in own) and len(members) < len(metrics):
            found[name] = tuple(m[0] for m in own)
    return found
