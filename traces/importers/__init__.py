"""Importers: one file per format, each turning a source into chunks of rows.

Adding one is a file with ``recognise`` and ``read``, and its line in ``IMPORTERS``.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import TraceError, nearest
from ..schema import REQUIRED
from . import areal, flat, group_rewards, open_instruct, pass_rate, prime_rl, tinker, trl, verl
from .base import Importer, ImportOptions, Sample, samples_of
from .conventions import step_of
from .recognise import explain, explain_file

IMPORTERS: dict[str, Importer] = {
    "flat": Importer("rows with step, group_uid, reward", flat.recognise, flat.read),
    "verl": Importer("a verl v1 rollout_data_dir", verl.recognise_v1, verl.read_v1, trainer="verl"),
    "verl-v0": Importer(
        "a verl v0 rollout_data_dir",
        verl.recognise_v0,
        verl.read_v0,
        ("group_by", "group_size"),
        "verl",
    ),
    "trl": Importer(
        "TRL completions", trl.recognise, trl.read, ("reward_weights", "group_size"), "TRL"
    ),
    "pass-rate": Importer(
        "a pass-rate table", pass_rate.recognise, pass_rate.read, trainer="a pass-rate table"
    ),
    "open-instruct": Importer(
        "open-instruct rollouts",
        open_instruct.recognise,
        open_instruct.read,
        trainer="open-instruct",
    ),
    "areal": Importer("an AReaL dump", areal.recognise, areal.read, trainer="AReaL"),
    "tinker": Importer(
        "tinker-cookbook rollout summaries", tinker.recognise, tinker.read, trainer="tinker"
    ),
    "prime-rl": Importer(
        "prime-rl training rollouts", prime_rl.recognise, prime_rl.read, trainer="prime-rl"
    ),
    "group-rewards": Importer(
        "samples with the rewards of their groups",
        group_rewards.recognise,
        group_rewards.read,
        trainer="samples chosen by outcome",
    ),
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
    raise TraceError(explain(first, source, options))
