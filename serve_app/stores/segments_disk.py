"""Segments as files of one folder. Owns the folder; promises that what was created survives a power cut.

A segment comes into being in five steps, each of which may be the last before the power goes:

    1. write    the bytes go to a temporary file beside the target (its name begins with a dot)
    2. fsync    they are on stable storage
    3. link     they get their name, unless it exists: this is what makes two writers collide
    4. fsync    of the folder: the name is on stable storage
    5. unlink   the temporary name goes

Before step 3 nothing is there, after it everything. Needs a file system with hard links.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from serve_app.errors import NameTaken, NotFound, StoreUnavailable
from serve_app.stores.durable import Fsync, make_folders, sync_folder, trouble

_TEMP_PREFIX, _TEMP_SUFFIX = ".", ".tmp"


@dataclass(frozen=True)
class DiskCalls:
    """The system calls that change the folder. Tests hand in ones that fail, or that stop half-way."""

    write: Callable[[int, memoryview], int] = os.write
    fsync: Fsync = os.fsync
    link: Callable[[Path, Path], None] = os.link
    rename: Callable[[Path, Path], None] = os.replace
    unlink: Callable[[Path], None] = os.unlink


SYSTEM_CALLS = DiskCalls()


class DiskReader:
    """`WatchedSegments` in a local folder, which may be mounted read-only."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).resolve()

    def read(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"no segment {name}") from error
        except OSError as error:
            raise trouble(name, error) from error

    def names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._folder) if not name.startswith(_TEMP_PREFIX))
        except OSError as error:
            raise trouble(str(self._folder), error) from error

    def stamp(self, name: str) -> Hashable:
        try:
            found = os.stat(self._folder / name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise trouble(name, error) from error
        return found.st_ino, found.st_mtime_ns, found.st_size


class DiskSegments(DiskReader):
    """A `SegmentStore` in a local folder, which is made if it is not there. Raises StoreUnavailable, StorageFull.

    StorageFull says for certain that nothing was stored; after StoreUnavailable the segment may be there.
    """

    def __init__(self, folder: str | Path, calls: DiskCalls = SYSTEM_CALLS) -> None:
        super().__init__(folder)
        self._calls = calls
        self._mine = secrets.token_hex(8)
        self._temps = itertools.count()
        try:
            make_folders(self._folder, fsync=calls.fsync)
            self._remove_leftovers()
        except OSError as error:
            raise trouble(str(self._folder), error) from error

    def create(self, name: str, data: bytes) -> None:
        temp = self._temp(name)
        try:
            self._write(temp, data)
            self._publish(temp, self._folder / name)
        except FileExistsError as error:
            raise NameTaken(f"{name} exists") from error
        except OSError as error:
            raise trouble(name, error) from error
        finally:
            self._discard(temp)

    def delete(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._calls.unlink(self._folder / name)
            self._sync_folder()
        except OSError as error:
            raise trouble("delete", error) from error

    def replace(self, name: str, data: bytes, keep_as: str) -> None:
        """Stopped at any step, `name` holds the old bytes or the new ones, and calling again completes it."""
        temp = self._temp(name)
        try:
            self._write(temp, data)
            self._keep(name, keep_as)
            self._calls.rename(temp, self._folder / name)
            self._sync_folder()
        except FileNotFoundError as error:
            raise NotFound(f"no segment {name}") from error
        except OSError as error:
            raise trouble(name, error) from error
        finally:
            self._discard(temp)

    def _remove_leftovers(self) -> None:
        for name in os.listdir(self._folder):
            if name.startswith(_TEMP_PREFIX) and name.endswith(_TEMP_SUFFIX):
                self._discard(self._folder / name)

    def _temp(self, name: str) -> Path:
        """Never given twice, so that two processes which both believe that they own the folder never share a file."""
        return self._folder / f"{_TEMP_PREFIX}{name}.{self._mine}-{next(self._temps)}{_TEMP_SUFFIX}"

    def _write(self, temp: Path, data: bytes) -> None:
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._calls.write(descriptor, rest) :]
            self._calls.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _publish(self, temp: Path, path: Path) -> None:
        try:
            self._calls.link(temp, path)
        except FileExistsError:
            # Whoever is told that the name is taken may build on it: it must outlive a power cut, too.
            self._sync_folder()
            raise
        try:
            self._sync_folder()
        except OSError as error:
            self._withdraw(path, error)
            raise

    def _withdraw(self, path: Path, cause: OSError) -> None:
        """Take back a name that is not known to be durable, so that its number can be used again."""
        try:
            self._calls.unlink(path)
        except OSError as error:
            raise StoreUnavailable(f"{path.name}: may be stored: {cause.strerror}, then {error.strerror}") from cause

    def _keep(self, name: str, keep_as: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._calls.unlink(self._folder / keep_as)
        self._calls.link(self._folder / name, self._folder / keep_as)

    def _sync_folder(self) -> None:
        sync_folder(self._folder, self._calls.fsync)

    def _discard(self, temp: Path) -> None:
        # A leftover costs room and nothing else, and goes at the next start: no reason to fail a durable write.
        with contextlib.suppress(OSError):
            self._calls.unlink(temp)
