"""The folder that takes a promoted strategy into verl: promotion file, strategy file, scripts."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from ...strategies.build import AnyStrategy
from ...strategies.spec import Spec
from ...traces.errors import DfsimError
from ...traces.storage.files import check_new_folder, replacing_folder
from ...traces.storage.manifest import MANIFEST, Manifest
from ..core.promotion import PROMOTION, Promotion, sealed
from .scripts import RUNS, write_scripts


def check_promotable(manifest: Manifest, strategy: AnyStrategy, folder: Path, force: bool) -> None:
    """Refuse what :func:`write_promotion_folder` would refuse, before the forecast is made."""
    if manifest.foreign:
        raise DfsimError(
            f"the trace comes from {manifest.trainer} ({manifest.source}), and live delivery is "
            f"for verl only; for your own trainer take the weights: dfsim replay TRACE "
            f"--strategy {strategy.name} --decisions weights.parquet"
        )
    names = [path.name for path in Spec.parse(strategy.name).files]
    for name in names:
        if names.count(name) > 1:
            raise DfsimError(f"two files are called {name}, and both go beside {PROMOTION}")
    check_new_folder(folder, PROMOTION, force)
    _refuse_results(folder)


def write_promotion_folder(
    promotion: Promotion,
    strategy: AnyStrategy,
    manifest: Manifest,
    folder: Path,
    seeds: int,
    force: bool,
) -> list[Path]:
    """Write the promotion, a user's own strategy file, and the scripts; all or nothing.

    Args:
        promotion: from :func:`promoted`.
        strategy: the strategy it promotes.
        manifest: of the trace.
        folder: to create.
        seeds: pairs of scripts.
        force: replace an earlier promotion.

    Returns:
        The files written.

    Raises:
        DfsimError: the folder exists, or the trace is of a trainer that dfsim can't deliver to.
    """
    check_promotable(manifest, strategy, folder, force)
    with replacing_folder(folder, PROMOTION, force) as scratch:
        path = scratch / PROMOTION
        path.write_text(sealed(promotion.record()))
        written = [path]
        own = Spec.parse(strategy.name).files
        written += [Path(shutil.copy(path, scratch / path.name)) for path in own]
        if own:
            replace(promotion, folder=scratch).build()  # refuses a file that needs its neighbours
        written += write_scripts(scratch, promotion.strategy, seeds)
    return [folder / path.relative_to(scratch) for path in written]


def _refuse_results(folder: Path) -> None:
    """A promotion that live runs have written beside is not replaced."""
    runs = folder / RUNS
    filled = [runs] if runs.is_file() and len(runs.read_text().splitlines()) > 1 else []
    for path in (*filled, *folder.rglob(MANIFEST), *folder.rglob("*.jsonl")):
        raise DfsimError(f"{folder} holds results of live runs ({path}); choose another --out")
