"""A strategy as JSON, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...strategies.base import Strategy
from ...strategies.catalog import PRESETS, build
from ...strategies.mix.presets import Mix, build_mix
from ...traces.findings import plain


def strategy_record(strategy: Strategy) -> dict[str, Any]:
    """Name, parameters and tie seed: what rebuilds a strategy."""
    params = {name: plain(value) for name, value in strategy.params.items()}
    return {"name": strategy.name, "params": params, "tie_seed": strategy.tie_seed}


def mix_record(mix: Mix) -> dict[str, Any]:
    """Name and parameters of a pipeline's mixer."""
    return {"name": mix.name.partition("+")[0], "params": dict(mix.params)}


def rebuild_mix(record: Mapping[str, Any], then: Strategy | None) -> Mix:
    """Build the mixer of a record, before what its draw passes through.

    Raises:
        StrategyError: this dfsim has no such mixer or parameter.
    """
    return build_mix(str(record["name"]).partition("[")[0], record["params"], then)


def rebuild(record: Mapping[str, Any]) -> Strategy:
    """Build the strategy of a record, under the name it had.

    Raises:
        StrategyError: this dfsim has no such strategy or parameter.
    """
    name = str(record["name"])
    base = re.sub(r"\[[^\[\]/]*\]$", "", name)  # a sweep's values
    fixed = PRESETS[base].fixed if base in PRESETS else {}
    params = {k: v for k, v in record["params"].items() if k not in fixed}
    return replace(build(base, params, tie_seed=int(record["tie_seed"])), name=name)
