"""Rows of a store's warm and cold tables, read by ranges of their seqs, in processes that are no service.

A table is read as of its newest version. A purge may take that version's files away meanwhile: then it is opened anew
and the range is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

import pyarrow as pa

from serve_app.backup.layout import COLD, TABLES, Layout, table_name
from serve_app.core import EmbeddingVersion
from serve_app.errors import NotFound, StoreUnavailable
from serve_app.stores.lance_followed import FollowedColdTable
from serve_app.stores.table import LanceTable
from serve_app.stores.table_reader import TableReader
from serve_app.stores.vector_table import VectorTableAsItIs

T = TypeVar("T")

Columns = Sequence[str] | Mapping[str, str]
Root = Literal["tables", "cold"]

RANGE_SEQS: Final = 256
"""Positions that one look reads: with the largest turns that there are, memory for 256 MB."""

STRETCH_SEQS: Final = 64 * RANGE_SEQS
STRETCHES_MAX: Final = 4_096
"""Tasks of one pass, about; of a large store each has a longer stretch."""

READ_TRIES: Final = 8
READ_PAUSE_S: Final = 0.25
"""Before the next try, and as much longer after each."""


class Source(NamedTuple):
    """Where the tables of a store lie."""

    layout: Layout
    versions: tuple[EmbeddingVersion, ...] = ()


class Stretch(NamedTuple):
    """A range of seqs of one table, both ends included."""

    number: int
    shard: int
    root: Root
    first: int
    last: int


def stretches(ends: Sequence[int], roots: Sequence[Root] = (TABLES, COLD)) -> list[Stretch]:
    """Of all shards, whose last seqs these are. A cold row keeps the seq of its turn."""
    length = max(STRETCH_SEQS, sum(ends) * len(roots) // STRETCHES_MAX)
    found: list[Stretch] = []
    for shard, end in enumerate(ends):
        for root in roots:
            for first in range(0, end + 1, length):
                found.append(Stretch(len(found), shard, root, first, min(first + length - 1, end)))
    return found


def folded_seqs(source: Source, shards: int) -> list[int]:
    """Of each shard the seq up to which its log is in the tables; 0 where it has none yet."""
    return [_folded_seq(StoredTable(source, shard)) for shard in range(shards)]


def _folded_seq(table: StoredTable) -> int:
    try:
        return table.read(lambda one: one.folded_seq() if isinstance(one, TableReader) else 0)
    except NotFound:
        return 0


class StoredTable:
    """One table. Not thread-safe."""

    def __init__(
        self,
        source: Source,
        shard: int,
        root: Root = TABLES,
        version: EmbeddingVersion | None = None,
        pause_s: float = READ_PAUSE_S,
    ) -> None:
        """With `version` the table of the vectors that lie beside."""
        self._source, self._shard, self._root, self._pause_s = source, shard, root, pause_s
        self._version = version
        self._opened: LanceTable | None = None

    def ranges(self, first: int, last: int, columns: Columns, kinds: Sequence[str] = ()) -> Iterator[pa.Table]:
        """As `LanceTable.between`, a bounded number of rows at a time; nothing where there is no such table."""
        for start in range(first, last + 1, RANGE_SEQS):
            end = min(start + RANGE_SEQS - 1, last)
            try:
                yield self.read(lambda one, start=start, end=end: one.between(start, end, columns, kinds))  # type: ignore[misc]
            except NotFound:
                return

    def read(self, look: Callable[[LanceTable], T]) -> T:
        """Raises StoreUnavailable where the table does not answer again and again, NotFound where there is none."""
        for tried in range(1, READ_TRIES + 1):
            try:
                if self._opened is None:
                    self._opened = self._open()
                return look(self._opened)
            except StoreUnavailable:
                self._opened = None
                if tried == READ_TRIES:
                    raise
                time.sleep(self._pause_s * tried)
        raise AssertionError("unreachable: the last try gives or raises")

    def _open(self) -> LanceTable:
        layout, name = self._source.layout, table_name(self._shard)
        if self._version is not None:
            return VectorTableAsItIs(layout.tables[TABLES], name, self._version, layout.options)
        if self._root == TABLES:
            return TableReader(layout.tables[TABLES], name, self._source.versions, layout.options)
        cold = FollowedColdTable(layout.tables[COLD], name, layout.options_of(COLD))
        if not cold.exists:
            raise NotFound(f"there is no cold table {name}")
        return cold
