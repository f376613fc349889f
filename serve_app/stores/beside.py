"""The tables of vectors beside one shard's table: opened and let go while others read.

A version whose table is not there (yet, or any more) has nothing beside. Asks what lies there; whether a row still
counts is for the shard's table to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from serve_app.core import EmbeddingVersion
from serve_app.errors import StoreUnavailable
from serve_app.stores.vector_table import VectorRow, VectorTable
from serve_app.stores.where import Where

T = TypeVar("T")

Open = Callable[[EmbeddingVersion], VectorTable | None]


class Beside:
    """Called from any thread; `hold`, `let_go` and what writes by the shard's writer only."""

    def __init__(self, open_table: Open) -> None:
        self._open = open_table
        self._versions: Mapping[str, EmbeddingVersion] = {}
        self._tables: Mapping[str, VectorTable] = {}

    @property
    def versions(self) -> Mapping[str, EmbeddingVersion]:
        return self._versions

    @property
    def tables(self) -> Mapping[str, VectorTable]:
        """Those that are there, by version; a new mapping whenever one comes or goes."""
        return self._tables

    def hold(self, version: EmbeddingVersion) -> None:
        if version.name not in self._tables:
            found = self._open(version)
            if found is not None:
                self._tables = {**self._tables, version.name: found}
        self._versions = {**self._versions, version.name: version}

    def let_go(self, name: str) -> VectorTable | None:
        """Nobody asks it any more from here on; gives the table if it is open."""
        found = self._tables.get(name)
        self._versions = {other: one for other, one in self._versions.items() if other != name}
        self._tables = {other: one for other, one in self._tables.items() if other != name}
        return found

    def look_again(self) -> None:
        """Read the newest of each from now on, and what has come since."""
        gone = [name for name in self._tables if self._ask(name, VectorTable.refresh) is None]
        self._tables = {name: table for name, table in self._tables.items() if name not in gone}
        for version in self._versions.values():
            self.hold(version)

    # ---- writing

    def put(self, name: str, rows: Sequence[VectorRow]) -> None:
        if name in self._tables:
            self._tables[name].put(rows)

    def forget(self, conditions: Sequence[Where]) -> None:
        for table in self._tables.values():
            table.forget(conditions)

    # ---- reading

    def of_owner(self, owner: str, first: int, last: int) -> dict[str, pa.Table]:
        """By version the rows of the owner's turns between two seqs; see `VectorTable.of_owner`."""
        found = {name: self._ask(name, lambda table: table.of_owner(owner, first, last)) for name in self._tables}
        return {name: rows for name, rows in found.items() if rows is not None}

    def between(self, name: str, where: Where) -> pa.Table | None:
        return self._ask(name, lambda table: table.between_seqs(where))

    def of_turns(self, name: str, owner: str, seqs: Sequence[int], column: str) -> dict[int, tuple[int, bytes | None]]:
        return self._ask(name, lambda table: table.of_turns(owner, seqs, column)) or {}

    def keys(self, owner: str) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """By version (row, rev) of the owner's rows."""
        found = {name: self._ask(name, lambda table: table.keys(owner)) for name in self._tables}
        return {name: keys for name, keys in found.items() if keys is not None}

    def nearest(
        self, name: str, owner: str, query: NDArray[np.float32], where: Where, limit: int
    ) -> list[tuple[int, int, float]]:
        return self._ask(name, lambda table: table.nearest(owner, query, where, limit)) or []

    def first_parts(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = self._ask(name, VectorTable.first_parts)
        return (np.empty(0, np.int64), np.empty(0, np.int64)) if found is None else found

    def _ask(self, name: str, read: Callable[[VectorTable], T]) -> T | None:
        """None where there is no such table, or where it has been dropped under this reader's hands."""
        table = self._tables.get(name)
        if table is None:
            return None
        try:
            return read(table)
        except StoreUnavailable:
            if table.there():
                raise
            return None
