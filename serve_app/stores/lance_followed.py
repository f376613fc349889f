"""A shard's table as a follower reads it: opened as it is, never changed, and brought to its newest version on demand.

LanceDB shows a reader the version that it opened until it is told to look again. A purge by the writer takes the
files of older versions away: a read that meets that looks again and is run once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import lancedb

from serve_app.core import EmbeddingVersion
from serve_app.errors import StoreUnavailable
from serve_app.stores.cold import ColdTable
from serve_app.stores.durable import local_folder
from serve_app.stores.lance import RecordTable
from serve_app.stores.table import translated

T = TypeVar("T")


class FollowedTable(RecordTable):
    """Called from any thread. Raises StoreUnavailable where there is no such table (yet)."""

    def __init__(self, uri: str, name: str, version: EmbeddingVersion, options: Mapping[str, str]) -> None:
        folder = local_folder(uri)
        if folder is not None and not folder.exists():  # LanceDB would make it
            raise StoreUnavailable(f"there is no table {name} here: no folder {folder}")
        super().__init__(uri, name, version, options)

    def _open(self, *, create: bool) -> lancedb.table.Table:
        """As it is: its columns and indexes are the writer's."""
        database = self._connected()
        if not self._there(database):
            raise StoreUnavailable(f"there is no table {self._name} here")
        return database.open_table(self._name)

    def refresh(self) -> int:
        """Read the newest version from now on; gives it."""
        with translated():
            self._look_again()
            return int(self._table.version)

    def _read(self, query: Callable[[], T]) -> T:
        try:
            return super()._read(query)
        except StoreUnavailable:
            self.refresh()
            return super()._read(query)


class FollowedColdTable(ColdTable):
    """The cold table as a follower reads it: its newest version at each look, and never changed."""

    def _open(self, *, create: bool) -> lancedb.table.Table | None:
        folder = local_folder(self._uri)
        if folder is not None and not folder.exists():  # LanceDB would make it
            return None
        database = self._connected()
        return database.open_table(self._name) if self._there(database) else None

    def _found(self, *, create: bool) -> lancedb.table.Table | None:
        found = super()._found(create=False)
        if found is not None:
            with translated():
                found.checkout_latest()  # type: ignore[no-untyped-call]
        return found
