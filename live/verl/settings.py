"""What a user writes behind ``+dfsim.`` on verl's command line, checked before a model loads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from ...strategies.build import AnyStrategy
from ...strategies.catalog import WEIGHING
from ...strategies.grammar import strategies_from
from ...strategies.spec import Spec
from ...traces.errors import DfsimError, nearest
from ...traces.spelling import speaking
from ..core.delivery import ON_EMPTY, RESCALE
from ..core.promotion import read_promotion
from ..core.settings import CaptureSettings, LiveSettings, OnError, Tokens

_SHARES = "proportions"  # the one parameter that is a mapping itself

C = TypeVar("C", bound=str)

_KEYS = (
    *("strategy", "params", "tie_seed", "shadow", "promotion"),
    *("rescale", "on_empty", "domain", "capture"),
)
_CAPTURE_KEYS = ("dir", "tokens", "every", "text", "label", "queue_steps", "on_error")


def read_settings(given: Mapping[str, Any]) -> LiveSettings:
    """Read the settings from a plain mapping.

    Args:
        given: ``config.dfsim`` as plain Python values.

    Raises:
        DfsimError: an unknown key, strategy, parameter or value; the remedy is named.
    """
    if not isinstance(given, Mapping):
        raise DfsimError(f"+dfsim={given} is no setting; write +dfsim.KEY=VALUE")
    _known(given, _KEYS, "dfsim")
    rescale = _choice(given.get("rescale", "none"), RESCALE, "dfsim.rescale")
    on_empty = _choice(given.get("on_empty", "skip_update"), ON_EMPTY, "dfsim.on_empty")
    tie_seed = _whole(given.get("tie_seed", 0), "dfsim.tie_seed", 0)
    promotion, strategy = None, None
    name = None if given.get("strategy") is None else str(given["strategy"])
    if name == "all":
        raise DfsimError(
            "+dfsim.strategy=all: one strategy is delivered; +dfsim.shadow=all logs all"
        )
    if given.get("promotion") is not None:
        _refuse_beside_promotion(given)
        promotion = read_promotion(Path(str(given["promotion"])))
        strategy = promotion.build()
        name, tie_seed = strategy.name, strategy.tie_seed
        rescale, on_empty = promotion.rescale, promotion.on_empty
    shadow_names = [n for n in _names(given.get("shadow")) if n not in ("none", name)]
    params = given.get("params") or {}
    if not isinstance(params, Mapping):
        raise DfsimError(f"+dfsim.params={params} names no parameter; +dfsim.params.NAME=…")
    assigned = list(_flat(params))
    if promotion is not None:
        _refuse_promoted_params(assigned, Spec.parse(str(name)), shadow_names)
    delivers = name is not None and promotion is None
    names = [*([str(name)] if delivers else []), *shadow_names]
    shadows = _built(names, assigned, name if delivers else None, tie_seed)
    if delivers:
        strategy, *shadows = shadows
        if strategy.name != name:
            raise DfsimError("+dfsim.params: a live run delivers one value, not a list of them")
    return LiveSettings(
        strategy=strategy,
        shadows=tuple(shadows),
        rescale=rescale,
        on_empty=on_empty,
        domain=None if given.get("domain") is None else str(given["domain"]),
        capture=_capture(given.get("capture")),
        promotion=promotion,
    )


def _refuse_beside_promotion(given: Mapping[str, Any]) -> None:
    for key in ("strategy", "rescale", "on_empty", "tie_seed"):
        if key in given:
            raise DfsimError(
                f"+dfsim.{key} and +dfsim.promotion are both given; the promotion file holds it "
                f"already, so drop +dfsim.{key}"
            )


def _refuse_promoted_params(
    assigned: Sequence[str], promoted: Spec, shadows: Sequence[str]
) -> None:
    """A promotion holds its strategy's parameters; those of shadows may be given."""
    others = [part for name in shadows for part in Spec.parse(name)]
    for item in assigned:
        prefix, dot, _ = item.partition("=")[0].rpartition(".")
        mine = any(part.owns(prefix) for part in promoted)
        if (not dot and len(shadows) != 1) or (mine and not any(o.owns(prefix) for o in others)):
            raise DfsimError(
                f"+dfsim.params.{item}: the promotion file holds the parameters; drop it, or "
                "promote again with the new value"
            )


def _built(
    names: Sequence[str], params: Sequence[str], default: str | None, tie_seed: int
) -> list[AnyStrategy]:
    """Build strategies by the grammar of the command line, in this one's words."""
    if not names:
        if params:
            raise DfsimError(
                f"+dfsim.params.{params[0]}: no strategy is named; add +dfsim.strategy or "
                "+dfsim.shadow"
            )
        return []
    with speaking("hydra"):
        return strategies_from(names, params, tie_seed=tie_seed, default=default)


def _names(given: Any) -> list[str]:
    if given is None:
        return []
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if not all(isinstance(name, str) for name in listed):
        raise DfsimError(f"+dfsim.shadow={given} names no strategy; write +dfsim.shadow=[maxvar,…]")
    if "all" in listed:
        listed = [*WEIGHING, *(n for n in listed if n != "all")]
    return list(dict.fromkeys(listed))


def _flat(params: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in params.items():
        if isinstance(value, Mapping) and key != _SHARES:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value)}"


def _capture(given: Any) -> CaptureSettings | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise DfsimError(f"+dfsim.capture={given} is no folder setting; write +dfsim.capture.dir=…")
    _known(given, _CAPTURE_KEYS, "dfsim.capture")
    if not given.get("dir"):
        raise DfsimError("+dfsim.capture names no folder; add +dfsim.capture.dir=FOLDER")
    for name in ("text",):
        if not isinstance(given.get(name, False), bool):
            raise DfsimError(f"+dfsim.capture.{name}={given[name]}: write true or false")
    return CaptureSettings(
        dir=Path(str(given["dir"])).expanduser(),
        tokens=_choice(given.get("tokens", "auto"), get_args(Tokens), "dfsim.capture.tokens"),
        every=_whole(given.get("every", 1), "dfsim.capture.every", 1),
        text=given.get("text", False),
        label=str(given.get("label") or ""),
        queue_steps=_whole(given.get("queue_steps", 4), "dfsim.capture.queue_steps", 1),
        on_error=_choice(
            given.get("on_error", "warn"), get_args(OnError), "dfsim.capture.on_error"
        ),
    )


def _known(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise DfsimError(
                f"+{where}.{key} is not a setting of dfsim{nearest(str(key), known)}; there are: "
                f"{', '.join(known)}"
            )


def _choice(value: Any, known: Sequence[C], where: str) -> C:
    text = "none" if value is None else str(value)
    for choice in known:
        if choice == text:
            return choice
    raise DfsimError(
        f"+{where}={value} is not known{nearest(text, known)}; it takes: {', '.join(known)}"
    )


def _whole(value: Any, where: str, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise DfsimError(f"+{where}={value}: it must be a whole number ≥ {low}")
    return value
