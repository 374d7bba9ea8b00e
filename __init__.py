"""dfsim: replay data strategies over captured GRPO rollouts, before spending GPUs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .traces.version import __version__

if TYPE_CHECKING:
    from .sim.compare.compare import compare
    from .sim.inspect.census import census as inspect
    from .sim.mix.simulate import Candidates
    from .sim.replay.loop import replay
    from .sim.screen.screen import screen
    from .sim.success import Success
    from .strategies.base import Decision, param
    from .strategies.build import build
    from .strategies.check import check_strategy
    from .strategies.sample.base import UnitStep
    from .traces.assemble import from_columns
    from .traces.batch import RolloutBatch
    from .traces.errors import DfsimError, StrategyError, TraceError
    from .traces.findings import Finding
    from .traces.importers.base import ImportOptions
    from .traces.importers.importing import import_trace
    from .traces.storage.store import Trace, open_trace

__all__ = [
    "Candidates",
    "Decision",
    "DfsimError",
    "Finding",
    "ImportOptions",
    "RolloutBatch",
    "StrategyError",
    "Success",
    "Trace",
    "TraceError",
    "UnitStep",
    "__version__",
    "build",
    "check_strategy",
    "compare",
    "from_columns",
    "import_trace",
    "inspect",
    "open_trace",
    "param",
    "replay",
    "screen",
]

_HOMES = {
    "Candidates": "sim.mix.simulate",
    "Decision": "strategies.base",
    "DfsimError": "traces.errors",
    "Finding": "traces.findings",
    "ImportOptions": "traces.importers.base",
    "RolloutBatch": "traces.batch",
    "StrategyError": "traces.errors",
    "Success": "sim.success",
    "Trace": "traces.storage.store",
    "TraceError": "traces.errors",
    "UnitStep": "strategies.sample.base",
    "build": "strategies.build",
    "check_strategy": "strategies.check",
    "compare": "sim.compare.compare",
    "from_columns": "traces.assemble",
    "import_trace": "traces.importers.importing",
    "inspect": "sim.inspect.census:census",
    "open_trace": "traces.storage.store",
    "param": "strategies.base",
    "replay": "sim.replay.loop",
    "screen": "sim.screen.screen",
}
"""Name → module, and after a colon its name there; loaded when first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dfsim' has no attribute '{name}'")
    from importlib import import_module

    module, _, inside = _HOMES[name].partition(":")
    return getattr(import_module(f".{module}", __name__), inside or name)


def __dir__() -> list[str]:
    return sorted(__all__)
