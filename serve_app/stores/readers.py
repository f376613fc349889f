"""Who follows a shard, as its writer knows it: how far each has come, and whether it still asks.

A follower says with every question what it shows already. One that has not asked for a while counts as gone: nothing
waits for it, and it says itself how far it is behind.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

GONE_S = 2.0
"""Without a question. One that could not reach the writer asks again within `relay.PAUSE_S_MAX`."""

READERS_MAX = 1024
"""Of one shard; of more, those that have asked last are known."""


class _Reader(NamedTuple):
    number: int
    asked_at: float


class Readers:
    """Safe for many threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._readers: OrderedDict[str, _Reader] = OrderedDict()
        """By name, those that have asked last at the end."""

    def begin(self) -> None:
        """From now on the writer owns the shard: who followed the one before has yet to ask."""
        with self._lock:
            self._began = self._clock()

    def came(self, name: str, number: int) -> None:
        """This one asks: it shows all up to this segment, or more, where a later question has overtaken this one."""
        with self._lock:
            known = self._readers.get(name)
            self._readers[name] = _Reader(number if known is None else max(number, known.number), self._clock())
            self._readers.move_to_end(name)
            if len(self._readers) > READERS_MAX:
                self._readers.popitem(last=False)

    def all_at(self, number: int) -> bool:
        """Whether everyone shows this segment. At first nobody can tell: those of the writer before have yet to ask."""
        gone = self._clock() - GONE_S
        with self._lock:
            while self._readers and next(iter(self._readers.values())).asked_at < gone:
                self._readers.popitem(last=False)
            return self._began < gone and all(one.number >= number for one in self._readers.values())
