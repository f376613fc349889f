"""The log of one shard as a follower sees it: read from its own position on, while the writer goes on writing.

Segments are immutable and named by number, so what is new is the next number. The chain is judged anew, by
`replay`, wherever reading on is not enough: numbers are missing, a segment is not whole, a new owner's fence
came (it may have cut a torn tail), or other bytes stand under the last name (a writer on disk takes back a
segment whose folder it could not sync). What the writer has relayed (`relay.py`) is judged like what was read.
Nothing here changes the store; one thread reads, any may ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Literal

import msgspec

from serve_app.errors import NotFound, ReadOnlyReplica, StorageTrouble, StoreUnavailable
from serve_app.ports import WatchedSegments
from serve_app.stores.relay import Relayed
from serve_app.stores.replay import Damage, Place, replay
from serve_app.stores.segment import Entry, decode, number_of, segment_name

SEGMENTS_A_ROUND = 200
"""Segments that one round reads at most, so that what it found is applied soon."""

NO_WRITES = "this service follows the store and takes no writes"


Where = Literal["end", "more", "stuck", "displaced"]
"""Where a round ended: at the end of the log, at its bound, at a segment that does not go on from the last one, or
where what was read before may not be what stands there now. After the latter two `replay` judges."""


class Progress(msgspec.Struct, frozen=True):
    """What one round found."""

    entries: tuple[Entry, ...]
    where: Where


class FollowedLog:
    """Has the face of a `ShardLog`, and refuses every change. `stale_s`: from which age on it is in doubt."""

    writable = False
    fenced = False
    waiting: StorageTrouble | None = None

    def __init__(
        self,
        segments: WatchedSegments,
        stale_s: float,
        clock: Callable[[], float] = time.monotonic,
        relayed: Relayed | None = None,
    ) -> None:
        self.epoch = 0
        self.last_seq = 0
        self.damage: Damage | None = None
        self.reached_at: float | None = None
        """When the round began that last saw the end of the log; what was durable then has been read."""
        self.asked_store = True
        """Whether the store itself said at the last round where the log ends."""
        self._segments = segments
        self.relayed = relayed
        self._stale_s = stale_s
        self._clock = clock
        self._number = 0
        self._stamp: Hashable = None
        self._places: tuple[Place, ...] = ()

    # ---- reading

    def replay(self, folded_seq: int) -> tuple[Entry, ...]:
        """Every intact entry after `folded_seq` up to the first hole; reading on goes on from there."""
        found = replay(self._segments, folded_seq)
        if self.relayed is not None:
            self.relayed.judged(found.number)
        self.epoch, self.last_seq, self.damage = found.epoch, found.last_seq, found.damage
        self._number, self._places = found.number, found.places
        self._stamp = self._segments.stamp(segment_name(found.number)) if found.number else None
        return found.entries

    def read_on(self) -> Progress:
        """What has come since. Raises StoreUnavailable, where nothing had come before."""
        entries: list[Entry] = []
        for _ in range(SEGMENTS_A_ROUND):
            try:
                found = self._next()
            except StoreUnavailable:
                if not entries:
                    raise
                break  # what was read is read once; the next round meets the trouble
            if isinstance(found, str):
                return Progress(tuple(entries), found)
            entries += found
        return Progress(tuple(entries), "more")

    def applied(self) -> None:
        """All that was read is in the shard's memory."""
        if self.relayed is not None:
            self.relayed.applied(self._number)

    def _next(self) -> tuple[Entry, ...] | Where:
        """The entries of the next segment, or why there are none."""
        if self._number and self._segments.stamp(segment_name(self._number)) != self._stamp:
            return "displaced"
        name = segment_name(self._number + 1)
        data = None if self.relayed is None else self.relayed.take(self._number + 1)
        self.asked_store = data is None and (self.relayed is None or not self.relayed.ended())
        if data is None and not self.asked_store:
            return "end"
        stamp = self._segments.stamp(name)  # before the bytes: a change in between shows at the next look
        if stamp is None:
            return "end"
        try:
            data = data or self._segments.read(name)
        except NotFound:
            return "end"
        decoded = decode(data)
        header = decoded.header
        if header is None or decoded.fault or header.number != self._number + 1:
            return "stuck"
        if header.fence or header.cut or header.prev_last_seq != self.last_seq:
            return "displaced"
        self._number, self._stamp, self.last_seq = header.number, stamp, header.last_seq
        self._places = (*self._places, Place(header.number, header.last_seq, len(data), header.fence))
        return decoded.entries

    def look_around(self) -> bool:
        """Forget segments that have gone; whether newer ones are there although the next one is not."""
        numbers = {number for name in self._segments.names() if (number := number_of(name)) is not None}
        self._places = tuple(place for place in self._places if place.number in numbers)
        return self._number + 1 not in numbers and max(numbers, default=0) > self._number

    # ---- what is told of it

    @property
    def holed(self) -> bool:
        return self.damage is not None and self.damage.kind == "hole"

    @property
    def behind_s(self) -> float | None:
        """What was durable so long ago is shown here; None before the first look at the log succeeded."""
        return None if self.reached_at is None else self._clock() - self.reached_at

    @property
    def doubt(self) -> str | None:
        """As `ShardLog.doubt`."""
        if self.holed:
            return f"log: {self.damage}"
        behind = self.behind_s
        if behind is not None and behind <= self._stale_s:
            return None
        return "replica: the log was not read yet" if behind is None else f"replica: {behind:.1f} s behind"

    @property
    def next_seq(self) -> int:
        return self.last_seq + 1

    @property
    def segment_count(self) -> int:
        return len(self._places)

    @property
    def bytes(self) -> int:
        return sum(place.bytes for place in self._places)

    # ---- what a writer would do

    def append(self, entries: Sequence[Entry], *, derived: bool = False) -> None:
        raise ReadOnlyReplica(NO_WRITES)

    def settle(self) -> tuple[Entry, ...]:
        raise ReadOnlyReplica(NO_WRITES)

    def drop_through(self, folded_seq: int, most: int | None = None) -> int:
        return 0
