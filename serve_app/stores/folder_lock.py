"""One service, or one act of maintenance, a data folder: a lock that goes with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from serve_app.errors import StoreUnavailable

LOCK_FILE = "lock"


def lock_folder(folder: Path) -> int:
    """Gives the lock's open file. Raises StoreUnavailable, also where somebody else has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be a data folder: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StoreUnavailable(f"{folder} is in use by another service") from error
    return lock
