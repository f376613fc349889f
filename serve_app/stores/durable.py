"""Making files durable that somebody else wrote: fsync of every new file below a folder, then of the folders; and
what a failed call on a file means.

LanceDB does not fsync on local disk. What it wrote must be on stable storage before the log
segments that hold the same records are dropped.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from serve_app.errors import StorageFull, StorageTrouble, StoreUnavailable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

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


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
