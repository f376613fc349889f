"""A shard's table as a follower reads it: opened as it is, never changed, and brought to its newest version on demand.

LanceDB shows a reader the version that it opened until it is told to look again. A purge by the writer takes the
files of older versions away: a read that meets that looks again and is run once more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import lancedb

from serve_app.core import EmbeddingVersion
from serve_app.errors import NotFound, StoreUnavailable
from serve_app.stores.cold import ColdTable
from serve_app.stores.lance import RecordTable
from serve_app.stores.table import translated
from serve_app.stores.vector_table import VectorTable, VectorTableAsItIs

T = TypeVar("T")


class FollowedTable(RecordTable):
    """Called from any thread. Raises StoreUnavailable where there is no such table (yet)."""

    def _open(self, *, create: bool) -> lancedb.table.Table:
        """As it is: its columns and indexes are the writer's."""
        found = self._open_as_is()
        if found is None:
            raise StoreUnavailable(f"there is no table {self._name} here")
        return found

    def refresh(self) -> int:
        """Read the newest version from now on; gives it."""
        with translated():
            self._look_again()
            self._found = frozenset()
            self._beside.look_again()
            return int(self._table.version)

    def _read(self, query: Callable[[], T]) -> T:
        try:
            return super()._read(query)
        except StoreUnavailable:
            self.refresh()
            return super()._read(query)

    def _open_beside(self, version: EmbeddingVersion) -> VectorTable | None:
        with suppress(NotFound):
            return FollowedVectors(self._uri, self._name, version, self._options)
        return None

    def release(self, name: str) -> None:
        """Ask for nothing of this version any more."""
        self._versions = tuple(one for one in self._versions if one != name)
        self._beside.let_go(name)


class FollowedVectors(VectorTableAsItIs):
    """A table beside as a follower reads it."""

    def _read(self, query: Callable[[], T]) -> T:
        try:
            return super()._read(query)
        except StoreUnavailable:
            self.refresh()
            return super()._read(query)


class FollowedColdTable(ColdTable):
    """The cold table as a follower reads it: its newest version at each look, and never changed."""

    def _open(self, *, create: bool) -> lancedb.table.Table | None:
        return self._open_as_is()

    def _found(self, *, create: bool) -> lancedb.table.Table | None:
        found = super()._found(create=False)
        if found is not None:
            with translated():
                found.checkout_latest()  # type: ignore[no-untyped-call]
        return found
