"""The tables as reads see them: what is asked of a table goes through its guard, and raises StorageTrouble in time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.stores.cold import ColdTable
from serve_app.stores.guard import Guard
from serve_app.stores.lance import RecordTable
from serve_app.stores.rows import Stub, TurnState
from serve_app.stores.wanted import ANY, Wanted

T = TypeVar("T")


class GuardedTable:
    """The reads of a warm table that requests ask for; `RecordTable` says what each gives."""

    def __init__(self, table: RecordTable, guard: Guard) -> None:
        self._table = table
        self.guard = guard

    def turns(self, owner: str, seqs: Sequence[int]) -> list[Turn]:
        return self._read(self._table.turns, owner, seqs)

    def nearest(
        self, owner: str, query: NDArray[np.float32], k: int, wanted: Wanted, version: str
    ) -> list[tuple[Turn, float]]:
        return self._read(self._table.nearest, owner, query, k, wanted, version)

    def matching(self, owner: str, terms: Sequence[str], k: int, wanted: Wanted = ANY) -> list[tuple[Turn, float]]:
        return self._read(self._table.matching, owner, terms, k, wanted)

    def not_naming(self, owner: str, keys: Collection[str]) -> set[int]:
        return self._read(self._table.not_naming, owner, keys)

    def named(self, owner: str) -> pa.Table:
        return self._read(self._table.named, owner)

    def tokens(self, owner: str, version: str, seqs: Sequence[int]) -> dict[int, bytes]:
        return self._read(self._table.tokens, owner, version, seqs)

    def stubs(self, owner: str, seqs: Sequence[int]) -> dict[int, Stub]:
        return self._read(self._table.stubs, owner, seqs)

    def states(self, seqs: Sequence[int]) -> dict[int, TurnState]:
        return self._read(self._table.states, seqs)

    def arrived_at(self, owner: str, seq: int) -> int:
        return self._read(self._table.arrived_at, owner, seq)

    def vector_rows(self, owner: str) -> set[tuple[str, int]]:
        return self._read(self._table.vector_rows, owner)

    def owners(self, start: str, end: str) -> set[str]:
        return self._read(self._table.owners, start, end)

    def size(self) -> tuple[int, int]:
        """Fragments, versions."""
        return self._read(lambda: (self._table.fragments(), self._table.versions()))

    def _read(self, read: Callable[..., T], *arguments: Any) -> T:
        return self.guard.call(partial(read, *arguments))


class GuardedColdTable:
    """The same of a cold table."""

    def __init__(self, table: ColdTable, guard: Guard) -> None:
        self._table = table
        self.guard = guard

    def read(self, owner: str, seqs: Sequence[int]) -> list[Turn]:
        return self.guard.call(partial(self._table.read, owner, seqs)) if seqs else []

    def find(self, owner: str, terms: Sequence[str], k: int, wanted: Wanted = ANY) -> list[Turn]:
        return self.guard.call(partial(self._table.find, owner, terms, k, wanted)) if terms else []
