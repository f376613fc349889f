"""The log of one shard: the truth until it is folded. Owns the shard's segments; one thread calls it.

It promises that

* what `append` has returned for is durable, and every later `open` gives it back once and in order;
* seqs increase and are never used twice, whatever was lost;
* of two writers at most one goes on: segments are named by number, a name can be made once, and whoever takes
  the shard over makes the next one before it accepts anything. No clock is asked;
* damage is named, and never turns into a silent hole.

After StoreUnavailable an `append` may or may not have happened. The log is then *unsettled*, and `settle` finds
out for good: it claims the doubtful segment's name for an empty segment, so that a late PUT can no longer land,
or meets the batch itself and hands its entries over. A writer's loop is therefore: settle, apply what that gave,
prepare the next batch from `next_seq`, append, apply, acknowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from serve_app.errors import (
    Fenced,
    LogDamaged,
    NameTaken,
    NotFound,
    StorageFull,
    StorageTrouble,
    StoreUnavailable,
)
from serve_app.ports import SegmentStore
from serve_app.stores.holding import Hold
from serve_app.stores.replay import Damage, Place, ReadOnce, Replay, replay
from serve_app.stores.segment import Entry, Header, decode, encode, number_of, segment_name, torn_name

__all__ = ["FENCES_KEPT", "TAKEOVER_TRIES_MAX", "Damage", "Entry", "Recovery", "ShardLog"]

TAKEOVER_TRIES_MAX = 16
"""Readings of the tail while other writers keep being faster, before `open` gives up."""

FENCES_KEPT = 64
"""Fences that stay when their time is folded. A writer that slept through a takeover meets the fence of the one
that followed it, even if all data of that time is gone: so it must not be dropped. Further takeovers than this
are taken as proof that the sleeper is dead."""


class Recovery(msgspec.Struct, frozen=True):
    """What `open` found: entries after the folded seq, in order, and each damage met."""

    entries: tuple[Entry, ...]
    damages: tuple[Damage, ...]
    epoch: int
    last_seq: int


class _Batch(NamedTuple):
    header: Header
    data: bytes


class ShardLog:
    """Made by `open`. `epoch` is this writer's, `damage` the latest met by `open`, None for a sound log."""

    def __init__(self, segments: SegmentStore, found: Replay, writer_id: str) -> None:
        self.epoch = found.epoch
        self.last_seq = found.last_seq
        self.damage: Damage | None = None
        self.hold = Hold()
        self._segments = segments
        self._writer_id = writer_id
        self._number = found.number
        self._places = list(found.places)
        self._torn: list[int] = []
        self._unsettled: _Batch | None = None
        self._adopted: tuple[Entry, ...] = ()
        self._fenced = False
        self._folded_seq = 0
        self.waiting: StorageTrouble | None = None
        """Why the shard could not be taken over yet; None for its owner."""

    @classmethod
    def open(cls, segments: SegmentStore, *, folded_seq: int, writer_id: str) -> tuple[ShardLog, Recovery]:
        """Read to the tail, cut it where it is torn, and take the shard over.

        With a hole before the tail nothing is changed: the log is read-only and the entries end before the hole.
        Where the store can be read and takes nothing (a full disk), the log waits: `settle` takes the shard over as
        soon as it can be, and until then nothing is appended. Raises StoreUnavailable where it cannot be read.
        """
        damages: list[Damage] = []
        reader = ReadOnce(segments)
        for _ in range(TAKEOVER_TRIES_MAX):
            found = replay(reader, folded_seq)
            log = cls(segments, found, writer_id)
            if found.damage is not None and found.damage.segment not in {damage.segment for damage in damages}:
                damages.append(found.damage)
            log.damage = damages[-1] if damages else None
            if log.writable and not log._taken_over_or_waiting(found, folded_seq):
                continue
            return log, Recovery(found.entries, tuple(damages), log.epoch, log.last_seq)
        raise StoreUnavailable(f"other writers took the shard {TAKEOVER_TRIES_MAX} times while it was being opened")

    @property
    def writable(self) -> bool:
        return not self._fenced and self.waiting is None and (self.damage is None or self.damage.kind != "hole")

    @property
    def fenced(self) -> bool:
        """Whether another writer was met that owns the shard."""
        return self._fenced

    @property
    def doubt(self) -> str | None:
        """Why what was read from this log may lack something, in the words of an answer's reasons."""
        if self._fenced:
            return "stale: another service has taken this shard over"
        if self.waiting is not None:
            return f"log: {self.waiting.code}: this shard takes no writes yet"
        return None if self.writable else f"log: {self.damage}"

    @property
    def unsettled(self) -> bool:
        """Whether the last append may have been stored although it failed; `settle` finds out."""
        return self._unsettled is not None

    @property
    def next_seq(self) -> int:
        """The lowest seq that the next entry may have."""
        return 1 + (self._unsettled.header.last_seq if self._unsettled else self.last_seq)

    @property
    def segment_count(self) -> int:
        return len(self._places)

    @property
    def bytes(self) -> int:
        return sum(place.bytes for place in self._places)

    def append(self, entries: Sequence[Entry], *, derived: bool = False) -> None:
        """Store all entries, in one segment, durably, or none. Their seqs increase from `next_seq` on.

        `derived` says that all of them can be computed again from earlier ones: damage before them, and after
        everything else, is a torn tail still.

        Raises StorageFull (nothing is stored), StoreUnavailable (perhaps: settle before the next append), Fenced
        for ever once another writer has taken over, LogDamaged for a log with a hole, ValueError for wrong seqs.
        """
        self._refuse_unless_writable()
        if self.waiting is not None:
            raise StoreUnavailable("this shard is not taken over yet")
        if self._unsettled is not None:
            raise StoreUnavailable(f"segment {self._unsettled.header.number} is not settled yet")
        if not entries:
            raise ValueError("nothing to append")
        batch = self._batch(entries, entries[-1].seq, derived=derived)
        try:
            self._claim(batch)
        except StoreUnavailable:
            self._unsettled = batch
            raise
        self._advance(batch)

    def settle(self) -> tuple[Entry, ...]:
        """The entries of a failed append that were stored after all: apply them. Costs nothing on a settled log.

        A log that waits takes the shard over here, or is fenced where somebody else was there since `open`.

        Raises StorageFull or StoreUnavailable (still unsettled), Fenced, LogDamaged.
        """
        self._refuse_unless_writable()
        if self.waiting is not None:
            self._take_over_late()
        while self._unsettled is not None:  # twice at most
            stored = self._claim(self._batch((), self._unsettled.header.last_seq), self._unsettled)
            self._advance(stored)
            self._unsettled = None
            if stored.header.count:
                # It may have landed so late that its place is long folded by a new owner: one more segment
                # shows that there is none, and only then the entries count.
                self._adopted = decode(stored.data).entries
                self._unsettled = self._batch((), self.last_seq)
        adopted, self._adopted = self._adopted, ()
        return adopted

    def drop_through(self, folded_seq: int, most: int | None = None) -> int:
        """Delete segments whose entries are all folded, oldest first, at most so many; gives how many went.

        The newest stays, so that numbers go on from it, and so do the newest `FENCES_KEPT` fences.
        """
        if not self.writable or self.hold.held:  # what is held goes with a later drop
            return 0
        fences = [place.number for place in self._places if place.fence]
        kept = {self._number, *fences[-FENCES_KEPT:]}
        doomed = [p.number for p in self._places if p.last_seq <= folded_seq and p.number not in kept][:most]
        torn = self._torn_through(folded_seq)
        if doomed or torn:
            self._segments.delete([segment_name(number) for number in doomed] + [torn_name(number) for number in torn])
        gone = frozenset(doomed)
        self._places = [place for place in self._places if place.number not in gone]
        self._torn = [number for number in self._torn if number not in torn]
        return len(doomed)

    def _taken_over_or_waiting(self, found: Replay, folded_seq: int) -> bool:
        """False if another writer was faster: read again."""
        try:
            return self._take_over(found)
        except StorageFull as error:
            self._folded_seq, self.waiting = folded_seq, error
            return True

    def _take_over_late(self) -> None:
        """The log has to be as it was found, but for a fence of this writer whose answer was lost: one more follows it,
        so that nothing rests on whose that fence is.
        """
        try:
            found = replay(self._segments, self._folded_seq)
            if found.last_seq != self.last_seq or not (found.number == self._number or self._mine(found)):
                self._fenced = True
                raise Fenced("another writer has been here while this one waited for the store")
            self.epoch, self._number, self._places = found.epoch, found.number, list(found.places)
            if not self._take_over(found):
                raise StoreUnavailable("the log changed while it was taken over")
        except (StorageFull, StoreUnavailable) as error:
            self.waiting = error
            raise
        self.waiting = None

    def _mine(self, found: Replay) -> bool:
        """Whether all that has come since is the fence that this writer tried to make last."""
        fence = self._batch((), self.last_seq, fence=True)
        return found.number == fence.header.number and fence.data == _read_if_there(
            self._segments, segment_name(found.number)
        )

    def _take_over(self, found: Replay) -> bool:
        """Repair the tail and publish this writer's fence. False if another writer was faster."""
        self.epoch = found.epoch + 1
        fence = self._batch((), self.last_seq, fence=True)
        try:
            if found.repair is not None:
                number, data = found.repair
                self._segments.replace(segment_name(number), data, torn_name(number))
            self._segments.create(segment_name(fence.header.number), fence.data)
        except (NameTaken, NotFound):
            return False
        self._advance(fence)
        self._torn = [torn for name in self._segments.names() if (torn := number_of(name, "torn")) is not None]
        return True

    def _batch(self, entries: Sequence[Entry], last_seq: int, *, fence: bool = False, derived: bool = False) -> _Batch:
        """The next segment, not stored yet. It uses up the seqs to `last_seq`, even where it is empty."""
        number = self._number + 1
        count = len(entries)
        header = Header(number, self.epoch, self._writer_id, last_seq, self.last_seq, count, fence, derived)
        return _Batch(header, encode(header, entries))

    def _claim(self, batch: _Batch, doubtful: _Batch | None = None) -> _Batch:
        """Make the segment, and give the one that stands there: this one, or the doubtful one sent before it."""
        name = segment_name(batch.header.number)
        try:
            self._segments.create(name, batch.data)
            return batch
        except NameTaken:
            there = _read_if_there(self._segments, name)
        for own in (batch, doubtful):
            if own is not None and own.data == there:
                return own
        self._fenced = True
        raise Fenced(f"another writer has made segment {name}")

    def _advance(self, batch: _Batch) -> None:
        header = batch.header
        self._places.append(Place(header.number, header.last_seq, len(batch.data), header.fence))
        self._number = header.number
        self.last_seq = header.last_seq

    def _refuse_unless_writable(self) -> None:
        if self._fenced:
            raise Fenced("another writer owns this shard")
        if self.damage is not None and self.damage.kind == "hole":
            raise LogDamaged(str(self.damage))

    def _torn_through(self, folded_seq: int) -> list[int]:
        unfolded = {place.number for place in self._places if place.last_seq > folded_seq}
        return [number for number in self._torn if number not in unfolded]


def _read_if_there(segments: SegmentStore, name: str) -> bytes | None:
    try:
        return segments.read(name)
    except NotFound:  # made and dropped by another writer
        return None
