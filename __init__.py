"""dfsim: replay data strategies over captured GRPO rollouts, before spending GPUs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .traces.version import __version__

if TYPE_CHECKING:
    from .sim.mix_result import replay_mixers
    from .sim.replay import replay
    from .sim.screen import screen
    from .sim.seeds.compare import compare
    from .strategies.catalog import build
    from .strategies.check import check_strategy
    from .traces.store import open_trace

__all__ = [
    "__version__",
    "build",
    "check_strategy",
    "compare",
    "open_trace",
    "replay",
    "replay_mixers",
    "screen",
]

_HOMES = {
    "build": "strategies.catalog",
    "check_strategy": "strategies.check",
    "compare": "sim.seeds.compare",
    "open_trace": "traces.store",
    "replay": "sim.replay",
    "replay_mixers": "sim.mix_result",
    "screen": "sim.screen",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dfsim' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
