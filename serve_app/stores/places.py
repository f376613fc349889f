"""Trees of files that are not the service's own store: where backups lie, and a store seen from outside.

A place is a folder or a prefix of a bucket. What `put` has returned for is durable and whole; a name is replaced as
a whole. Nothing here takes part in the log's protocol: a running service may write below the same root meanwhile.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import obstore
from obstore.exceptions import BaseError

from serve_app.core import SECOND_US
from serve_app.errors import NotFound, StoreUnavailable
from serve_app.stores.durable import Fsync, local_folder, make_folders, replace_file, trouble
from serve_app.stores.segments_object import open_object_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

CHUNK_BYTES = 1 << 20
"""Of a file that are in memory at once, on a disk; a bucket gives and takes pieces of its own size."""

WHOLE_BYTES = 8 << 20
"""Files of a bucket that are smaller are put in one request, and are in memory as a whole meanwhile."""

TEMP_SUFFIX = ".tmp"

URI_SHOWN = 200
"""Characters of an address that an error tells."""


class Blob(NamedTuple):
    """One file: its path below the root, its size in bytes, when it was written (microseconds, the place's clock)."""

    path: str
    size: int
    at: int


class Place(Protocol):
    """Raises StoreUnavailable, StorageFull; `chunks` raises NotFound before the first piece."""

    def list(self, prefix: str = "") -> list[Blob]:
        """Every file below a folder of the place, sorted by path."""
        ...

    def chunks(self, path: str) -> Iterator[bytes]: ...

    def put(self, path: str, chunks: Iterable[bytes]) -> None: ...

    def delete(self, paths: Sequence[str]) -> None:
        """In the given order; what is not there is no error."""
        ...

    def clear(self, prefix: str) -> None:
        """Remove everything below a folder of the place, also what a writer that was killed has left half written."""
        ...


def read(place: Place, path: str) -> bytes:
    """A whole small file."""
    return b"".join(place.chunks(path))


def open_place(uri: str, options: Mapping[str, str]) -> Place:
    """The place at a plain path, `file:///path`, or a bucket such as `s3://bucket/prefix`. Makes nothing.

    Raises StoreUnavailable for what is no address.
    """
    try:
        folder = local_folder(uri)
        return ObjectPlace(open_object_store(uri, options)) if folder is None else DiskPlace(folder)
    except (ValueError, OSError, RuntimeError) as error:  # a NUL, too long a name, links in a circle
        raise StoreUnavailable(f"{uri[:URI_SHOWN]!r} is no place for files: {error}") from error


class DiskPlace:
    """`fsync` is an argument so that tests need not wait for the disk."""

    def __init__(self, root: Path, fsync: Fsync = os.fsync) -> None:
        self._root = root.resolve()
        self._fsync = fsync

    def list(self, prefix: str = "") -> list[Blob]:
        found: list[Blob] = []
        with _disk(prefix):
            for folder, _, names in os.walk(self._root / prefix):
                for path in (Path(folder, name) for name in names if not name.endswith(TEMP_SUFFIX)):
                    with suppress(FileNotFoundError):  # went since it was listed
                        stat = path.stat()
                        relative = path.relative_to(self._root).as_posix()
                        found.append(Blob(relative, stat.st_size, stat.st_mtime_ns // 1000))
        return sorted(found)

    def chunks(self, path: str) -> Iterator[bytes]:
        with _disk(path), (self._root / path).open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        target = self._root / path
        temp = target.with_name(f".{target.name}.{os.getpid()}{TEMP_SUFFIX}")
        with _disk(path):
            make_folders(target.parent, 0o700, self._fsync)
            replace_file(target, temp, chunks, self._fsync)

    def delete(self, paths: Sequence[str]) -> None:
        """Folders that are left empty go, too."""
        with _disk("delete"):
            for path in (self._root / path for path in paths):
                path.unlink(missing_ok=True)
                with suppress(OSError):
                    for folder in path.parents:
                        if folder == self._root:
                            break
                        folder.rmdir()

    def clear(self, prefix: str) -> None:
        with _disk(prefix), suppress(FileNotFoundError):
            shutil.rmtree(self._root / prefix)


class ObjectPlace:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def list(self, prefix: str = "") -> list[Blob]:
        folder = f"{prefix.strip('/')}/" if prefix.strip("/") else None
        with _bucket(prefix):
            items = [item for page in obstore.list(self._store, prefix=folder) for item in page]
        return sorted(
            Blob(item["path"], item["size"], int(item["last_modified"].timestamp() * SECOND_US)) for item in items
        )

    def chunks(self, path: str) -> Iterator[bytes]:
        with _bucket(path):
            for piece in obstore.get(self._store, path).stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(piece)

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """What is small goes in one request; the rest in parts, of which nothing is seen before the last one."""
        pieces = iter(chunks)
        first = list(_up_to(WHOLE_BYTES, pieces))
        with _bucket(path):
            if sum(map(len, first)) < WHOLE_BYTES:
                obstore.put(self._store, path, b"".join(first), use_multipart=False)
                return
            writer = obstore.open_writer(self._store, path, buffer_size=WHOLE_BYTES)
            for piece in chain(first, pieces):
                writer.write(piece)
            writer.close()  # only now is it there; a source that fails leaves parts that no one can read

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with _bucket(path), suppress(FileNotFoundError):
                obstore.delete(self._store, path)

    def clear(self, prefix: str) -> None:
        self.delete([blob.path for blob in self.list(prefix)])


def _up_to(count: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces until so many bytes have come."""
    for piece in pieces:
        yield piece
        count -= len(piece)
        if count <= 0:
            return


@contextmanager
def _disk(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"{what} is not there") from error
    except OSError as error:
        raise trouble(what, error) from error


@contextmanager
def _bucket(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"{what} is not there") from error
    except (BaseError, OSError) as error:
        raise StoreUnavailable(f"{what}: {str(error).partition(chr(10))[0]}") from error
