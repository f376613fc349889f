"""The hot indexes of a process by the name of their version: which there are may change while they are read.

Promises that an index is there as long as any of its holders, the shards, has not let go of it, and that whoever has
one in hand may go on with it. The vectors in an index leave with the blocks whose they are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from serve_app.core import EmbeddingVersion
from serve_app.ports import HotIndex
from serve_app.stores.hot_faiss import FaissHotIndex

__all__ = ["HotIndexes"]


class HotIndexes(Mapping[str, HotIndex]):
    def __init__(self) -> None:
        self._indexes: Mapping[str, HotIndex] = {}
        self._holders: dict[str, set[int]] = {}
        self._changing = threading.Lock()

    def hold(self, version: EmbeddingVersion, holder: int) -> HotIndex:
        """The version's index, empty where nobody held it before."""
        with self._changing:
            self._holders.setdefault(version.name, set()).add(holder)
            if version.name not in self._indexes:
                self._indexes = {**self._indexes, version.name: FaissHotIndex(version.dimension)}
            return self._indexes[version.name]

    def release(self, name: str, holder: int) -> None:
        """It goes with its last holder."""
        with self._changing:
            holders = self._holders.get(name, set())
            holders.discard(holder)
            if not holders:
                self._holders.pop(name, None)
                self._indexes = {key: index for key, index in self._indexes.items() if key != name}

    def __getitem__(self, name: str) -> HotIndex:
        return self._indexes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def __len__(self) -> int:
        return len(self._indexes)
