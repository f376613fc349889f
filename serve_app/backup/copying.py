"""Copying files from one place to another: at a bounded rate, in small pieces, with a checksum of what went by."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from serve_app.errors import MemstrataError, StoreUnavailable
from serve_app.stores.places import Place

BYTES_A_SECOND = 64 << 20
"""What a backup of a running service reads and writes at most, unless told otherwise."""


class Stopped(MemstrataError):
    """The copying was asked to end before it was done; what is whole stays and is not copied again."""

    code = "stopped"


class Pace:
    """Lets so many bytes a second by, and nobody once it is stopped. For one copying thread."""

    def __init__(self, bytes_a_second: int | None, moved: Callable[[int], None] = lambda count: None) -> None:
        self._rate = bytes_a_second
        self._moved = moved
        self._stop = threading.Event()
        self._free_at = time.monotonic()

    def stop(self) -> None:
        self._stop.set()

    def step(self) -> None:
        """Raises Stopped."""
        if self._stop.is_set():
            raise Stopped("the copying was stopped")

    def pay(self, count: int) -> None:
        """Wait until so many more bytes may have gone by. Raises Stopped."""
        self._moved(count)
        if self._rate is not None:
            self._free_at = max(self._free_at, time.monotonic()) + count / self._rate
            self._stop.wait(max(0.0, self._free_at - time.monotonic()))
        self.step()


class _Digest:
    """Counts and hashes what goes by."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()

    def watch(self, pieces: Iterable[bytes], pace: Pace) -> Iterator[bytes]:
        for piece in pieces:
            self.size += len(piece)
            self._hash.update(piece)
            pace.pay(len(piece))
            yield piece

    @property
    def found(self) -> tuple[int, str]:
        return self.size, self._hash.hexdigest()


def copy(source: Place, path: str, target: Place, to: str, pace: Pace) -> tuple[int, str]:
    """Gives size and SHA-256 of what was copied. Raises NotFound where it went meanwhile, StorageTrouble, Stopped."""
    digest = _Digest()
    target.put(to, digest.watch(source.chunks(path), pace))
    return digest.found


def checksum(place: Place, path: str, pace: Pace) -> tuple[int, str]:
    """Size and SHA-256 of a file where it lies. Raises NotFound, StorageTrouble, Stopped."""
    digest = _Digest()
    for _ in digest.watch(place.chunks(path), pace):
        continue
    return digest.found


def copy_checked(source: Place, path: str, target: Place, to: str, expected: tuple[int, str], pace: Pace) -> None:
    """Raises StoreUnavailable where the bytes are not those that were promised; they are not left behind then."""
    if copy(source, path, target, to, pace) != expected:
        target.delete([to])
        raise StoreUnavailable(f"{path} is damaged: its size or checksum is not that of the manifest")
