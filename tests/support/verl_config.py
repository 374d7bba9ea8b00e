"""verl's own configuration, composed by Hydra."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


def composed(*overrides):
    pytest.importorskip("hydra")
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    spec = find_spec("verl")
    if spec is None:
        pytest.skip("verl is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        return OmegaConf.to_container(compose("ppo_trainer", list(overrides)), resolve=True)
