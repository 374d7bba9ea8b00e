"""Whether the groups of a run are whole: sizes against n, and against the run's own pattern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from ..findings import Finding

MANY = 0.95
"""Share of groups of one from which on a group id seems to name the trajectory."""
WHOLE_STEP = 0.9
"""Share of a step's groups that must hold a multiple of the usual size for the step to count."""
SHOWN = 5


@dataclass
class GroupSizes:
    """Adds up the group sizes of a run, step by step.

    Args:
        n: responses a prompt, as the run's settings say.
        whole: whether a large group is known to be one: its responses are numbered through, or its
            advantages belong to its rewards.
    """

    n: int | None = None
    whole: bool = False
    _by_step: dict[int, Counter[int]] = field(default_factory=dict)
    _repeats: dict[int, tuple[int, int]] = field(default_factory=dict)
    _unsplit: dict[int, Counter[int]] = field(default_factory=dict)

    def add_unsplit(self, step: int, sizes: Sequence[int]) -> None:
        """Add the sizes of a step's groups before some were split into draws of one prompt."""
        self._unsplit[step] = Counter(sizes)

    def add(
        self, step: int, sizes: Sequence[int], prompts: Sequence[Hashable] | None = None
    ) -> None:
        """Add one step.

        Args:
            step: its number.
            sizes: responses of each group.
            prompts: prompt of each group, where prompts are known.
        """
        self._by_step[step] = Counter(sizes)
        if prompts is not None:
            drawn = Counter(prompts)
            self._repeats[step] = (len(drawn), sum(count > 1 for count in drawn.values()))

    @property
    def sizes(self) -> Counter[int]:
        """Size → groups of the whole run."""
        return sum(self._by_step.values(), Counter())

    def findings(self) -> Iterator[Finding]:
        """What stands out; the same for every order of steps and rows."""
        sizes = self.sizes
        total = sum(sizes.values())
        if total < 2:
            return
        if sizes[1] >= MANY * total:
            yield Finding(
                "singletons",
                f"{sizes[1] / total:.0%} of the groups hold a single response: does group_uid name "
                "the trajectory instead of the prompt group? GRPO compares nothing in such groups.",
                {"groups": sizes[1], "of": total},
            )
            return
        yield from self._against_n(sizes) if self.n is not None else self._against_usual(sizes)
        yield from self._repeated_steps()

    def _against_n(self, sizes: Counter[int]) -> Iterator[Finding]:
        assert self.n is not None
        over = {size: count for size, count in sizes.items() if size > self.n}
        if over:
            steps = [s for s, found in self._by_step.items() if any(z > self.n for z in found)]
            yield Finding(
                "groups_too_large",
                f"{sum(over.values()):,} groups hold more than the run's n = {self.n} responses "
                f"({_shown(over)}; steps {_listed(steps)}): {_CAUSES}",
                {"n": self.n, "sizes": {str(k): v for k, v in sorted(over.items())}},
            )
        elif max(sizes) < self.n:
            yield Finding(
                "groups_too_small",
                f"No group holds the run's n = {self.n} responses; the largest holds {max(sizes)}: "
                "groups were split, for instance over ranks, or n was another.",
                {"n": self.n, "largest": max(sizes)},
            )

    def _against_usual(self, sizes: Counter[int]) -> Iterator[Finding]:
        """A size of k times the usual one, where no other is above it: several draws as one."""
        several = [size for size in sizes if size > 1]
        usual = min(several, key=lambda size: (-sizes[size], size))
        over = {size: count for size, count in sizes.items() if size > usual}
        if not over or any(size % usual for size in over):
            return
        doubled = [step for step, found in self._by_step.items() if _is_doubled(found, usual)]
        inside = sum(self._by_step[s][z] for s in doubled for z in over)
        if doubled and inside == sum(over.values()):
            how = f"hold groups of {_shown(over)} where {usual} responses are usual"
            yield _repeated(doubled, how, usual=usual)
        elif not self.whole:
            yield Finding(
                "groups_too_large",
                f"{sum(over.values()):,} groups hold a multiple of the usual {usual} responses "
                f"({_shown(over)}): {_CAUSES}",
                {"usual": usual, "sizes": {str(k): v for k, v in sorted(over.items())}},
            )

    def _repeated_steps(self) -> Iterator[Finding]:
        """Steps that hold every prompt, or twice the groups, where the others do not."""
        sizes = self.sizes
        usual = min(sizes, key=lambda size: (-sizes[size], size))
        doubled = [s for s, before in self._unsplit.items() if _is_doubled(before, usual)]
        if doubled and 2 * len(doubled) < len(self._by_step):
            yield _repeated(doubled, "hold every group more than once")
            return
        twice = [s for s, (drawn, repeated) in self._repeats.items() if repeated == drawn > 0]
        how = "draw every prompt more than once"
        if not self._repeats:
            counts = {step: sum(found.values()) for step, found in self._by_step.items()}
            usual, often = Counter(counts.values()).most_common(1)[0]
            twice = [s for s, count in counts.items() if count == 2 * usual]
            how = f"hold {2 * usual} groups where every other holds {usual}"
            if often + len(twice) < len(counts) or usual < 2:
                return
        if twice and 2 * len(twice) < len(self._by_step):
            yield _repeated(twice, how)


_CAUSES = (
    "one prompt drawn twice, ids that ranks or files share, or a step logged twice. Give each draw "
    "its own group_uid."
)


def _is_doubled(sizes: Counter[int], usual: int) -> bool:
    """Whether nearly all groups of a step hold a multiple of the usual size."""
    over = sum(count for size, count in sizes.items() if size > usual and size % usual == 0)
    return over >= WHOLE_STEP * sum(sizes.values())


def _repeated(steps: Sequence[int], how: str, **evidence: int) -> Finding:
    return Finding(
        "step_repeated",
        f"Steps {_listed(steps)} {how}: a run that was resumed logs steps twice. Keep one copy of "
        "each.",
        {"steps": sorted(steps), **evidence},
    )


def _shown(sizes: dict[int, int]) -> str:
    return ", ".join(f"{size} ({count}×)" for size, count in sorted(sizes.items())[:SHOWN])


def _listed(steps: Sequence[int]) -> str:
    """Step numbers, the first few."""
    ordered = sorted(steps)
    more = f" … {ordered[-1]}" if len(ordered) > SHOWN else ""
    return ", ".join(map(str, ordered[:SHOWN])) + more
