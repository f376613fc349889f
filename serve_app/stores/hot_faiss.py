"""Hot index on the CPU: one contiguous FAISS block an owner, so a search can only touch that owner's rows.

Owns the blocks and their locks. Promises exact scores, isolation by layout, and that searches of
one owner never wait for another's changes. Within an owner searches and changes take turns: both
last microseconds, and FAISS allows no search while a block grows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import Rows, Vectors

try:
    import faiss
except ImportError as error:
    raise ImportError("the hot index needs FAISS: pip install 'memstrata[cpu]'") from error

__all__ = ["FaissHotIndex", "FlatSearch", "best", "newest_of_each"]

PRODUCTS = "fvec_inner_products_ny"
"""FAISS's kernel for one vector against many; exported by name only."""

TIES_FETCHED = 16
"""Rows fetched beyond k: enough, as a rule, to see where a tie at the cut-off ends."""

TIES_GROWTH = 4
"""How many times more rows each further look at a longer tie takes; it ends at the block's size."""


class FlatSearch(Protocol):
    """What `best` needs of a flat FAISS index: shapes (1, dimension) in, (1, k) scores and positions out."""

    @property
    def ntotal(self) -> int: ...

    def search(self, x: Vectors, k: int, /) -> Any: ...


def best(
    index: FlatSearch, rows: Rows, query: Vectors, k: int, *, dead: int = 0, fetched_max: int | None = None
) -> tuple[Rows, NDArray[np.float32]]:
    """The k best rows of a flat index, equal scores by the larger row id; `rows[position] < 0` is a dead slot.

    Without this a tie at the cut-off falls by position, which differs between two replicas of a block.
    """
    live = index.ntotal - dead
    k = min(k, live)
    if k <= 0:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    ceiling = min(index.ntotal, fetched_max or index.ntotal)
    fetched = min(ceiling, k + dead + TIES_FETCHED)
    while True:
        found, scores = _live(index, rows, query, fetched)
        if fetched == ceiling or scores[-1] < scores[k - 1]:
            break
        fetched = min(ceiling, fetched * TIES_GROWTH)
    order = np.lexsort((-found, -scores))[:k]
    return found[order], scores[order]


def _live(index: FlatSearch, rows: Rows, query: Vectors, fetched: int) -> tuple[Rows, NDArray[np.float32]]:
    scores, positions = index.search(query.reshape(1, -1), fetched)
    found = rows[positions[0]]
    alive = (positions[0] >= 0) & (found >= 0)
    return found[alive], scores[0][alive]


def newest_of_each(rows: Rows, vectors: Vectors) -> tuple[list[int], Vectors]:
    """Row ids once each, with the last vector given for them."""
    at = {row: position for position, row in enumerate(rows.tolist())}
    return list(at), np.ascontiguousarray(vectors[list(at.values())], dtype=np.float32)


class _Block:
    """One owner's vectors and, at the same positions, their row ids."""

    def __init__(self, dimension: int) -> None:
        self.lock = threading.Lock()
        self._dimension = dimension
        self._index = faiss.IndexFlatIP(dimension)
        self._rows: Rows = np.empty(0, np.int64)
        self._position: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._position)

    def add(self, rows: list[int], vectors: Vectors) -> None:
        known = np.fromiter((row in self._position for row in rows), bool, len(rows))
        if known.any():
            stored = self._stored()
            for at in np.flatnonzero(known):
                stored[self._position[rows[at]]] = vectors[at]
        self._append([row for row, old in zip(rows, known, strict=True) if not old], vectors[~known])

    def _append(self, rows: list[int], vectors: Vectors) -> None:
        if not rows:
            return
        start = len(self)
        self._index.add(vectors)
        self._rows = self._with_room(start + len(rows))
        self._rows[start : start + len(rows)] = rows
        self._position.update(zip(rows, range(start, start + len(rows)), strict=True))

    def _with_room(self, size: int) -> Rows:
        """The row ids in an array that doubles, so that appending stays cheap however long the block is."""
        if size <= len(self._rows):
            return self._rows
        return np.concatenate([self._rows, np.full(size - len(self._rows) + len(self), -1, np.int64)])

    def remove(self, rows: Iterable[int]) -> int:
        """Fill each hole with the last row, then cut the end off: the cost is that of what goes, not of the block."""
        size = before = len(self)
        stored = self._stored()
        for row in rows:
            hole = self._position.pop(row, None)
            if hole is None:
                continue
            size -= 1
            if hole != size:
                last = int(self._rows[size])
                stored[hole], self._rows[hole], self._position[last] = stored[size], last, hole
            self._rows[size] = -1
        if size < before:
            self._index.remove_ids(faiss.IDSelectorRange(size, before))
        return before - size

    def search(self, query: Vectors, k: int) -> tuple[Rows, NDArray[np.float32]]:
        return best(self._index, self._rows, query, k)

    def products(self, query: Vectors) -> tuple[Rows, NDArray[np.float32]]:
        """Without the sorting, which takes longer than the products."""
        size = len(self)
        scores = np.empty(size, np.float32)
        if size:
            kernel: Any = getattr(faiss, PRODUCTS)
            out, at = faiss.swig_ptr(scores), faiss.swig_ptr(query)
            kernel(out, at, self._index.get_xb(), self._dimension, size)
        return self._rows[:size].copy(), scores

    def _stored(self) -> Vectors:
        """The vectors in place. A view on FAISS's memory: dead as soon as the index grows or shrinks."""
        flat: Vectors = faiss.rev_swig_ptr(self._index.get_xb(), self._index.ntotal * self._dimension)
        return flat.reshape(-1, self._dimension)


class FaissHotIndex:
    """`ports.HotIndex` on `faiss.IndexFlatIP` blocks. Equal scores go to the larger row id (the newer turn)."""

    def __init__(self, dimension: int) -> None:
        faiss.omp_set_num_threads(1)  # a search takes microseconds; waking a second thread takes longer
        self._dimension = dimension
        self._blocks: dict[str, _Block] = {}

    def add(self, owner: str, rows: Rows, vectors: Vectors) -> None:
        """Raises ValueError where the vectors are not of shape (len(rows), dimension)."""
        if vectors.shape != (len(rows), self._dimension):
            raise ValueError(f"vectors of shape {vectors.shape} for {len(rows)} rows of dimension {self._dimension}")
        block = self._blocks.get(owner) or self._blocks.setdefault(owner, _Block(self._dimension))
        with block.lock:
            block.add(*newest_of_each(rows, vectors))

    def remove(self, owner: str, rows: Rows) -> int:
        block = self._blocks.get(owner)
        if block is None:
            return 0
        with block.lock:
            return block.remove(rows.tolist())

    def search(self, owner: str, query: Vectors, k: int) -> tuple[Rows, NDArray[np.float32]]:
        block = self._blocks.get(owner)
        if block is None:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        with block.lock:
            return block.search(np.ascontiguousarray(query, dtype=np.float32), k)

    def products(self, owner: str, query: Vectors) -> tuple[Rows, NDArray[np.float32]]:
        block = self._blocks.get(owner)
        if block is None:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        with block.lock:
            return block.products(np.ascontiguousarray(query, dtype=np.float32))

    def drop(self, owner: str) -> None:
        self._blocks.pop(owner, None)

    def count(self, owner: str) -> int:
        block = self._blocks.get(owner)
        return 0 if block is None else len(block)
