"""Findings as a page shows them: what stands out, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..sim.result import Diagnosis
from .html import Finding, Findings

REMEDIES: Mapping[str, str] = {
    "no_op": "Change its parameters until it acts, or train without it.",
    "one_sided": "Keep both signs of a group, or take a variant that re-normalises advantages "
    "inside the kept subset.",
    "tie_break": "Try other values of --tie-seed before crediting the rule; a finer reward breaks "
    "ties by itself.",
}
"""What to do about findings whose message ends with what is the case."""


def found_of(name: str, diagnosis: Sequence[Diagnosis], text: str = "") -> Findings:
    """Findings of a strategy or mixer, with what to do where the message does not say it.

    Args:
        name: of the strategy or mixer.
        diagnosis: its findings.
        text: a sentence to add.
    """
    items = [Finding(d.name, d.message, REMEDIES.get(d.name, "")) for d in diagnosis]
    return Findings(name, items, text)
