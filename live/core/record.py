"""A strategy as JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...strategies.build import AnyStrategy, build_parts, values_by_part
from ...strategies.catalog import PRESETS
from ...strategies.spec import Spec
from ...traces.findings import plain


def strategy_record(strategy: AnyStrategy) -> dict[str, Any]:
    """Name, parameters and tie seed: what rebuilds a strategy of any kind."""
    params = {name: plain(value) for name, value in strategy.params.items()}
    return {"name": strategy.name, "params": params, "tie_seed": strategy.tie_seed}


def rebuild(record: Mapping[str, Any]) -> AnyStrategy:
    """Build the strategy of a record, under the name it had.

    Raises:
        StrategyError: this dfsim has no such strategy or parameter.
    """
    spec = Spec.parse(str(record["name"]))
    values = values_by_part(spec, record["params"])
    for part, given in zip(spec, values, strict=True):
        for name in PRESETS[part.preset].fixed if part.preset in PRESETS else ():
            given.pop(name, None)
    return build_parts(spec, values, int(record["tie_seed"]))
