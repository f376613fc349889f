"""A shard's table as of one version, for reading only: it makes no table, builds no index and removes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import lancedb

from serve_app.core import EmbeddingVersion
from serve_app.errors import NotFound
from serve_app.stores.lance import RecordTable
from serve_app.stores.rows import WARM
from serve_app.stores.table import translated
from serve_app.stores.vector_table import VectorTable, VectorTableAsItIs

BATCH_ROWS = 4_096
"""Rows in memory at once while all of a table are looked at."""


class TableReader(RecordTable):
    """Pinned to the version that was the newest when it was opened. A purge may take that version's files away: then
    reads raise StoreUnavailable, and it has to be opened again. Raises NotFound where there is no such table.
    """

    coldest = WARM

    def _open(self, *, create: bool) -> lancedb.table.Table:
        found = self._open_as_is()
        if found is None:
            raise NotFound(f"there is no table {self._name} at {self._uri}")
        return found

    def _open_beside(self, version: EmbeddingVersion) -> VectorTable | None:
        with suppress(NotFound):
            return VectorTableAsItIs(self._uri, self._name, version, self._options)
        return None

    def columns(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """These columns of every row, a bounded number of rows at a time."""
        with translated():
            for batch in self._table.search().select(list(names)).to_batches(BATCH_ROWS):
                yield from batch.to_pylist()

    def newest(self) -> int:
        """The newest version there is now."""
        with translated():
            return int(self._connected().open_table(self._name).version)
