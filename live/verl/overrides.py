"""dfsim's settings as overrides on verl's Hydra command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...strategies.grammar import assignments, yaml_value
from ...strategies.spec import Spec


def dfsim_overrides(
    *,
    strategy: str | None = None,
    params: Sequence[str] = (),
    promotion: Path | None = None,
    shadow: Sequence[str] = (),
    capture: Path | None = None,
    label: str = "",
) -> tuple[str, ...]:
    """Overrides to add to verl's command.

    Args:
        strategy: to deliver; a file's path may be relative.
        params: ``name=value`` of it.
        promotion: to deliver instead.
        shadow: strategies to decide and log.
        capture: trace folder.
        label: a caution for the trace.
    """
    return tuple(_overrides(strategy, params, promotion, shadow, capture, label))


def _overrides(
    strategy: str | None,
    params: Sequence[str],
    promotion: Path | None,
    shadow: Sequence[str],
    capture: Path | None,
    label: str,
) -> Iterator[str]:
    if strategy is not None:
        yield f"+dfsim.strategy={quoted(_absolute(strategy))}"
    for name, text in assignments(params, "-p"):
        value = yaml_value(text, f"-p {name}")
        yield f"+dfsim.params.{name}={quoted(value) if isinstance(value, str) else text}"
    if promotion is not None:
        yield f"+dfsim.promotion={quoted(str(promotion.absolute()))}"
    if shadow:
        yield f"+dfsim.shadow=[{','.join(quoted(_absolute(name)) for name in shadow)}]"
    if capture is not None:
        yield f"+dfsim.capture.dir={quoted(str(capture.absolute()))}"
        if label:
            yield f"+dfsim.capture.label={quoted(label)}"


def quoted(text: str) -> str:
    """A string in Hydra's grammar, where backslashes count only before a quote or the end."""
    escaped = re.sub(r"(\\*)(')", lambda m: m[1] * 2 + "\\'", text)
    return "'" + re.sub(r"(\\+)$", lambda m: m[1] * 2, escaped) + "'"


def _absolute(strategy: str) -> str:
    """verl's processes run elsewhere: a file's path becomes absolute."""
    return str(Spec.parse(strategy).inside(Path()))
