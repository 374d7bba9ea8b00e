"""``promotion.json``: the strategy that goes live, the code it was decided by, and its forecast."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ... import strategies, traces
from ...sim.estimators.step import BASELINE
from ...sim.mix.summary import MixReport, MixSummary
from ...sim.result import ReplayResult
from ...strategies.build import AnyStrategy, build
from ...strategies.sample.base import SamplingStrategy
from ...strategies.spec import Spec
from ...traces.errors import DfsimError
from ...traces.storage.files import sha256_of
from ...traces.version import __version__
from .delivery import OnEmpty, Rescale
from .record import rebuild, strategy_record

PROMOTION = "promotion.json"
VERSION = 1

_DECIDING = ("advantage", "assemble", "batch", "ragged", "schema")
_APPLYING = ("delivery", "rows", "sampler")


@dataclass(frozen=True)
class Promotion:
    """Content of ``promotion.json``.

    Attributes:
        strategy: the strategy's name; a user's own files are ``FILE.py`` beside the promotion file.
        params: every parameter with its value.
        tie_seed: decides ties across groups.
        rescale: see :func:`dfsim.live.core.delivery.apply`.
        on_empty: see :func:`dfsim.live.core.delivery.apply`.
        code: digest of the code that decides (see :func:`deciding_code`).
        own_files: name → SHA-256 of the user's own files.
        trace: path, fingerprint and sizes of the trace behind the forecast.
        loss_agg_mode: verl's loss aggregation of the forecast.
        forecast: estimator → estimate (mean, low, high, future_low, future_high, reason) of its
            weights on the logged draws.
        baseline: the same for ``none``.
        mixing: of a sampler, what it would ask for and get (see
            :class:`dfsim.sim.mix.summary.MixReport`), or ``None``.
        versions: of what wrote it.
        settings: of the replay.
        version: of this file's format.
    """

    strategy: str
    params: Mapping[str, Any]
    tie_seed: int
    rescale: Rescale
    on_empty: OnEmpty
    code: str
    own_files: Mapping[str, str]
    trace: Mapping[str, Any]
    loss_agg_mode: str
    forecast: Mapping[str, Mapping[str, Any]]
    baseline: Mapping[str, Mapping[str, Any]]
    mixing: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: int = VERSION
    folder: Path = field(default=Path(), compare=False)

    @property
    def digest(self) -> str:
        """Digest of the content, wherever the file lies."""
        return _digest(self.record())

    @property
    def name(self) -> str:
        """The strategy as :func:`dfsim.build` takes it."""
        return str(Spec.parse(self.strategy).inside(self.folder))

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {k: v for k, v in vars(self).items() if k != "folder"}

    def summary(self) -> list[str]:
        """What is forecast, in sentences."""
        lines = [
            f"{self.strategy}: forecast from {self.trace['steps']} steps of {self.trace['path']}"
            + (f" ({self.trace['label']})" if self.trace.get("label") else "")
        ]
        if self.mixing is not None:
            report = MixReport.from_dict(self.strategy, self.mixing)
            lines += [f"  draw, {label}: {_shares(run)}" for label, run in report.runs.items()]
        for name in ("effective_batch", "trained_token_frac", "signal_scale"):
            mine, base = self.forecast[name], self.baseline[name]
            if mine["mean"] is None:
                lines.append(f"  {name}: {mine['reason']}")
                continue
            shown = f"  {name}: {mine['mean']:.3g}"
            if name == "effective_batch":
                low, high = (self.forecast[f"{name}_{end}"]["mean"] for end in ("low", "high"))
                shown += f", bracket [{low:.3g}, {high:.3g}]"
            if mine["future_low"] is not None:
                shown += f", steps like these [{mine['future_low']:.3g}, {mine['future_high']:.3g}]"
            lines.append(f"{shown}; none {base['mean']:.3g}")
        return lines

    def build(self) -> AnyStrategy:
        """Build the strategy, after making sure that the code still is what was promoted.

        Raises:
            DfsimError: the code that decides, or the user's own file, differs.
        """
        if self.code != deciding_code():
            was = self.versions.get("dfsim", "?")
            other = "install that version" if was != __version__ else "go back to its sources"
            raise DfsimError(
                f"{self.folder / PROMOTION} was written by other deciding code (dfsim {was} "
                f"{self.code[:8]}, here {__version__} {deciding_code()[:8]}): its forecast does "
                f"not speak for this one. Promote again with this dfsim, or {other}"
            )
        for file, digest in self.own_files.items():
            path = self.folder / file
            if not path.is_file():
                raise DfsimError(f"{path} is missing; it was promoted with {PROMOTION} beside it")
            if sha256_of(path) != digest:
                raise DfsimError(f"{path} was changed since it was promoted; promote it again")
        return rebuild({"name": self.name, "params": self.params, "tie_seed": self.tie_seed})


def promoted(
    result: ReplayResult,
    strategy: AnyStrategy,
    rescale: Rescale = "none",
    on_empty: OnEmpty = "skip_update",
) -> Promotion:
    """The promotion of a replayed strategy.

    Args:
        result: of a replay of :func:`forecast_of` it.
        strategy: which one.
        rescale: see :func:`dfsim.live.core.delivery.apply`.
        on_empty: see :func:`dfsim.live.core.delivery.apply`.
    """
    spec = Spec.parse(strategy.name)
    samples = isinstance(strategy, SamplingStrategy)
    return Promotion(
        strategy=str(spec.short),
        params=strategy_record(strategy)["params"],
        tie_seed=strategy.tie_seed,
        rescale=rescale,
        on_empty=on_empty,
        code=deciding_code(),
        own_files={path.name: sha256_of(path) for path in spec.files},
        trace=dict(result.trace),
        loss_agg_mode=result.loss_agg_mode,
        forecast=_estimates(result, forecast_of(strategy)[0].name),
        baseline=_estimates(result, BASELINE),
        mixing=result.mixers[strategy.name].to_dict() if samples else None,
        versions={"dfsim": __version__, "numpy": np.__version__},
        settings=dict(result.settings),
    )


def forecast_of(strategy: AnyStrategy) -> list[AnyStrategy]:
    """What to replay to forecast a strategy: what weighs, then, of a sampler, itself."""
    if not isinstance(strategy, SamplingStrategy):
        return [strategy]
    return [build(BASELINE) if strategy.then is None else strategy.then, strategy]


def _shares(run: MixSummary) -> str:
    return ", ".join(f"{domain} {share:.0%}" for domain, share in run.mean_target.items())


def _estimates(result: ReplayResult, name: str) -> dict[str, Mapping[str, Any]]:
    return {n: e.to_dict() for n, e in result.strategies[name].estimates.items()}


def read_promotion(path: Path) -> Promotion:
    """Read a promotion file, or the one in a folder.

    Raises:
        DfsimError: it is missing, not JSON, or of a format this dfsim does not know.
    """
    if path.is_dir():
        path = path / PROMOTION
    try:
        record = json.loads(path.read_text())
        version, digest = record["version"], record.pop("digest", "")
    except OSError as error:
        raise DfsimError(
            f"{path} can't be read ({error.strerror}); dfsim promote writes one"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise DfsimError(f"{path} is no promotion file; dfsim promote writes one") from None
    if version != VERSION:
        raise DfsimError(
            f"{path}: promotion format {version}; this dfsim reads {VERSION}. Promote again"
        )
    try:
        promotion = Promotion(**record, folder=path.resolve().parent)
    except TypeError:
        promotion = None
    if promotion is None or promotion.digest != digest:
        raise DfsimError(f"{path} was changed by hand; promote again with what you want changed")
    return promotion


def sealed(record: Mapping[str, Any]) -> str:
    """Text of ``promotion.json``: the record and its digest, by which a changed one is noticed."""
    return _text({**record, "digest": _digest(record)})


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.blake2b(_text(record).encode(), digest_size=8).hexdigest()


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=1, allow_nan=False, default=dict) + "\n"


@cache
def deciding_code() -> str:
    """Digest of the sources that turn a batch into weights: strategies, batches, advantages."""
    digest = hashlib.blake2b(digest_size=16)
    home = Path(str(traces.__file__)).parent
    files = [home / f"{name}.py" for name in _DECIDING]
    files += [Path(__file__).parent / f"{name}.py" for name in _APPLYING]
    root = Path(str(strategies.__file__)).parent
    for path in (*files, *sorted(root.rglob("*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
