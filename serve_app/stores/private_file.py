"""Small files of a store that only its owner may read: replaced as a whole, durably, by one writer at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from serve_app.errors import StoreUnavailable
from serve_app.stores.durable import replace_file, trouble

V = TypeVar("V")

Stamp = tuple[int, int, int]
"""Time of change, inode and size of a file: another file, another stamp."""


class PrivateFile(Generic[V]):
    """A JSON file of one shape, read again whenever it changes, so that another process's change counts at once.

    Safe for many threads, and for writers in several processes: a lock file orders them.
    """

    def __init__(self, path: Path, shape: type[V], empty: Callable[[], V]) -> None:
        self._path = path
        self._path_text = str(path)  # looked at with each request: a Path would be made into one each time
        self._lock_path = path.with_name(f".{path.stem}.lock")
        self._decoder = msgspec.json.Decoder(shape)
        self._empty = empty()
        self._seen: tuple[Stamp | None, V] = (None, self._empty)
        self.trouble: str | None = None
        """Why the file cannot be read at the moment."""

    def read(self) -> V:
        """What the file holds; costs one stat while the file stays as it is.

        One that cannot be read any more holds what it held, and `trouble` says so. Raises StoreUnavailable for one
        that never could.
        """
        try:
            value = self._newest()
        except StoreUnavailable as error:
            self.trouble = str(error)
            if self._seen[0] is None:
                raise
            return self._seen[1]
        if self.trouble is not None:
            self.trouble = None
        return value

    def _newest(self) -> V:
        """Raises StoreUnavailable."""
        try:
            found = os.stat(self._path_text)
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            seen = self._seen
            if stamp != seen[0]:
                self._seen = seen = (stamp, self._decoder.decode(self._path.read_bytes()))
        except FileNotFoundError:
            return self._empty
        except (OSError, msgspec.DecodeError) as error:
            raise StoreUnavailable(f"{self._path.name} cannot be read: {error}") from error
        return seen[1]

    @contextmanager
    def changing(self) -> Iterator[Callable[[V], None]]:
        """Gives the way to write; one change at a time on this machine, each to what the one before left.

        Raises StorageFull; StoreUnavailable, also for a file that cannot be read: a change would replace it.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise trouble(f"{self._path.name} cannot be written", error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._newest()
            yield self._write
        finally:
            os.close(lock)

    def _write(self, value: V) -> None:
        write_private(self._path, msgspec.json.format(msgspec.json.encode(value)).decode())


def write_private(path: Path, text: str) -> None:
    """Replace a file as a whole, durably, readable by its owner only. Raises StorageFull, StoreUnavailable."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, fresh, [text.encode()])
    except OSError as error:
        raise trouble(f"{path.name} cannot be written", error) from error
