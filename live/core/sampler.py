"""Which prompts the next step draws: a stateful sampler under verl's own data loader.

verl fetches a step's prompts when the step begins, so what the mixer asks for after step t decides
the draw of step t + 1. The sampler's state travels in verl's checkpoint (``data.pt``), the mixer's
with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...strategies.mix.base import Mixer
from ...strategies.mix.quota import Quotas
from ...traces.errors import DfsimError
from ...traces.ragged import Int


class MixBatchSampler:
    """Batches of dataset indices whose domains follow a mixer's proportions.

    Each domain has a seeded permutation and a cursor; at its end it is shuffled anew. A batch holds
    no index twice unless its quota of a domain exceeds the domain.

    Args:
        mixer: asked for proportions at every batch.
        domain_of: domain of each dataset row.
        batch_size: prompts a step.
        seed: of the permutations.

    Attributes:
        target_D: proportions behind the last batch.
        drawn_D: prompts of each domain in the last batch.
        exposures_D: prompts drawn so far.
        live_exposures_D: prompt groups so far whose rewards differed, as :meth:`saw` was told.

    Raises:
        DfsimError: a domain of the mixer has no row.
    """

    def __init__(self, mixer: Mixer, domain_of: Sequence[str], batch_size: int, seed: int) -> None:
        self.mixer, self._size, self._seed = mixer, batch_size, seed
        self._quotas = Quotas(mixer.domains)
        names = np.array(domain_of, dtype=object)
        self._rows = [np.flatnonzero(names == domain) for domain in mixer.domains]
        for domain, rows in zip(mixer.domains, self._rows, strict=True):
            if not len(rows):
                raise DfsimError(f"the training set has no row of domain '{domain}'")
        count = len(mixer.domains)
        self._cursor, self._round = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._held: list[list[int]] = [[] for _ in range(count)]
        self._batches = 0
        self.target_D = mixer.propose()
        self.drawn_D = np.zeros(count, np.int64)
        self.exposures_D = np.zeros(count, np.int64)
        self.live_exposures_D = np.zeros(count, np.int64)

    def saw(self, live_domains: Sequence[str]) -> None:
        """Count the groups that carried signal.

        Args:
            live_domains: domain of each such group of the last batch.
        """
        names = list(live_domains)
        counts = [names.count(domain) for domain in self.mixer.domains]
        self.live_exposures_D = self.live_exposures_D + np.array(counts)

    def __len__(self) -> int:
        """Batches of one pass over the dataset; the sampler itself has no end."""
        return sum(map(len, self._rows)) // self._size

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        self.target_D = self.mixer.propose()
        self.drawn_D = self._quotas.take(self.target_D, self._size)
        self.exposures_D = self.exposures_D + self.drawn_D
        batch = np.concatenate([self._take(d, int(n)) for d, n in enumerate(self.drawn_D)])
        self._batches += 1
        order = np.random.default_rng((self._seed, 0, self._batches)).permutation(len(batch))
        return batch[order].tolist()

    def _take(self, domain: int, count: int) -> Int:
        """The next rows of a domain; a new round puts the rows that this batch holds last."""
        size = len(self._rows[domain])
        taken: list[int] = []
        while len(taken) < count:
            start = int(self._cursor[domain])
            rest = self._order(domain)[start : start + count - len(taken)]
            taken += rest.tolist()
            self._cursor[domain] += len(rest)
            if self._cursor[domain] == size:
                self._cursor[domain], self._round[domain] = 0, self._round[domain] + 1
                self._held[domain] = taken[-size:]
        return np.array(taken, dtype=np.int64)

    def _order(self, domain: int) -> Int:
        """Order of a domain's rows in its present round."""
        rng = np.random.default_rng((self._seed, 1 + domain, int(self._round[domain])))
        order = rng.permutation(self._rows[domain])
        last = np.isin(order, self._held[domain])
        return np.concatenate((order[~last], order[last]))

    def state_dict(self) -> dict[str, Any]:
        """All that :meth:`load_state_dict` needs."""
        return {
            "mixer": self.mixer.state_dict(),
            "carry": self._quotas.carry.tolist(),
            "cursor": self._cursor.tolist(),
            "round": self._round.tolist(),
            "held": self._held,
            "batches": self._batches,
            "exposures": self.exposures_D.tolist(),
            "live_exposures": self.live_exposures_D.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken."""
        self.mixer.load_state_dict(state["mixer"])
        self._quotas.carry = np.array(state["carry"], dtype=np.float64)
        self._cursor = np.array(state["cursor"], dtype=np.int64)
        self._round = np.array(state["round"], dtype=np.int64)
        self._held = [list(rows) for rows in state["held"]]
        self._batches = int(state["batches"])
        self.exposures_D = np.array(state["exposures"], dtype=np.int64)
        self.live_exposures_D = np.array(state["live_exposures"], dtype=np.int64)
