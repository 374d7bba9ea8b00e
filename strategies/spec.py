"""A strategy's name, taken apart and put together again: the only parser and printer of names.

``maxvar``, ``gfpo@paper``, ``maxvar[keep_frac=0.5]``, ``rules/mine.py:Mine``, and chains of them
such as ``dump_ucb[temperature=1]+maxvar`` (a sampler, then a selector or reweighter) or
``solve_rate+solve_band`` (a scorer, then an actuator).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

_POINT = r"(?:\[(?P<point>[^\[\]]*=[^\[\]]*)\])?"
_NAMED = re.compile(
    r"(?![^+\[\]@:/]*\.py(?:[+\[]|$))(?P<rule>[^+\[\]@:/]+)(?:@(?P<variant>[^+\[\]@:/]+))?" + _POINT
)
_FILED = re.compile(r"(?P<file>[^:]*\.py)(?::(?P<rule>[^+\[\]@:/]+))?" + _POINT)


@dataclass(frozen=True)
class Spec:
    """What a name says, before anybody knows whether such a strategy exists.

    A name that does not follow the grammar is one rule of that very name, which no catalog holds.

    Attributes:
        rule: name of the rule; of a user's own, its class.
        variant: what follows ``@``, or an empty string.
        file: the user's Python file, or an empty string. One whose path holds a ``+`` begins with
            ``/`` or ``.``.
        point: the values of a sweep's point, as ``keep_frac=0.5,ties=first``; or an empty string.
        then: what follows in a chain.
    """

    rule: str
    variant: str = ""
    file: str = ""
    point: str = ""
    then: Spec | None = None

    @classmethod
    def parse(cls, name: str) -> Spec:
        """Take a name apart; ``str`` puts it together again."""
        return _parse(name, 0) or cls(name)

    def __str__(self) -> str:
        text = self.preset if not self.file else self.file + (f":{self.rule}" if self.rule else "")
        text += f"[{self.point}]" if self.point else ""
        return text if self.then is None else f"{text}+{self.then}"

    def __iter__(self) -> Iterator[Spec]:
        """Each part of the chain, alone."""
        yield replace(self, then=None)
        if self.then is not None:
            yield from self.then

    @property
    def preset(self) -> str:
        """Rule and variant: the key of a catalog."""
        return f"{self.rule}@{self.variant}" if self.variant else self.rule

    @property
    def unswept(self) -> Spec:
        """The same without the points of a sweep."""
        return replace(self, point="", then=None if self.then is None else self.then.unswept)

    @property
    def short(self) -> Spec:
        """The same with files by their base names: what is equal on every machine."""
        return self._with_files(lambda path: path.name)

    @property
    def files(self) -> tuple[Path, ...]:
        """The user's files, each once."""
        return tuple(dict.fromkeys(Path(part.file) for part in self if part.file))

    def inside(self, folder: Path) -> Spec:
        """The same with relative files taken from a folder; an absolute path stays."""
        return self._with_files(lambda path: str(folder.absolute() / path))

    def _with_files(self, change: Callable[[Path], str]) -> Spec:
        then = None if self.then is None else self.then._with_files(change)
        return replace(self, file=change(Path(self.file)) if self.file else "", then=then)

    def owns(self, prefix: str) -> bool:
        """Whether a parameter written ``prefix.name`` is this part's."""
        alone = replace(self, point="", then=None)
        return prefix in (self.rule, self.preset, str(alone), str(alone.short))


def _parse(name: str, at: int) -> Spec | None:
    """The chain that begins at a place and ends with the name."""
    for pattern in (_NAMED, _FILED):
        match = pattern.match(name, at)
        if match is None:
            continue
        said = {field: text or "" for field, text in match.groupdict().items()}
        part = Spec(said["rule"], said.get("variant", ""), said.get("file", ""), said["point"])
        if match.end() == len(name):
            return part
        then = _parse(name, match.end() + 1) if name[match.end()] == "+" else None
        if then is not None:
            return replace(part, then=then)
    return None
