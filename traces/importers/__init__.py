"""Importers: one file per format, each turning a source into chunks of rows.

Adding one is a file with ``recognise`` and ``read``, and its line in ``IMPORTERS``.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import TraceError, nearest
from ..schema import REQUIRED
from . import flat, pass_rate, trl, verl
from .base import Importer, ImportOptions, sample_of
from .recognise import explain, explain_file

IMPORTERS: dict[str, Importer] = {
    "flat": Importer("rows with step, group_uid, reward", flat.recognise, flat.read),
    "verl": Importer("a verl v1 rollout_data_dir", verl.recognise_v1, verl.read_v1),
    "verl-v0": Importer(
        "a verl v0 rollout_data_dir", verl.recognise_v0, verl.read_v0, ("group_by", "group_size")
    ),
    "trl": Importer("TRL completions", trl.recognise, trl.read, ("reward_weights", "group_size")),
    "pass-rate": Importer("a pass-rate table", pass_rate.recognise, pass_rate.read),
}


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
    sample = sample_of(source)
    if set(REQUIRED) <= {*sample.columns, *options.columns}:
        return "flat", IMPORTERS["flat"]
    for name, importer in IMPORTERS.items():
        if importer.recognise(sample):
            return name, importer
    raise TraceError(explain(sample.path, sample))
