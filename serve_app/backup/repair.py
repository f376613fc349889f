"""Making a shard with a hole in its log take writes again: an explicit act, because it gives entries up.

What is intact stays, before the hole and behind it. A damaged segment is cut to its intact entries, one that is
missing or unreadable becomes an empty one; both use up the seqs that stood there, so that none is given out again.
Behind the hole, edits and vectors of turns that are lost go, too. Deletions and erasures that stood in the hole are
lost like everything else in it: what they had removed may be back.

Worked out on a copy in memory first; nothing is changed until `apply`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from serve_app.errors import LogDamaged, NotFound
from serve_app.ports import SegmentStore
from serve_app.records import Record, TurnPut, VectorsPut, decode_record, encode_record
from serve_app.stores.places import Place
from serve_app.stores.replay import Replay, replay
from serve_app.stores.segment import (
    SEQ_SPAN_MAX,
    Decoded,
    Entry,
    Header,
    decode,
    encode,
    number_of,
    segment_name,
    torn_name,
)

HOLES_MAX = 1_000
"""Of one log that are mended in one act."""


class Change(msgspec.Struct, frozen=True):
    """One segment to be written. `old` is what stands there, None where it is missing.

    `kept` entries stay of it; `lost` are given up: None where nobody knows how many there were, `seqs_lost` at most.
    """

    segment: str
    reason: str
    kept: int
    lost: int | None
    seqs_lost: int
    data: bytes
    old: bytes | None


class _Overlay:
    """A log with the changes made so far, in memory."""

    def __init__(self, segments: SegmentStore) -> None:
        self._segments = segments
        self.changes: dict[str, Change] = {}

    def names(self) -> list[str]:
        return sorted({*self._segments.names(), *self.changes})

    def read(self, name: str) -> bytes:
        change = self.changes.get(name)
        return self._segments.read(name) if change is None else change.data

    def original(self, name: str) -> bytes | None:
        try:
            return self._segments.read(name)
        except NotFound:
            return None

    def create(self, name: str, data: bytes) -> None:
        raise NotImplementedError("nothing is stored before `apply`")

    def delete(self, names: Sequence[str]) -> None:
        raise NotImplementedError("nothing is stored before `apply`")

    def replace(self, name: str, data: bytes, keep_as: str) -> None:
        raise NotImplementedError("nothing is stored before `apply`")


def work_out(segments: SegmentStore, folded_seq: int) -> list[Change]:
    """What a repair would change, oldest first; empty for a log without a hole. Raises LogDamaged, StoreUnavailable."""
    overlay = _Overlay(segments)
    for _ in range(HOLES_MAX):
        found = replay(overlay, folded_seq)
        if found.damage is None or found.damage.kind != "hole":
            return [overlay.changes[name] for name in sorted(overlay.changes)]
        _mend(overlay, found)
    raise LogDamaged(f"more than {HOLES_MAX} holes: restore a backup instead")


def apply(segments: SegmentStore, changes: Sequence[Change], aside: Place, folder: str) -> None:
    """Keep what stands there under `folder` of `aside`, then write. Stopped anywhere, working out and applying again
    completes it. Raises StorageTrouble.
    """
    for change in changes:
        if change.old is None:
            segments.create(change.segment, change.data)
            continue
        aside.put(f"{folder}/{change.segment}", [change.old])
        segments.replace(change.segment, change.data, torn_name(number_of(change.segment) or 0))


def _mend(overlay: _Overlay, found: Replay) -> None:
    """One hole less."""
    assert found.damage is not None
    name, reason = found.damage.segment, found.damage.reason
    if name in overlay.changes:
        raise LogDamaged(f"{name} {reason} even when mended: restore a backup instead")
    old = overlay.original(name)
    decoded = _own(decode(old or b""), name)
    if decoded.header is not None:
        lost = _cut(overlay, name, reason, decoded, old)
    else:
        lost = _fill(overlay, name, reason, found)
    _forget_behind(overlay, name, lost)


def _cut(overlay: _Overlay, name: str, reason: str, decoded: Decoded, old: bytes | None) -> set[int] | range:
    """Keep the intact entries of a segment whose header can be read."""
    header = decoded.header
    assert header is not None
    if decoded.fault is None:
        raise LogDamaged(f"{name} is whole but does not follow on what is before it: restore a backup instead")
    mended = msgspec.structs.replace(header, count=len(decoded.entries), cut=True)
    kept = {entry.seq for entry in decoded.entries}
    lost = set(range(header.prev_last_seq + 1, header.last_seq + 1)) - kept
    data = encode(mended, decoded.entries)
    count = header.count - len(decoded.entries)
    overlay.changes[name] = Change(name, reason, len(decoded.entries), count, count, data, old)
    return lost


def _fill(overlay: _Overlay, name: str, reason: str, found: Replay) -> range:
    """Empty segments for those that are missing or unreadable, up to the next one that can be read."""
    gone, after = _run_of(overlay, name)
    reached = found.last_seq
    end = reached + SEQ_SPAN_MAX * len(gone) if after is None else after.prev_last_seq
    if end - reached > SEQ_SPAN_MAX * len(gone):
        raise LogDamaged(f"{name} {reason}: too much is missing there: restore a backup instead")
    for number in gone:
        last = min(end, reached + SEQ_SPAN_MAX)
        final = after is None and number == gone[-1]
        epoch = found.epoch + final if after is None else after.epoch
        header = Header(number, epoch, "", last, reached, 0, fence=final, cut=True)
        this = segment_name(number)
        old = overlay.original(this)
        why = "is missing" if old is None else reason if this == name else "cannot be read"
        overlay.changes[this] = Change(this, why, 0, None, last - reached, encode(header, ()), old)
        reached = last
    return range(found.last_seq + 1, end + 1)


def _run_of(overlay: _Overlay, name: str) -> tuple[list[int], Header | None]:
    """Numbers from this one on that are missing or unreadable, and the header of the first that can be read."""
    first = number_of(name) or 0
    there = {number: one for one in overlay.names() if (number := number_of(one)) is not None and number >= first}
    gone: list[int] = []
    for number in range(first, max(there, default=first) + 1):
        header = _own(decode(overlay.read(there[number])), there[number]).header if number in there else None
        if header is not None:
            return gone, header
        gone.append(number)
    return gone or [first], None


def _forget_behind(overlay: _Overlay, name: str, lost: set[int] | range) -> None:
    """Edits and vectors of lost turns, wherever they stand behind the hole, so that no half of a turn is left."""
    for other in [one for one in overlay.names() if one > name and number_of(one) is not None]:
        if other in overlay.changes:
            continue
        data = overlay.read(other)
        decoded = _own(decode(data), other)
        if decoded.header is None or decoded.fault is not None:
            continue
        kept = [one for one in (_without(entry, lost) for entry in decoded.entries) if one is not None]
        if kept == list(decoded.entries):
            continue
        header = msgspec.structs.replace(decoded.header, count=len(kept))
        count = len(decoded.entries) - len(kept)
        why = "speaks of turns that are lost"
        overlay.changes[other] = Change(other, why, len(kept), count, count, encode(header, kept), data)


def _without(entry: Entry, lost: set[int] | range) -> Entry | None:
    record: Record = decode_record(entry.payload)
    if isinstance(record, TurnPut) and record.turn.rev != record.turn.seq and record.turn.seq in lost:
        return None
    if isinstance(record, VectorsPut):
        kept = record.only(lambda item: item.turn_seq not in lost)
        return None if kept is None else entry if kept == record else Entry(entry.seq, encode_record(kept))
    return entry


def _own(decoded: Decoded, name: str) -> Decoded:
    """A segment under another's name counts as unreadable."""
    if decoded.header is None or decoded.header.number == number_of(name):
        return decoded
    return Decoded(None, (), 0, f"holds segment {decoded.header.number}")
