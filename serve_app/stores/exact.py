"""Exact hot index in NumPy: the oracle that the other hot indexes are compared with.

Owns one list of rows and vectors an owner. Promises the plainest reading of `ports.HotIndex`, never
speed: every change copies the block, so a search sees the block before or after it and no lock is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import Rows, Vectors

__all__ = ["ExactHotIndex"]


class ExactHotIndex:
    """`ports.HotIndex` by sorting all scores; equal scores go to the larger row id (the newer turn)."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._blocks: dict[str, tuple[Rows, Vectors]] = {}

    def add(self, owner: str, rows: Rows, vectors: Vectors) -> None:
        merged = self._by_row(owner)
        merged.update(zip(rows.tolist(), np.array(vectors, dtype=np.float32), strict=True))
        self._put(owner, merged)

    def remove(self, owner: str, rows: Rows) -> int:
        merged = self._by_row(owner)
        gone = merged.keys() & set(rows.tolist())
        self._put(owner, {row: vector for row, vector in merged.items() if row not in gone})
        return len(gone)

    def search(self, owner: str, query: Vectors, k: int) -> tuple[Rows, NDArray[np.float32]]:
        rows, vectors = self._block(owner)
        scores = vectors @ query
        order = np.lexsort((-rows, -scores))[: max(k, 0)]
        return rows[order], scores[order]

    def products(self, owner: str, query: Vectors) -> tuple[Rows, NDArray[np.float32]]:
        rows, vectors = self._block(owner)
        return rows, vectors @ query

    def drop(self, owner: str) -> None:
        self._blocks.pop(owner, None)

    def count(self, owner: str) -> int:
        return len(self._block(owner)[0])

    def _block(self, owner: str) -> tuple[Rows, Vectors]:
        empty = np.empty(0, np.int64), np.empty((0, self._dimension), np.float32)
        return self._blocks.get(owner, empty)

    def _by_row(self, owner: str) -> dict[int, NDArray[np.float32]]:
        rows, vectors = self._block(owner)
        return dict(zip(rows.tolist(), vectors, strict=True))

    def _put(self, owner: str, merged: dict[int, NDArray[np.float32]]) -> None:
        rows = np.fromiter(merged.keys(), np.int64, len(merged))
        vectors = np.array(list(merged.values()), np.float32).reshape(len(merged), self._dimension)
        self._blocks[owner] = rows, vectors
