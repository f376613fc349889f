"""Making files durable: one that is replaced as a whole, or all that somebody else wrote below a folder; and what a
failed call on a file means.

LanceDB does not fsync on local disk. What it wrote must be on stable storage before the log
segments that hold the same records are dropped.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from serve_app.errors import StorageFull, StorageTrouble, StoreUnavailable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Fsync = Callable[[int], None]
"""Of an open file or folder; an argument where tests need not wait for the disk, or let it fail."""

CLOCK_SLACK_NS = 2_000_000_000
"""File systems stamp coarsely: a file that looks so much older than the last sync is synced again."""


class SyncedFolder:
    """Remembers when it last synced, so that a sync costs what was written since. Called by one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced_ns = 0

    def sync(self) -> int:
        """Gives the number of files and folders synced. Raises OSError."""
        newest = self._synced_ns
        synced = 0
        if not self._synced_ns and self._folder.exists():
            _fsync(str(self._folder.parent))  # the folder's own name
        for root, _, files in os.walk(self._folder, topdown=False):
            for path in [*(os.path.join(root, name) for name in files), root]:
                try:
                    changed = os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    continue  # an older version's file, cleaned up meanwhile
                newest = max(newest, changed)
                if changed + CLOCK_SLACK_NS >= self._synced_ns:
                    _fsync(path)
                    synced += 1
        self._synced_ns = newest
        return synced


def local_folder(uri: str) -> Path | None:
    """The folder that a plain path or a file URI names; None for an object store."""
    if uri.startswith("file://"):
        return Path(unquote(urlsplit(uri).path))
    return None if "://" in uri else Path(uri)


def trouble(what: str, error: OSError) -> StorageTrouble:
    """What a failed system call means for the store."""
    kind = StorageFull if error.errno in _FULL else StoreUnavailable
    return kind(f"{what}: {error.strerror or error}")


def replace_file(path: Path, fresh: Path, pieces: Iterable[bytes], fsync: Fsync = os.fsync) -> None:
    """Write a file as a whole, readable by its owner only: it holds the old bytes or the new ones, whatever happens.

    `fresh` is where it is written first, in the same folder; nothing is left there. Raises OSError.
    """
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent, fsync)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def write_private(path: Path, data: bytes) -> None:
    """Replace a file as a whole, durably, readable by its owner only. Raises StorageFull, StoreUnavailable."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, fresh, [data])
    except OSError as error:
        raise trouble(f"{path.name} cannot be written", error) from error


def make_folders(folder: Path, mode: int = 0o777, fsync: Fsync = os.fsync) -> None:
    """Make a folder and those above it. Each new one's own name is synced, too: a file is not safer than its path."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True, mode=mode)
        sync_folder(one.parent, fsync)


def sync_folder(folder: Path, fsync: Fsync = os.fsync) -> None:
    """The names in it are on stable storage."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
