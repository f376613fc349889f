"""Reading a shard's segments back, oldest first, and judging what is damaged or missing. Changes nothing.

The chain of headers decides: each says which seq was the last one used before it. A segment that is missing
or broken does not matter when the next header shows that nothing above the folded seq stood in it.

    torn tail  the newest segment is damaged, or the newest one with more behind it than derived segments: what is
               intact before the damage counts, and `repair` holds the bytes that should stand there instead, so
               that the next reading finds a whole segment. What the derived segments behind it hold speaks of
               turns that may be lost, and is computed again: the repaired header tells every later reading so
    hole       entries that are not folded are missing before that: what comes after them must not be shown without
               them, so the replay ends there and the shard takes no writes. A fence behind the damage makes it one,
               too: whoever wrote it had read all before it whole, and no crash tears what was whole
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from serve_app.errors import NotFound
from serve_app.ports import SegmentReader
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

HOLE_LOOKS = 2
"""Times that a log with a hole is looked at before it is called damaged: a fold may have come in between."""


class Damage(msgspec.Struct, frozen=True):
    """What is wrong with the log, and where. `entries_lost` is the most that can be lost; None where nobody knows."""

    kind: Literal["torn_tail", "hole"]
    segment: str
    reason: str
    entries_lost: int | None
    mended: bool = False
    """It was repaired before, and is told once more since nobody may have been told then."""

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')}: segment {self.segment} {self.reason}"


class Place(msgspec.Struct, frozen=True):
    """A segment as the log remembers it."""

    number: int
    last_seq: int
    bytes: int
    fence: bool


class Repair(NamedTuple):
    """The bytes that should stand under the damaged segment's name."""

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


Follower = tuple[Header, int]
"""A segment behind another one: its header, and its size in bytes."""

Behind = Callable[[int | None], tuple[Follower, ...] | None]
"""Gives the segments behind the one at hand where all of them are derived, else None. It asks for the last seq of the
one at hand, if that is known."""


class ReadOnce:
    """A log that is read again and again while others write to it: each whole segment that has others behind it is
    final, and is read once; a damaged one may be repaired. So a takeover from a busy writer costs what came since the
    last try, and not the whole log each time.
    """

    def __init__(self, segments: SegmentReader) -> None:
        self._segments = segments
        self._known: dict[str, bytes] = {}
        self._newest = ""

    def names(self) -> list[str]:
        names = self._segments.names()
        self._newest = max((name for name in names if number_of(name) is not None), default="")
        return names

    def read(self, name: str) -> bytes:
        if name in self._known:
            return self._known[name]
        data = self._segments.read(name)
        if name < self._newest and decode(data).fault is None:
            self._known[name] = data
        return data


def replay(segments: SegmentReader, folded_seq: int) -> Replay:
    """Every intact entry after `folded_seq`, in order, up to the first hole. Raises StoreUnavailable."""
    names = [name for name in segments.names() if number_of(name) is not None]
    walk = _Walk(folded_seq)
    for place, name in enumerate(names):
        try:
            data = segments.read(name)
        except NotFound:  # dropped since it was listed; the next header tells whether it is missed
            continue
        walk.step(name, data, partial(_derived_behind, segments, names[place:]))
        if walk.damage is not None:
            break
    return walk.result()


def _derived_behind(segments: SegmentReader, names: Sequence[str], last_seq: int | None) -> tuple[Follower, ...] | None:
    """The segments behind the first of these, if no number and no seq is left out and nothing but work is in them."""
    number, followers = number_of(names[0]) or 0, []
    for name in names[1:]:
        try:
            data = segments.read(name)
        except NotFound:
            return None
        number += 1
        header = _of_this_name(decode(data), number).header
        if name != segment_name(number) or header is None or not header.dispensable:
            return None
        if last_seq not in (None, header.prev_last_seq):
            return None
        followers.append((header, len(data)))
        last_seq = header.last_seq
    return tuple(followers)


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
        self._cut_at: str | None = None
        """The segment that a repair has left, as long as no fence came after it."""

    def step(self, name: str, data: bytes, behind: Behind) -> None:
        number = number_of(name) or 0
        self._notice_gap(number)
        decoded = _of_this_name(decode(data), number)
        if decoded.header is None:
            self._step_unknown(name, decoded, behind)
        else:
            self._step_known(name, decoded, decoded.header, len(data), behind)

    def result(self) -> Replay:
        """A repair that no fence followed may never have been told of: it is told again."""
        if self.damage is None and self._cut_at is not None:
            self.damage = Damage("torn_tail", self._cut_at, "was cut", None, mended=True)
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

    def _step_known(self, name: str, decoded: Decoded, header: Header, size: int, behind: Behind) -> None:
        """A segment whose header can be trusted."""
        if header.prev_last_seq > self._reached:
            self._hole(*(self._suspect or (segment_name(header.number - 1), "is missing")), lost=None)
            return
        self._suspect = None
        if self._cut_at is not None and header.dispensable:
            self._remember(header, size)
            return
        self._entries += (entry for entry in decoded.entries if entry.seq > self._folded_seq)
        lost = header.count - len(decoded.entries) if header.last_seq > self._folded_seq else 0
        followers = behind(header.last_seq) if decoded.fault else None
        if followers is not None and (lost or not followers):
            self._cut(name, decoded, _without_the_lost(header, decoded, lost), lost, followers)
        elif lost:
            self._hole(name, decoded.fault or "", lost)
        else:
            self._remember(header, size)

    def _step_unknown(self, name: str, decoded: Decoded, behind: Behind) -> None:
        """Where the next header is intact, it tells how much stood here. Where there is none, nobody knows: give up
        as many seqs as it could have used, and take it for a fence.
        """
        followers = behind(None)
        if followers == () and self._suspect is not None:
            self._hole(*self._suspect, lost=None)
        elif followers == ():
            last_seq = self._reached + SEQ_SPAN_MAX
            empty = Header(self._number, self._epoch + 1, "", last_seq, self._reached, 0, fence=True, cut=True)
            self._cut(name, decoded, empty, None, ())
        elif followers and self._suspect is None and self._stood_before(followers[0][0]):
            after = followers[0][0]
            empty = Header(self._number, after.epoch, "", after.prev_last_seq, self._reached, 0, cut=True)
            self._cut(name, decoded, empty, None, followers)
        else:
            self._suspect = self._suspect or (name, decoded.fault or "")

    def _stood_before(self, header: Header) -> bool:
        """Whether one segment with entries that are not folded stood between what was reached and this one."""
        return 0 < header.prev_last_seq - self._reached <= SEQ_SPAN_MAX

    def _remember(self, header: Header, size: int) -> None:
        self._places.append(Place(header.number, header.last_seq, size, header.fence))
        self._number = header.number
        self._last_seq = header.last_seq
        self._reached = max(self._reached, header.last_seq)
        self._epoch = max(self._epoch, header.epoch)
        if header.fence:
            self._cut_at = None
        if header.cut:
            self._cut_at = segment_name(header.number)

    def _hole(self, name: str, reason: str, lost: int | None) -> None:
        self.damage = Damage("hole", name, reason, lost)

    def _cut(
        self, name: str, decoded: Decoded, header: Header, lost: int | None, followers: Sequence[Follower]
    ) -> None:
        data = encode(header, decoded.entries)
        self.damage = Damage("torn_tail", name, decoded.fault or "", lost)
        self._repair = Repair(header.number, data)
        self._remember(header, len(data))
        for follower, size in followers:
            self._remember(follower, size)


def _of_this_name(decoded: Decoded, number: int) -> Decoded:
    """A segment that lies under another's name counts as unreadable: its place in the chain is not known."""
    if decoded.header is None or decoded.header.number == number:
        return decoded
    return Decoded(None, (), 0, f"holds segment {decoded.header.number}")


def _without_the_lost(header: Header, decoded: Decoded, lost: int) -> Header:
    """The same seqs stay used up: one that was acknowledged and lost is never given out again."""
    return msgspec.structs.replace(header, count=len(decoded.entries), cut=header.cut or lost > 0)
