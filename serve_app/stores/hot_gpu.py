"""Hot index on a GPU: the same one block an owner, in device memory.

Owns one `StandardGpuResources` and the lock that serialises it: the resource is not thread-safe,
and FAISS allows no search beside an add on one index. A flat index on the GPU can neither take
rows out nor carry ids, and silently ignores an id selector. So a row that goes leaves a dead slot,
a search fetches that many more and every hit is checked against the host's row ids, and a block with
too many dead slots is rebuilt and swapped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import Rows, Vectors
from serve_app.stores.hot_faiss import FlatSearch, best, newest_of_each

try:
    import faiss
except ImportError as error:
    raise ImportError("the hot index on a GPU needs FAISS: pip install 'memstrata[gpu]'") from error

__all__ = ["FlatIndex", "GpuHotIndex", "gpu_count"]

FETCHED_MAX = 2048
"""Neighbours that one search on the GPU may return: FAISS's own limit for its flat indexes."""

DEAD_MAX = 512
"""Dead slots of one block before it is rebuilt; with the k of a search they must stay under FETCHED_MAX."""

TEMP_MEMORY_BYTES = 256 * 2**20
"""Scratch memory of one resource. FAISS would take 1.5 GiB of a device that the models share."""


class FlatIndex(FlatSearch, Protocol):
    """The part of a flat FAISS index that works on every device."""

    def add(self, x: Vectors, /) -> Any: ...

    def reconstruct_n(self, n0: int, ni: int, /) -> Any: ...


def gpu_count() -> int:
    """GPUs that this build of FAISS can use: 0 for the CPU build."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


class _Block:
    """One owner's slots: an index that only grows, and the row id in each slot (-1: dead)."""

    def __init__(self, flat: Callable[[], FlatIndex]) -> None:
        self._flat = flat
        self._index = flat()
        self._rows: Rows = np.empty(0, np.int64)
        self._slot: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._slot)

    @property
    def _dead(self) -> int:
        return len(self._rows) - len(self._slot)

    def add(self, rows: list[int], vectors: Vectors) -> None:
        self.remove(rows)
        if not rows:
            return
        self._slot.update(zip(rows, range(len(self._rows), len(self._rows) + len(rows)), strict=True))
        self._index.add(vectors)
        self._rows = np.concatenate([self._rows, np.array(rows, np.int64)])

    def remove(self, rows: Iterable[int]) -> int:
        slots = [slot for row in rows if (slot := self._slot.pop(row, None)) is not None]
        self._rows[slots] = -1
        if self._dead > DEAD_MAX:
            self._rebuild()
        return len(slots)

    def _rebuild(self) -> None:
        live = self._rows >= 0
        index = self._flat()
        if live.any():
            index.add(np.ascontiguousarray(self._index.reconstruct_n(0, self._index.ntotal)[live]))
        self._index, self._rows = index, self._rows[live]
        self._slot = {row: slot for slot, row in enumerate(self._rows.tolist())}

    def search(self, query: Vectors, k: int) -> tuple[Rows, NDArray[np.float32]]:
        return best(self._index, self._rows, query, k, dead=self._dead, fetched_max=FETCHED_MAX)


class GpuHotIndex:
    """`ports.HotIndex` over flat indexes that only grow; `flat` makes an empty one of the right dimension.

    At most FETCHED_MAX - DEAD_MAX rows a search. `on_device` is how it is opened in service.
    """

    def __init__(self, flat: Callable[[], FlatIndex]) -> None:
        self._flat = flat
        self._lock = threading.Lock()
        self._blocks: dict[str, _Block] = {}

    @classmethod
    def on_device(cls, dimension: int, device: int = 0, *, temp_memory_bytes: int = TEMP_MEMORY_BYTES) -> GpuHotIndex:
        """Open on one GPU. Raises ImportError where FAISS is a CPU build or sees no such GPU."""
        if device >= gpu_count():
            raise ImportError(f"no GPU {device} for FAISS: pip install 'memstrata[gpu]' on a machine that has one")
        resources = faiss.StandardGpuResources()
        resources.setTempMemory(temp_memory_bytes)
        config = faiss.GpuIndexFlatConfig()
        config.device = device
        return cls(lambda: faiss.GpuIndexFlatIP(resources, dimension, config))

    def add(self, owner: str, rows: Rows, vectors: Vectors) -> None:
        with self._lock:
            block = self._blocks.get(owner) or self._blocks.setdefault(owner, _Block(self._flat))
            block.add(*newest_of_each(rows, vectors))

    def remove(self, owner: str, rows: Rows) -> int:
        with self._lock:
            block = self._blocks.get(owner)
            return 0 if block is None else block.remove(rows.tolist())

    def search(self, owner: str, query: Vectors, k: int) -> tuple[Rows, NDArray[np.float32]]:
        with self._lock:
            block = self._blocks.get(owner)
            if block is None:
                return np.empty(0, np.int64), np.empty(0, np.float32)
            return block.search(np.ascontiguousarray(query, dtype=np.float32), min(k, FETCHED_MAX - DEAD_MAX))

    def products(self, owner: str, query: Vectors) -> tuple[Rows, NDArray[np.float32]]:
        return self.search(owner, query, FETCHED_MAX)

    def drop(self, owner: str) -> None:
        with self._lock:
            self._blocks.pop(owner, None)

    def count(self, owner: str) -> int:
        block = self._blocks.get(owner)
        return 0 if block is None else len(block)
