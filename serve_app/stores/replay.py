"""Reading a shard's segments back, oldest first, and judging what is damaged or missing. Changes nothing.

The chain of headers decides: each says which seq was the last one used before it. A segment that is missing
or broken does not matter when the next header shows that nothing above the folded seq stood in it.

    hole       entries that are not folded are missing before the newest segment: what comes after them must not
               be shown without them, so the replay ends there and the shard takes no writes
    torn tail  the newest segment is damaged: what is intact before the damage counts, and `repair` holds the
               bytes that should stand there instead, so that the next reading finds a whole segment
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from serve_app.errors import NotFound
from serve_app.ports import SegmentStore
from serve_app.stores.segment import (
    SEQ_SPAN_MAX,
    Decoded,
    Entry,
    Header,
    decode,
    encode,
    number_of,
    segment_name,
)


class Damage(msgspec.Struct, frozen=True):
    """What is wrong with the log, and where. `entries_lost` is the most that can be lost; None where nobody knows."""

    kind: Literal["torn_tail", "hole"]
    segment: str
    reason: str
    entries_lost: int | None

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')}: segment {self.segment} {self.reason}"


class Place(msgspec.Struct, frozen=True):
    """A segment as the log remembers it."""

    number: int
    last_seq: int
    bytes: int
    fence: bool


class Repair(NamedTuple):
    """The bytes that should stand under the damaged newest segment's name."""

    number: int
    data: bytes


class Replay(msgspec.Struct, frozen=True):
    """All that the segments say. `last_seq` is the last seq used, `number` that of the newest segment (0: none)."""

    entries: tuple[Entry, ...]
    places: tuple[Place, ...]
    number: int
    epoch: int
    last_seq: int
    damage: Damage | None
    repair: Repair | None


def replay(segments: SegmentStore, folded_seq: int) -> Replay:
    """Every intact entry after `folded_seq`, in order, up to the first hole. Raises StoreUnavailable."""
    names = [name for name in segments.names() if number_of(name) is not None]
    walk = _Walk(folded_seq)
    for name in names:
        try:
            data = segments.read(name)
        except NotFound:  # dropped since it was listed; the next header tells whether it is missed
            continue
        walk.step(name, data, newest=name == names[-1])
        if walk.damage is not None:
            break
    return walk.result()


class _Walk:
    """One pass over the segments. Up to `_reached` no seq is missing; `_last_seq` is the last readable header's."""

    def __init__(self, folded_seq: int) -> None:
        self.damage: Damage | None = None
        self._folded_seq = folded_seq
        self._reached = folded_seq
        self._suspect: tuple[str, str] | None = None
        self._entries: list[Entry] = []
        self._places: list[Place] = []
        self._number = 0
        self._last_seq = 0
        self._epoch = 0
        self._repair: Repair | None = None

    def step(self, name: str, data: bytes, newest: bool) -> None:
        number, decoded = number_of(name) or 0, decode(data)
        self._notice_gap(number)
        decoded = _of_this_name(decoded, number)
        if decoded.header is not None:
            self._step_known(name, decoded, decoded.header, len(data), newest)
        elif not newest:
            self._suspect = self._suspect or (name, decoded.fault or "")
        elif self._suspect is not None:
            self._hole(*self._suspect, lost=None)
        else:
            self._cut_unknown(name, decoded)

    def result(self) -> Replay:
        return Replay(
            tuple(self._entries),
            tuple(self._places),
            self._number,
            self._epoch,
            self._reached,
            self.damage,
            self._repair,
        )

    def _notice_gap(self, number: int) -> None:
        """Numbers that are left out, unless the fold went on behind the segment before them: then it dropped them.

        Even so the next header has the last word, if it can be read.
        """
        explained = self._folded_seq > self._last_seq
        if self._number and number != self._number + 1 and not explained:
            self._suspect = self._suspect or (segment_name(self._number + 1), "is missing")
        self._number = number

    def _step_known(self, name: str, decoded: Decoded, header: Header, size: int, newest: bool) -> None:
        """A segment whose header can be trusted."""
        if header.prev_last_seq > self._reached:
            self._hole(*(self._suspect or (segment_name(header.number - 1), "is missing")), lost=None)
            return
        self._suspect = None
        self._entries += (entry for entry in decoded.entries if entry.seq > self._folded_seq)
        lost = header.count - len(decoded.entries) if header.last_seq > self._folded_seq else 0
        if decoded.fault and newest:
            self._cut(name, decoded.fault, _without_the_lost(header, decoded), decoded.entries, lost)
        elif decoded.fault and lost:
            self._hole(name, decoded.fault, lost)
        else:
            self._remember(header, size)

    def _remember(self, header: Header, size: int) -> None:
        self._places.append(Place(header.number, header.last_seq, size, header.fence))
        self._last_seq = header.last_seq
        self._reached = max(self._reached, header.last_seq)
        self._epoch = max(self._epoch, header.epoch)

    def _hole(self, name: str, reason: str, lost: int | None) -> None:
        self.damage = Damage("hole", name, reason, lost)

    def _cut(self, name: str, reason: str, header: Header, entries: tuple[Entry, ...], lost: int | None) -> None:
        data = encode(header, entries)
        self.damage = Damage("torn_tail", name, reason, lost)
        self._repair = Repair(header.number, data)
        self._remember(header, len(data))

    def _cut_unknown(self, name: str, decoded: Decoded) -> None:
        """Nobody knows what stood here: give up as many seqs as it could have used, and take it for a fence."""
        last_seq = self._reached + SEQ_SPAN_MAX
        empty = Header(self._number, self._epoch + 1, "", last_seq, self._reached, 0, fence=True)
        self._cut(name, decoded.fault or "", empty, (), None)


def _of_this_name(decoded: Decoded, number: int) -> Decoded:
    """A segment that lies under another's name counts as unreadable: its place in the chain is not known."""
    if decoded.header is None or decoded.header.number == number:
        return decoded
    return Decoded(None, (), 0, f"holds segment {decoded.header.number}")


def _without_the_lost(header: Header, decoded: Decoded) -> Header:
    """The same seqs stay used up: one that was acknowledged and lost is never given out again."""
    return msgspec.structs.replace(header, count=len(decoded.entries))
