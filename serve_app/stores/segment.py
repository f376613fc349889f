"""The bytes of one segment: what one group commit leaves in the store. Pure; no I/O.

A segment is a header with its own checksum, then framed entries, payloads as they are (little-endian):

    header  "MSEG" | format u16 | flags u8 | writer_bytes u8 | number u64 | epoch u64 | last_seq u64 | prev_last_seq u64
            | count u32 | writer_id | crc32 u32 of all before it
    entry   length u32 | crc32 u32 of length, seq and payload | seq u64 | payload

The header says more than its entries could: `count` shows a cut at an entry's edge, `prev_last_seq` shows a
segment that is missing before this one, and `last_seq` keeps a seq used although its entry was lost.

`decode` never raises: it gives every intact entry before the first damage and says what the damage is.
A segment's name is its number and nothing else, so that two writers of one shard must collide on it.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

MAGIC = b"MSEG"
FORMAT = 1

_FENCE, _DERIVED, _CUT = 1, 2, 4
"""Bits of `flags`. Releases that knew the first one only wrote 0 or 1 here: their segments mean the same today."""

SEQ_SPAN_MAX = 65_536
"""Seqs that one segment may use up, and so entries that it may hold: how far to jump when its header is lost."""

WRITER_ID_BYTES_MAX = 255

_FIXED = struct.Struct("<4sHBBQQQQI")
_CRC = struct.Struct("<I")
_LENGTH_SEQ = struct.Struct("<IQ")
_FRAME = struct.Struct("<IIQ")
_NAME = re.compile(r"(\d{20})\.(seg|torn)")


class Entry(NamedTuple):
    """One record of the log."""

    seq: int
    payload: bytes


class Header(msgspec.Struct, frozen=True):
    """What a segment says of itself.

    It uses up the seqs after `prev_last_seq`, the last one used before it, up to `last_seq`, whether or not an
    entry stands at each of them: an empty segment may use up seqs, too. A `fence` is the empty segment by which
    a writer takes the shard over. What a `derived` segment holds can be computed again. A `cut` one is what a repair
    left of a torn tail: derived segments behind it, up to the next fence, speak of what was lost and do not count.
    """

    number: int
    epoch: int
    writer_id: str
    last_seq: int
    prev_last_seq: int
    count: int
    fence: bool = False
    derived: bool = False
    cut: bool = False

    @property
    def dispensable(self) -> bool:
        """Whether nothing is lost with this segment but work. A fence is not: it says that all before it was whole."""
        return not (self.fence or self.cut) and (self.derived or self.count == 0)


class Decoded(msgspec.Struct, frozen=True):
    """What could be read: `entries` are intact and end at `valid_bytes`; a whole segment has no `fault`."""

    header: Header | None
    entries: tuple[Entry, ...]
    valid_bytes: int
    fault: str | None


class _Broken(Exception):
    """The first damage met while decoding; never leaves this module."""


def segment_name(number: int) -> str:
    return f"{number:020d}.seg"


def torn_name(number: int) -> str:
    """Where the damaged bytes of a segment are kept for a person to look at."""
    return f"{number:020d}.torn"


def number_of(name: str, suffix: str = "seg") -> int | None:
    """The number that a name stands for, or None where it is not a name of that kind."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and match[2] == suffix else None


def encode(header: Header, entries: Sequence[Entry]) -> bytes:
    """The segment's bytes. Raises ValueError where header and entries contradict each other."""
    _check(header, entries)
    parts = [_encode_header(header)]
    for seq, payload in entries:
        crc = zlib.crc32(payload, zlib.crc32(_LENGTH_SEQ.pack(len(payload), seq)))
        parts += (_FRAME.pack(len(payload), crc, seq), payload)
    return b"".join(parts)


def decode(data: bytes) -> Decoded:
    """Read as far as the bytes are intact. Never raises."""
    entries: list[Entry] = []
    try:
        header, end = _decode_header(data)
    except _Broken as broken:
        return Decoded(None, (), 0, str(broken))
    try:
        for entry, entry_end in _frames(data, end, header):
            entries.append(entry)
            end = entry_end
        fault = f"trailing bytes at byte {end}" if end < len(data) else None
    except _Broken as broken:
        fault = str(broken)
    return Decoded(header, tuple(entries), end, fault)


def _check(header: Header, entries: Sequence[Entry]) -> None:
    if header.count != len(entries):
        raise ValueError(f"header counts {header.count} entries, given are {len(entries)}")
    if not 0 <= header.last_seq - header.prev_last_seq <= SEQ_SPAN_MAX:
        raise ValueError(f"a segment uses up 0 to {SEQ_SPAN_MAX} seqs, not {header.prev_last_seq} to {header.last_seq}")
    floor = header.prev_last_seq
    for seq, _ in entries:
        if not floor < seq <= header.last_seq:
            raise ValueError(f"seq {seq} is out of order or outside {header.prev_last_seq + 1} to {header.last_seq}")
        floor = seq


def _encode_header(header: Header) -> bytes:
    writer = header.writer_id.encode()
    if len(writer) > WRITER_ID_BYTES_MAX:
        raise ValueError(f"a writer id has at most {WRITER_ID_BYTES_MAX} bytes, not {len(writer)}")
    seqs = (header.last_seq, header.prev_last_seq)
    flags = _FENCE * header.fence | _DERIVED * header.derived | _CUT * header.cut
    fixed = _FIXED.pack(MAGIC, FORMAT, flags, len(writer), header.number, header.epoch, *seqs, header.count)
    return fixed + writer + _CRC.pack(zlib.crc32(fixed + writer))


def _decode_header(data: bytes) -> tuple[Header, int]:
    """The header and the byte after it."""
    if not data:
        raise _Broken("empty")
    if len(data) < _FIXED.size:
        raise _Broken(f"truncated at byte {len(data)}")
    magic, version, flags, writer_bytes, number, epoch, last_seq, prev_last_seq, count = _FIXED.unpack_from(data)
    if magic != MAGIC:
        raise _Broken("not a segment at byte 0")
    if version != FORMAT:
        raise _Broken(f"unknown format {version}")
    signed = _FIXED.size + writer_bytes
    if len(data) < signed + _CRC.size:
        raise _Broken(f"truncated at byte {len(data)}")
    if zlib.crc32(data[:signed]) != _CRC.unpack_from(data, signed)[0]:
        raise _Broken("checksum mismatch at byte 0")
    writer_id = data[_FIXED.size : signed].decode(errors="replace")
    kinds = (bool(flags & _FENCE), bool(flags & _DERIVED), bool(flags & _CUT))
    header = Header(number, epoch, writer_id, last_seq, prev_last_seq, count, *kinds)
    return header, signed + _CRC.size


def _frames(data: bytes, start: int, header: Header) -> Iterator[tuple[Entry, int]]:
    """Each entry that the header counts, with the byte after it, until the first that is not intact."""
    floor = header.prev_last_seq
    for _ in range(header.count):
        if len(data) < start + _FRAME.size:
            raise _Broken(f"truncated at byte {len(data)}")
        length, crc, seq = _FRAME.unpack_from(data, start)
        end = start + _FRAME.size + length
        if len(data) < end:
            raise _Broken(f"truncated at byte {len(data)}")
        payload = data[start + _FRAME.size : end]
        if zlib.crc32(payload, zlib.crc32(_LENGTH_SEQ.pack(length, seq))) != crc:
            raise _Broken(f"checksum mismatch at byte {start}")
        if not floor < seq <= header.last_seq:
            raise _Broken(f"seq {seq} out of order at byte {start}")
        floor = seq
        yield Entry(seq, payload), end
        start = end
