"""Small files in a folder, which only their owner may read. Lock files order writers; a look is a stat."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from serve_app.errors import StorageTrouble, StoreUnavailable
from serve_app.stores.documents import Document, Made
from serve_app.stores.durable import make_folders, trouble, write_private

_PRIVATE = 0o700


class DiskDocuments:
    """See `Documents`. Makes nothing before the first change."""

    settles_s = 0.0
    """Whoever asks looks at the file itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def address(self) -> str:
        return str(self._folder)

    def watch(self, name: str) -> WatchedFile:
        return WatchedFile(self._folder / name)

    def read(self, name: str, known: Hashable = None) -> Document | None:
        return self.watch(name).newest(known)

    def change(self, name: str, made: Made) -> Document | None:
        path = self._folder / name
        with _locked(path, below=path.parent != self._folder):
            found = self.read(name)
            data = made(None if found is None else found.data)
            if data is None:
                return found
            write_private(path, data)
            return Document(_stamp(os.stat(path)), data)

    def names(self, folder: str) -> Sequence[str]:
        try:
            found = sorted(os.listdir(self._folder / folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise trouble(f"{folder} cannot be listed", error) from error
        return [f"{folder}/{name}" for name in found if not name.startswith(".")]

    def delete(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise trouble(f"{name} cannot be removed", error) from error

    def clear_leftovers(self, folder: str) -> None:
        for path in (self._folder / folder).glob(".*.json.*"):
            document = path.with_name(path.name[1:].rpartition(".")[0])
            with suppress(OSError, StorageTrouble), _locked(document, below=True):  # a writer that lives ends first
                path.unlink()


class WatchedFile:
    """See `Watched`."""

    trouble = None
    """What is shown is always the newest; what cannot be read is an error."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)  # looked at with each request: a Path would be made into one each time
        self._name = path.name

    def newest(self, known: Hashable = None) -> Document | None:
        try:
            stamp = _stamp(os.stat(self._path))
            if stamp == known:
                return Document(stamp, None)
            with open(self._path, "rb") as file:
                return Document(stamp, file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"{self._name} cannot be read: {error}") from error


def _stamp(found: os.stat_result) -> Hashable:
    """Time of change, inode and size: another file, another stamp."""
    return found.st_mtime_ns, found.st_ino, found.st_size


@contextmanager
def _locked(path: Path, below: bool) -> Iterator[None]:
    """One at a time on this machine. A folder `below` that of the store is as private as its files."""
    try:
        if below:
            make_folders(path.parent, _PRIVATE)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(f".{path.stem}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise trouble(f"{path.name} cannot be written", error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
