"""Devices for tests of the hot index: one that ignores what it is told, as stock indexes do, and ones in trouble."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import faiss
import numpy as np

from serve_app.stores.device import Halves, Hits, HostDevice, Look


class StockDevice:
    """One `faiss.IndexFlatIP` over all slots: no id selector, no extent, nothing is heeded."""

    name = "stock"

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._halves: Halves = np.zeros((0, dimension), np.float16)
        self._index = faiss.IndexFlatIP(dimension)
        self.looks: list[Look] = []

    def reset(self, slots: int) -> None:
        self._halves = np.zeros((slots, self._dimension), np.float16)
        self._build()

    def write(self, start: int, vectors: Halves) -> None:
        self._halves[start : start + len(vectors)] = vectors
        self._build()

    def _build(self) -> None:
        self._index.reset()
        self._index.add(self._halves.astype(np.float32))

    def look(self, looks: Sequence[Look]) -> list[Hits]:
        self.looks += looks
        found = [self._index.search(one.queries, min(one.k, self._index.ntotal)) for one in looks]
        return [Hits(scores, slots) for scores, slots in found]


class TroubledDevice(HostDevice):
    """Has its own copies. Throws from the call of number `fails_after` on, or takes `slow_s` for each from then on."""

    name = "troubled"

    def __init__(self, dimension: int, *, fails_after: int, slow_s: float = 0.0) -> None:
        super().__init__(np.zeros((0, dimension), np.float16))
        self._dimension = dimension
        self._left = fails_after
        self._slow_s = slow_s
        self.threads: set[int] = set()

    def reset(self, slots: int) -> None:
        self._halves = np.zeros((slots, self._dimension), np.float16)

    def write(self, start: int, vectors: Halves) -> None:
        self._count()
        self._halves[start : start + len(vectors)] = vectors

    def look(self, looks: Sequence[Look]) -> list[Hits]:
        self._count()
        return super().look(looks)

    def _count(self) -> None:
        self.threads.add(threading.get_ident())
        self._left -= 1
        if self._left < 0 and self._slow_s:
            time.sleep(self._slow_s)
        elif self._left < 0:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


class EmptyDevice(TroubledDevice):
    """Gives no slot at all, as an index that lost its content does."""

    def look(self, looks: Sequence[Look]) -> list[Hits]:
        self._count()
        nothing = [(len(one.queries), min(one.k, 8)) for one in looks]
        return [Hits(np.zeros(shape, np.float32), np.full(shape, -1, np.int64)) for shape in nothing]
