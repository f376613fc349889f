"""A hot index that is bounded, and CPU blocks for the owners whom it refuses: a user is in the one or in the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from serve_app.errors import HotFull
from serve_app.ports import HotIndex, Rows, Vectors
from serve_app.stores.hot_device import DeviceHotIndex
from serve_app.stores.hot_faiss import FaissHotIndex

__all__ = ["SpillingHotIndex"]


class SpillingHotIndex:
    """`ports.HotIndex`. Who was refused stays on the CPU until dropped: blocks come and go, and then it is tried anew.

    One thread at a time changes one owner's rows, as the port has it.
    """

    def __init__(self, bounded: DeviceHotIndex, dimension: int) -> None:
        self.bounded = bounded
        self._spilled = FaissHotIndex(dimension)
        self._refused: set[str] = set()

    @property
    def refused(self) -> int:
        """Owners who are on the CPU."""
        return len(self._refused)

    def add(self, owner: str, rows: Rows, vectors: Vectors) -> None:
        if owner in self._refused:
            self._spilled.add(owner, rows, vectors)
            return
        try:
            self.bounded.add(owner, rows, vectors)
        except HotFull:
            held, halves = self.bounded.held(owner)
            self._spilled.add(owner, held, halves.astype(np.float32))
            self._spilled.add(owner, rows, vectors)
            self._refused.add(owner)
            self.bounded.drop(owner)

    def remove(self, owner: str, rows: Rows) -> int:
        return self._of(owner).remove(owner, rows)

    def search(self, owner: str, query: Vectors, k: int) -> tuple[Rows, NDArray[np.float32]]:
        return self._of(owner).search(owner, query, k)

    def products(self, owner: str, query: Vectors) -> tuple[Rows, NDArray[np.float32]]:
        return self._of(owner).products(owner, query)

    def drop(self, owner: str) -> None:
        self._of(owner).drop(owner)
        self._refused.discard(owner)

    def count(self, owner: str) -> int:
        return self._of(owner).count(owner)

    def close(self) -> None:
        self.bounded.close()

    def _of(self, owner: str) -> HotIndex:
        return self._spilled if owner in self._refused else self.bounded
