"""The commands that judge and show: thin, and free of heavy imports until one runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

PANELS: Mapping[str, tuple[Callable[..., None], ...]] = {"Offline": (), "Finished runs": ()}
