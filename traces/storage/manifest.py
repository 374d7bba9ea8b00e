"""``manifest.json``: what a trace holds, which files, their checksums, and the run's settings.

The last field is a checksum over the manifest's own bytes, so that a changed byte anywhere in a
trace is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from ..advantage import AdvantageConfig, Estimator
from ..errors import TraceError, nearest
from ..findings import Finding
from ..schema import TRACE_VERSION
from .files import replacing_file

MANIFEST = "manifest.json"
VERL = "verl"
"""The trainer that strategies are delivered in."""
_BLANK = "0" * 64


@dataclass(frozen=True)
class StepEntry:
    """One step: where its rows lie, how many, and a digest of their content."""

    step: int
    file: str
    first_row: int
    responses: int
    groups: int
    tokens: int | None
    digest: str


@dataclass(frozen=True)
class FileEntry:
    """One Parquet file: its SHA-256 and length in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """Content of ``manifest.json``.

    Attributes:
        version: format version; a reader refuses versions it does not know.
        writer: the dfsim that wrote it.
        source: where the rows came from, in words.
        label: a caution to print beside every result, or an empty string.
        lengths: where ``num_tokens`` came from: ``tokens``, ``characters``, ``tokens of FILE``,
            or ``None`` where lengths are unknown.
        config: the run's settings by verl's names.
        columns: canonical column → type; numeric extras under their own names.
        domains: names of the domains that occur, sorted.
        steps: entries sorted by step.
        files: file name → entry.
        evaluation: why the responses are an evaluation, which never trained; else empty.
        findings: what stood out when the rows were read.
        trainer: what made the rows: ``verl``, another trainer, or empty where nothing says it.
    """

    writer: str
    source: str = ""
    label: str = ""
    lengths: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    steps: tuple[StepEntry, ...] = ()
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    evaluation: str = ""
    findings: tuple[Finding, ...] = ()
    trainer: str = ""
    version: int = TRACE_VERSION

    @property
    def fingerprint(self) -> str:
        """Digest of the rows, whatever their files and order: 16 hex digits. Settings stay out."""
        content = "\n".join(
            f"{s.step} {s.digest}" for s in sorted(self.steps, key=lambda s: s.step)
        )
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    @property
    def foreign(self) -> bool:
        """Whether another trainer than verl made the rows, or none."""
        return self.trainer not in ("", VERL)

    def emptied(self) -> Manifest:
        """The same source and settings, without steps and files."""
        return replace(self, columns={}, domains=(), steps=(), files={})

    @property
    def advantage_config(self) -> AdvantageConfig:
        """How the run computed advantages; verl's defaults where the config is silent.

        Raises:
            TraceError: an estimator that can't be recomputed, in a trace without advantages.
        """
        name = self.config.get("adv_estimator", "grpo")
        if name not in get_args(Estimator):
            if not {"advantage", "advantages"} & set(self.columns):
                known = ", ".join(get_args(Estimator))
                raise TraceError(
                    f"the run's adv_estimator '{name}' is not one that dfsim recomputes "
                    f"({known}){nearest(str(name), get_args(Estimator))}; import the run's "
                    "advantages with --map advantage=YOUR_COLUMN"
                )
            name = "grpo"
        if name == "grpo" and self.config.get("norm_adv_by_std_in_grpo") is False:
            name = "dr_grpo"
        eps, ddof = self.config.get("adv_eps", 1e-6), self.config.get("adv_std_ddof", 1)
        return AdvantageConfig(name, float(eps), int(ddof))

    @property
    def mini_batch_rows(self) -> int | None:
        """``ppo_mini_batch_size``·n output rows, where the config knows both."""
        prompts, n = self.config.get("ppo_mini_batch_size"), self.config.get("n")
        return int(prompts) * int(n) if prompts and n else None


_COUNTS = ("n", "ppo_mini_batch_size")
_POSITIVE = ("adv_eps", "loss_scale_factor", *_COUNTS)


def checked_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the run's settings, after making sure that a manifest can hold and use them.

    Raises:
        TraceError: a value that is not JSON, or a number that must be positive and is not.
    """
    checked = {name: value for name, value in (config or {}).items() if value is not None}
    for name, value in checked.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name in _POSITIVE and not (number and value > 0):
            raise TraceError(f"--set {name}={value}: it must be a number above 0")
        if name == "adv_std_ddof" and value not in (0, 1):
            raise TraceError(f"--set {name}={value}: it must be 0 (population) or 1 (Bessel)")
        if name in _COUNTS and value % 1:
            raise TraceError(f"--set {name}={value}: it must be a whole number")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise TraceError(
                f"--set {name}={value}: a manifest holds text, finite numbers, true or false; "
                "quote it to make it text"
            ) from None
    return checked


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` under a temporary name, then rename."""
    record = asdict(manifest)
    record["findings"] = [finding.to_dict() for finding in manifest.findings]
    record["manifest_sha256"] = _BLANK
    text = json.dumps(record, indent=1, sort_keys=False, allow_nan=False) + "\n"
    head, _, tail = text.rpartition(_BLANK)
    text = head + _digest(text) + tail
    with replacing_file(folder / MANIFEST) as scratch:
        scratch.write_bytes(text.encode())


def read_manifest(folder: Path) -> Manifest:
    """Read and verify ``manifest.json``.

    Raises:
        TraceError: it is missing, changed, not JSON, or of a version this reader does not know.
    """
    path = folder / MANIFEST
    try:
        text = path.read_bytes().decode()  # as it is: no newline may be translated
    except FileNotFoundError:
        raise TraceError(f"{folder} is not a trace: it holds no {MANIFEST}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} can't be read ({error}); restore it or re-import") from None
    try:
        record = json.loads(text)
        version = record["version"]
        written = str(record.pop("manifest_sha256"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TraceError(
            f"{path} was changed after dfsim wrote it; restore it or re-import"
        ) from None
    if version != TRACE_VERSION:
        raise TraceError(
            f"{path}: trace format version {version}; this dfsim reads version {TRACE_VERSION}. "
            "Upgrade dfsim, or write the trace again with this one"
        )
    head, _, tail = text.rpartition(written or _BLANK)
    if _digest(head + _BLANK + tail) != written:
        raise TraceError(f"{path} was changed after dfsim wrote it; restore it or re-import")
    try:
        record["steps"] = tuple(StepEntry(**s) for s in record["steps"])
        record["files"] = {n: FileEntry(**f) for n, f in record["files"].items()}
        record["domains"] = tuple(record["domains"])
        record["findings"] = tuple(Finding(**f) for f in record.get("findings", ()))
        return Manifest(**record)
    except (KeyError, TypeError, AttributeError):
        raise TraceError(
            f"{path} was changed after dfsim wrote it; restore it or re-import"
        ) from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
