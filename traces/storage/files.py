"""Writing without loss: a temporary name first, then a rename; nothing half-written is visible."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import DfsimError


def temporary(target: Path) -> Path:
    """Name beside ``target`` that no reader looks at."""
    return target.with_name(f".{target.name}.tmp-{os.getpid()}")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_regular(target: Path) -> None:
    """Refuse a folder, and what a rename would destroy, such as a device or a pipe.

    Raises:
        DfsimError: the target exists and is no regular file.
    """
    if target.is_dir():
        raise DfsimError(f"{target} is a folder; name a file")
    if target.exists() and not target.is_file():
        raise DfsimError(f"{target} is no regular file, so it can't be replaced; name another")


@contextlib.contextmanager
def replacing_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path; on success it becomes ``target``, on any failure it disappears.

    Raises:
        DfsimError: the folder does not exist, or is not writable.
    """
    check_regular(target)
    if not target.parent.is_dir():
        raise DfsimError(f"{target.parent} is not a folder; create it, or choose another place")
    scratch = temporary(target)
    try:
        yield scratch
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def refuse_here(out: Path) -> None:
    """Refuse the current folder: a rename would pull it from under the shell.

    Raises:
        DfsimError: it is the current folder.
    """
    if out.resolve() == Path.cwd():
        raise DfsimError(f"--out {out} is the current folder; name one to create")


def check_new_folder(target: Path, marker: str, force: bool) -> None:
    """Refuse a folder that must not be replaced.

    Raises:
        DfsimError: it exists and ``force`` is off, or it holds files but not ``marker``.
    """
    if target.exists() and not target.is_dir():
        raise DfsimError(f"{target} is no folder; choose another --out")
    if not target.exists():
        _check_writable(target)
        return
    if not any(target.iterdir()):
        return
    if not force:
        raise DfsimError(f"{target} exists; choose another --out, or add --force to replace it")
    if not _is_ours(target / marker):
        raise DfsimError(
            f"{target} holds no {marker} of dfsim's, so --force will not replace it; choose "
            "another --out"
        )


def _check_writable(target: Path) -> None:
    """Refuse a folder that can't be created, before anything is computed for it."""
    place = next(p for p in Path(os.path.abspath(target)).parents if p.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".dfsim-", dir=place):
            pass
    except OSError as error:
        raise DfsimError(
            f"{target} can't be created in {place} ({error.strerror}); choose another --out"
        ) from None


def _is_ours(marker: Path) -> bool:
    """Whether dfsim wrote a marker: others have a manifest.json too."""
    return marker.is_file() and b'"dfsim' in marker.read_bytes()


@contextlib.contextmanager
def replacing_folder(target: Path, marker: str, force: bool) -> Iterator[Path]:
    """Yield a temporary folder; on success it becomes ``target``, on any failure it disappears.

    Args:
        target: the folder to create.
        marker: a file that says a folder is dfsim's own; only such a folder is ever replaced.
        force: whether an existing one may be replaced (only after success).
    """
    check_new_folder(target, marker, force)
    target = Path(os.path.realpath(target))  # a link, or "."
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = temporary(target)
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(scratch, target)
        except BaseException:
            if old.exists():
                os.replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
