"""Sessions that are to be looked at, each once, when its time has come; in turn between their owners.

Bounded: what does not fit is refused, and whoever asks hears of it. Safe for threads, and without knowledge of what is
done with a session.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

WAITING_MAX = 100_000
"""Sessions that may wait, those that only wait for their age included; some hundred bytes each."""

STALE_MAX = 1_000
"""Entries of the heap beyond two a session before those that no longer count are taken out."""


class Key(NamedTuple):
    """A session."""

    shard: int
    owner: str
    session: str


class Asked(NamedTuple):
    key: Key
    read: bool
    """Whether somebody has read the session since it was looked at last."""


class Agenda:
    """`clock` in seconds, monotonic."""

    def __init__(self, waiting_max: int = WAITING_MAX, clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting_max = waiting_max
        self._clock = clock
        self._changed = threading.Condition()
        self._closed = False
        self._times: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._ready: dict[str, dict[Key, None]] = {}  # by owner, whose turn it is first
        self._read: set[Key] = set()

    def ask(self, key: Key, in_s: float, *, read: bool = False) -> bool:
        """Look at this session in so many seconds, or sooner if that was asked before. False where there is no room."""
        with self._changed:
            if key in self._ready.get(key.owner, ()):
                self._note(key, read)
                return True
            at, known = self._clock() + in_s, self._times.get(key)
            if known is None and len(self) >= self._waiting_max:
                return False
            self._note(key, read)
            if known is None or at < known:
                self._times[key] = at
                heapq.heappush(self._heap, (at, key))
                self._changed.notify()
            self._without_stale()
            return True

    def next(self) -> Asked | None:
        """The next session, once there is one; None when this is closed."""
        with self._changed:
            while not self._closed:
                self._let_ripen()
                if self._ready:
                    return self._taken()
                self._changed.wait(self._heap[0][0] - self._clock() if self._heap else None)
        return None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._times) + sum(map(len, self._ready.values()))

    @property
    def ripe(self) -> int:
        """Sessions whose time has come."""
        with self._changed:
            self._let_ripen()
            return sum(map(len, self._ready.values()))

    def _note(self, key: Key, read: bool) -> None:
        if read:
            self._read.add(key)

    def _let_ripen(self) -> None:
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._times.get(key) == at:
                del self._times[key]
                self._ready.setdefault(key.owner, {})[key] = None

    def _taken(self) -> Asked:
        """The first session of the owner whose turn it is; then that owner's turn comes last."""
        owner, sessions = next(iter(self._ready.items()))
        key = next(iter(sessions))
        del sessions[key], self._ready[owner]
        if sessions:
            self._ready[owner] = sessions
        read = key in self._read
        self._read.discard(key)
        return Asked(key, read)

    def _without_stale(self) -> None:
        if len(self._heap) > 2 * len(self._times) + STALE_MAX:
            self._heap = [(at, key) for key, at in self._times.items()]
            heapq.heapify(self._heap)
