"""A hot index as a file, from which a replica is filled faster than from the tables.

The owners are written one after another while the index is searched and changed, each as it stands between two
batches; `marks` say up to which seq of each shard's log everything was in it when the writing began. What is played
back from there on may be in the file already, which changes nothing: adding replaces, and removing what is gone is no
error. The file ends with a digest; one that is torn, damaged or of another version is refused as a whole, and the index
then starts empty.

It holds vectors, also of those who are erased after it was written: it belongs in scratch space, is replaced by the
next one, and is deleted with the scratch.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec
import numpy as np

from serve_app.errors import MemstrataError
from serve_app.ports import Rows
from serve_app.stores.device import Halves
from serve_app.stores.hot_device import DeviceHotIndex

__all__ = ["SnapshotUnusable", "load", "save"]

T = TypeVar("T")

MAGIC = b"memstrata hot 1\n"
DIGEST_BYTES = 32
READ_BYTES = 1 << 20

_LENGTH = struct.Struct("<I")
_ROW, _HALF = np.dtype("<i8"), np.dtype("<f2")


class SnapshotUnusable(MemstrataError):
    """Never shown as an error: the index is filled from the tables then."""

    code = "snapshot_unusable"


class _Head(msgspec.Struct, frozen=True, array_like=True):
    version: str
    dimension: int
    marks: dict[int, int]


class _Part(msgspec.Struct, frozen=True, array_like=True):
    owner: str
    rows: int


class _Held(NamedTuple):
    owner: str
    rows: Rows
    halves: Halves


def save(
    index: DeviceHotIndex, path: Path, version: str, dimension: int, marks: Mapping[int, int], owners: Sequence[str]
) -> int:
    """Write these owners; gives the bytes. The file is whole or not there. Raises OSError."""
    beside = path.with_name(f"{path.name}.new")
    with beside.open("wb") as file:
        digest = blake2b(digest_size=DIGEST_BYTES)
        for piece in _pieces(index, _Head(version, dimension, dict(marks)), owners):
            digest.update(piece)
            file.write(piece)
        file.write(digest.digest())
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    os.replace(beside, path)
    return size


def _pieces(index: DeviceHotIndex, head: _Head, owners: Sequence[str]) -> Iterator[bytes]:
    yield MAGIC
    yield _framed(msgspec.msgpack.encode(head))
    for owner in owners:
        rows, halves = index.held(owner)
        if len(rows):
            yield _framed(msgspec.msgpack.encode(_Part(owner, len(rows))))
            yield rows.astype(_ROW).tobytes()
            yield halves.astype(_HALF).tobytes()


def _framed(packed: bytes) -> bytes:
    return _LENGTH.pack(len(packed)) + packed


def load(index: DeviceHotIndex, path: Path, version: str, dimension: int) -> dict[int, int]:
    """Fill the empty index; gives the marks. Raises SnapshotUnusable, and HotFull where it does not fit."""
    try:
        with path.open("rb") as file:
            _check(file)
            reading = _Reading(file, os.fstat(file.fileno()).st_size - DIGEST_BYTES)
            head = reading.framed(_Head)
            if (head.version, head.dimension) != (version, dimension):
                raise SnapshotUnusable(f"it holds vectors of {head.version}")
            while not reading.done:
                one = reading.held(dimension)
                index.add(one.owner, one.rows, one.halves.astype(np.float32))
            return head.marks
    except (OSError, msgspec.DecodeError) as error:
        raise SnapshotUnusable(f"{path.name}: {type(error).__name__}") from error


def _check(file: BinaryIO) -> None:
    """Read it once, whole, before anything of it is believed."""
    end = file.seek(0, os.SEEK_END) - DIGEST_BYTES
    file.seek(0)
    digest = blake2b(digest_size=DIGEST_BYTES)
    if end < len(MAGIC) or file.read(len(MAGIC)) != MAGIC:
        raise SnapshotUnusable("no snapshot of this form")
    digest.update(MAGIC)
    left = end - len(MAGIC)
    while left and (piece := file.read(min(left, READ_BYTES))):
        digest.update(piece)
        left -= len(piece)
    if left or file.read(DIGEST_BYTES) != digest.digest():
        raise SnapshotUnusable("it is torn or damaged")
    file.seek(len(MAGIC))


class _Reading:
    """Of a file that was checked, up to `end`."""

    def __init__(self, file: BinaryIO, end: int) -> None:
        self._file, self._end = file, end

    @property
    def done(self) -> bool:
        return self._file.tell() >= self._end

    def framed(self, kind: type[T]) -> T:
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        return msgspec.msgpack.decode(self._file.read(length), type=kind)

    def held(self, dimension: int) -> _Held:
        part = self.framed(_Part)
        rows = np.frombuffer(self._file.read(_ROW.itemsize * part.rows), _ROW).astype(np.int64)
        packed = self._file.read(_HALF.itemsize * dimension * part.rows)
        return _Held(part.owner, rows, np.frombuffer(packed, _HALF).reshape(-1, dimension).astype(np.float16))
