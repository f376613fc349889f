"""Which files a version of a LanceDB table consists of: those that its manifest names, and no other.

A manifest names data and transaction files by their name, an index by the 16 bytes of its UUID, and a deletion file by
the version and the id that stand in its name, as the two fields of protobuf that hold them. None of them is ever
written again under the same name, so whoever has copied one has it for good.
(Format: https://lance.org/format/table/, protos/table.proto; checked with lancedb 0.40.)
"""

from __future__ import annotations

import re
import uuid

MANIFESTS = "_versions/"
_MANIFEST = re.compile(r"_versions/(\d{1,20})\.manifest")
_DELETION = re.compile(r"_deletions/\d+-(\d+)-(\d+)\.\w+")
_INDEX = re.compile(r"_indices/([0-9a-f-]{36})/.+")
_NEWEST_FIRST = 2**64 - 1
"""Manifests are named by this number less the version, so that the newest comes first; twenty digits wide."""

_READ_VERSION, _ID = b"\x10", b"\x18"
"""Tags of protobuf's fields 2 and 3 of a DeletionFile, both varints."""


def manifest_version(path: str) -> int | None:
    """The version whose manifest lies at this path of a table; None where it is no manifest."""
    match = _MANIFEST.fullmatch(path)
    if match is None:
        return None
    number = int(match[1])
    return _NEWEST_FIRST - number if len(match[1]) == 20 else number


def names(manifest: bytes, path: str) -> bool:
    """Whether the manifest names the file at this path of its table."""
    if match := _INDEX.fullmatch(path):
        return uuid.UUID(match[1]).bytes in manifest
    if match := _DELETION.fullmatch(path):
        return _READ_VERSION + _varint(int(match[1])) + _ID + _varint(int(match[2])) in manifest
    if path.startswith(("data/", "_transactions/")):
        return path.rpartition("/")[2].encode() in manifest
    return False


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
