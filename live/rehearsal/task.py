"""Three verifiable domains that a tiny model can learn: addition, reversing, looking up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

DOMAINS = ("math", "logic", "science")
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
# Symbols and names of the first sixty elements: the table behind the domain science.
_TABLE = (
    "H:hydrogen He:helium Li:lithium Be:beryllium B:boron C:carbon N:nitrogen O:oxygen "
    "F:fluorine Ne:neon Na:sodium Mg:magnesium Al:aluminium Si:silicon P:phosphorus S:sulfur "
    "Cl:chlorine Ar:argon K:potassium Ca:calcium Sc:scandium Ti:titanium V:vanadium "
    "Cr:chromium Mn:manganese Fe:iron Co:cobalt Ni:nickel Cu:copper Zn:zinc Ga:gallium "
    "Ge:germanium As:arsenic Se:selenium Br:bromine Kr:krypton Rb:rubidium Sr:strontium "
    "Y:yttrium Zr:zirconium Nb:niobium Mo:molybdenum Tc:technetium Ru:ruthenium Rh:rhodium "
    "Pd:palladium Ag:silver Cd:cadmium In:indium Sn:tin Sb:antimony Te:tellurium I:iodine "
    "Xe:xenon Cs:caesium Ba:barium La:lanthanum Ce:cerium Pr:praseodymium Nd:neodymium"
)
ELEMENTS = dict(pair.split(":") for pair in _TABLE.split())
MAX_PROMPT_TOKENS = 16
MAX_RESPONSE_TOKENS = 14  # "praseodymium" and the end token


class Problem(NamedTuple):
    """A question of one domain and its only right answer."""

    domain: str
    question: str
    answer: str


def problem(domain: str, random_numbers: random.Random) -> Problem:
    """Draw one problem of `domain`."""
    if domain == "math":
        left, right = random_numbers.randrange(50), random_numbers.randrange(50)
        return Problem(domain, f"{left}+{right}", str(left + right))
    if domain == "logic":
        word = "".join(random_numbers.choices(ALPHABET, k=random_numbers.randint(3, 6)))
        return Problem(domain, f"flip {word}", word[::-1])
    symbol = random_numbers.choice(list(ELEMENTS))
    return Problem(domain, f"name {symbol}", ELEMENTS[symbol])


def problems(count: int, seed: int) -> Iterator[Problem]:
    """Yield `count` problems, the domains taking turns."""
    random_numbers = random.Random(seed)
    for index in range(count):
        yield problem(DOMAINS[index % len(DOMAINS)], random_numbers)


def dataset_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Return `count` rows of a verl dataset with a column ``domain``."""
    return [
        {
            "data_source": one.domain,
            "domain": one.domain,
            "prompt": [{"role": "user", "content": one.question}],
            "reward_model": {"style": "rule", "ground_truth": one.answer},
            "extra_info": {"index": index},
        }
        for index, one in enumerate(problems(count, seed))
    ]


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, **rest: Any
) -> dict[str, float]:
    """Score one response for verl's ``reward.custom_reward_function``: 1.0 if right, else 0.0.

    A coroutine, because verl hands a plain function to a pool of threads.
    """
    right = float(solution_str == ground_truth)
    return {"score": right, "acc": right}
