"""Importers: one file per format, each turning a source into chunks of rows.

Adding one is a file in ``formats`` that declares an ``Importer``, and its line in ``IMPORTERS``.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import TraceError, nearest
from ..schema import REQUIRED
from .base import ImportOptions
from .conventions import step_of
from .formats import (
    areal,
    flat,
    group_rewards,
    open_instruct,
    pass_rate,
    prime_rl,
    tinker,
    trl,
    verl,
)
from .formats.base import FormatOption, Importer
from .recognise import explain, explain_file
from .sources import Sample, samples_of

IMPORTERS: dict[str, Importer] = {
    "flat": flat.IMPORTER,
    "verl": verl.V1,
    "verl-v0": verl.V0,
    "trl": trl.IMPORTER,
    "pass-rate": pass_rate.IMPORTER,
    "open-instruct": open_instruct.IMPORTER,
    "areal": areal.IMPORTER,
    "tinker": tinker.IMPORTER,
    "prime-rl": prime_rl.IMPORTER,
    "group-rewards": group_rewards.IMPORTER,
}


def format_options() -> dict[FormatOption, list[str]]:
    """Options that only some formats have, each with the formats that have a use for it."""
    formats: dict[FormatOption, list[str]] = {}
    for name, importer in IMPORTERS.items():
        for option in importer.options:
            formats.setdefault(option, []).append(name)
    return formats


def choose(source: Path, format: str, options: ImportOptions) -> tuple[str, Importer]:
    """Return the importer of a format, or for ``auto`` the one that recognises the source.

    Raises:
        TraceError: an unknown format (nearest given), or a source that none recognises: says what
            it is and what would work.
    """
    if format != "auto":
        if format not in IMPORTERS:
            known = ", ".join(["auto", *IMPORTERS])
            raise TraceError(f"no format is called '{format}'{nearest(format, IMPORTERS)}: {known}")
        return format, IMPORTERS[format]
    explain_file(source)
    first: Sample | None = None
    for sample in samples_of(source):
        first = first or sample
        given = {*sample.columns, *options.columns}
        if options.step is not None or step_of(sample.path.absolute()) is not None:
            given.add("step")
        if set(REQUIRED) <= given:
            return "flat", IMPORTERS["flat"]
        for name, importer in IMPORTERS.items():
            if importer.recognise(sample):
                return name, importer
    assert first is not None
    near_misses = [hint for importer in IMPORTERS.values() for hint in importer.hints]
    raise TraceError(explain(first, source, options, near_misses))
