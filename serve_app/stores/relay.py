"""The newest segments of a shard, handed from its writer to its followers past the object store.

    writer    RelayingSegments ──► SegmentRing      what its conditional PUT has confirmed, and nothing else
                                        ▲
    follower  Puller ── segments(after) ┘──► Relayed ──► FollowedLog, which judges them as if it had read them

A follower asks again once all that came is in its shard's memory, so by what it asks for the writer knows what it
shows (`readers.py`). What is relayed stands in the store already, so a writer that has been fenced relays a beginning
of the truth at worst. That nothing has come since is believed of a writer as long as it answers, and no longer than
STORE_LOOK_S: then the store is asked. Whenever the writer does not answer, or does not hold what is asked for, the
store is read as ever.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from serve_app.errors import MemstrataError, NotFound
from serve_app.ports import SegmentStore
from serve_app.stores.readers import Readers
from serve_app.stores.segment import number_of

_log = logging.getLogger(__name__)

RING_BYTES = 8 << 20
RING_SEGMENTS = 512
"""Of one shard, that its writer holds, and that a follower holds beyond what it has read."""

STORE_LOOK_S = 1.0
"""So often the store is asked for the next segment although the writer says that there is none: another one may have
taken the shard over, of which this one does not know yet."""

PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
"""Before a writer is asked again that did not answer; doubled each time."""


class Segment(NamedTuple):
    number: int
    data: bytes


class SegmentRelay(Protocol):
    """The way to the writer of one shard."""

    def segments(self, after: int, wait_s: float, follower: str = "") -> Sequence[Segment]:
        """Those that follow this number, in order and without a gap; waits so long for the first of them, at most.

        The follower of this name shows all up to `after`; without a name nobody is told of it.
        Raises NotFound where it does not hold the next one, or does not know this one; StoreUnavailable where it does
        not answer.
        """
        ...


class SegmentRing:
    """The newest segments that a writer has made. Safe for many threads."""

    def __init__(self, bytes_max: int = RING_BYTES) -> None:
        self.readers = Readers()
        self.newest = 0
        """The number of the last one that was made, whether it is held or not."""
        self._bytes_max = bytes_max
        self._held: OrderedDict[int, bytes] = OrderedDict()
        self._bytes = 0
        self._changed = threading.Condition()
        self._told: list[Callable[[], None]] = []

    def tell(self, told: Callable[[], None]) -> None:
        """Call this after each change, in the thread that makes it."""
        with self._changed:
            self._told.append(told)

    def untell(self, told: Callable[[], None]) -> None:
        with self._changed:
            self._told.remove(told)

    def put(self, number: int, data: bytes) -> None:
        with self._changed:
            if not self.newest:
                self.readers.begin()
            if self._held and number != next(reversed(self._held)) + 1:
                self._forget()
            self._held[number], self.newest = data, number
            self._bytes += len(data)
            while len(self._held) > 1 and (self._bytes > self._bytes_max or len(self._held) > RING_SEGMENTS):
                self._bytes -= len(self._held.popitem(last=False)[1])
            self._changed.notify_all()
        self._tell()

    def clear(self) -> None:
        """Nothing is relayed before something new has been made: it is not known what the newest segment is."""
        with self._changed:
            self._forget()
            self._changed.notify_all()
        self._tell()

    def segments(self, after: int, wait_s: float, follower: str = "") -> Sequence[Segment]:
        """See `SegmentRelay`."""
        if follower:
            self.readers.came(follower, after)
        with self._changed:
            self._changed.wait_for(lambda: not self._held or after != next(reversed(self._held)), wait_s)
            first, last = (next(iter(self._held)), next(reversed(self._held))) if self._held else (0, -1)
            if not first - 1 <= after <= last:
                raise NotFound(f"segments after {after} are not held here")
            return [Segment(number, self._held[number]) for number in range(after + 1, last + 1)]

    def _forget(self) -> None:
        self._held.clear()
        self._bytes = 0

    def _tell(self) -> None:
        with self._changed:
            told = list(self._told)
        for one in told:
            one()


class RelayingSegments:
    """A `SegmentStore` whose newest segments are in a ring, too: from the moment at which they surely are stored."""

    def __init__(self, segments: SegmentStore, ring: SegmentRing) -> None:
        self._segments = segments
        self._ring = ring

    def create(self, name: str, data: bytes) -> None:
        try:
            self._segments.create(name, data)
        except BaseException:
            self._ring.clear()  # somebody else may own the shard, or this segment may be there all the same
            raise
        number = number_of(name)
        if number is not None:
            self._ring.put(number, data)

    def read(self, name: str) -> bytes:
        return self._segments.read(name)

    def names(self) -> list[str]:
        return self._segments.names()

    def delete(self, names: Sequence[str]) -> None:
        self._segments.delete(names)

    def replace(self, name: str, data: bytes, keep_as: str) -> None:
        self._ring.clear()
        self._segments.replace(name, data, keep_as)


class Relayed:
    """What has come from the writer and was not read yet: filled by one thread, read by that of the follower."""

    def __init__(self, believed_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`believed_s`: so long after an answer it counts that the writer had nothing more."""
        self._believed_s = believed_s
        self._clock = clock
        self._lock = threading.Condition()
        self._held: dict[int, bytes] = {}
        self._read = self._applied = 0
        self._answered_at = self._asked_store_at = float("-inf")

    def position(self, within_s: float) -> int | None:
        """After which number the next one is wanted, as soon as what came before is applied; None: not in that time."""
        with self._lock:
            done = self._lock.wait_for(lambda: 0 < self._read == self._applied and not self._held, within_s)
            return self._applied if done else None

    def applied(self, number: int) -> None:
        """All up to this segment is in the shard's memory."""
        with self._lock:
            self._applied = number
            self._lock.notify_all()

    def take(self, number: int) -> bytes | None:
        """The segment, if it has come; the follower has read all before it."""
        with self._lock:
            if self._read != number - 1:
                if number - 1 not in self._held:
                    self._forget()  # it was read in the store: what the writer has said was said of another place
                self._read = number - 1
                self._held = {one: data for one, data in self._held.items() if one >= number}
            return self._held.get(number)

    def ended(self) -> bool:
        """Whether it is certain enough, without a look at the store, that there is none after what was taken."""
        with self._lock:
            now = self._clock()
            if now - self._answered_at <= self._believed_s and now - self._asked_store_at < STORE_LOOK_S:
                return True
            self._asked_store_at = now
            return False

    @property
    def answered_at(self) -> float:
        """When the writer last said what there is."""
        return self._answered_at

    def judged(self, number: int) -> None:
        """The log was read anew up to this segment, in the store alone: the next one is wanted from now on."""
        with self._lock:
            self._forget()
            self._read = number
            self._lock.notify_all()

    def ask_store(self) -> None:
        """The store is to be looked at next, whatever the writer says."""
        with self._lock:
            self._asked_store_at = float("-inf")

    def deliver(self, after: int, found: Sequence[Segment], as_of: float) -> None:
        """The writer's answer to what was asked at this position: what there was at this time, or later."""
        with self._lock:
            if after == self._read:
                self._held = {one.number: one.data for one in found}
                self._answered_at = as_of

    def lost(self) -> None:
        """The writer does not answer, or cannot. What has come from it stays: it is in the store."""
        with self._lock:
            self._answered_at = float("-inf")

    def _forget(self) -> None:
        self._held.clear()
        self._answered_at = float("-inf")


class Puller:
    """Owns a thread that asks a writer for what is new, again and again. `news` is called when some has come."""

    def __init__(self, relay: SegmentRelay, relayed: Relayed, news: Callable[[], None], wait_s: float) -> None:
        self._relay, self._relayed, self._news, self._wait_s = relay, relayed, news, wait_s
        self._name = uuid.uuid4().hex
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        pause_s = PAUSE_S
        while not self._closing.is_set():
            if self._pulled():
                pause_s = PAUSE_S
                continue
            self._closing.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _pulled(self) -> bool:
        after = self._relayed.position(self._wait_s)
        if after is None:
            return True  # it asks no more before it shows what came, and counts as gone if that takes long
        asked_at = time.monotonic()
        try:
            found = self._relay.segments(after, self._wait_s, self._name)
        except MemstrataError:
            self._relayed.lost()
            return False
        except Exception:  # noqa: BLE001 - a defect must not end the relay for good; the store is read meanwhile
            _log.exception("the writer of a shard cannot be asked for segments")
            self._relayed.lost()
            return False
        # An answer that comes late, as to a process that was stopped meanwhile, says nothing of the present.
        self._relayed.deliver(after, found, min(time.monotonic(), asked_at + self._wait_s))
        if found:
            self._news()
        return True
