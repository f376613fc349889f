"""The cold tables: one LanceDB table a shard under an address of their own, full text only.

A row is the warm row that a turn had, without its vectors. Nothing here is on the path of a hot or warm read: the
table is opened when it is asked for first, and made when the first turn goes cold. A store that does not answer is
left alone for a moment, so that what needs it fails at once instead of waiting with the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import lancedb
import pyarrow as pa

from serve_app.core import Turn
from serve_app.errors import StorageFull, StorageTrouble, StoreUnavailable
from serve_app.stores.rows import Row
from serve_app.stores.table import LanceTable, translated
from serve_app.stores.wanted import ANY, Wanted
from serve_app.stores.where import Where

PATIENCE: Mapping[str, str] = {
    "connect_timeout": "3s",
    "timeout": "15s",
    "client_max_retries": "1",
    "client_retry_timeout": "5",
}
"""How long LanceDB waits for an object store; it would retry for minutes. The settings' own options win."""

REST_S = 15.0
"""A store that failed is not asked to take anything for so long. Reads have a guard of their own."""


class ColdTable(LanceTable):
    """Each call may raise StorageTrouble."""

    def __init__(self, uri: str, name: str, options: Mapping[str, str]) -> None:
        patient = {**PATIENCE, **options} if "://" in uri else options
        super().__init__(uri, name, patient, _SCHEMA)
        self._opened: lancedb.table.Table | None = None
        self._opening = threading.Lock()
        self._rests_until = 0.0

    @property
    def _table(self) -> lancedb.table.Table:
        found = self._found(create=True)
        assert found is not None
        return found

    @property
    def exists(self) -> bool:
        with self._watched():
            return self._found(create=False) is not None

    def _readable(self) -> bool:
        with self._watched(resting=False):
            return self._found(create=False) is not None

    def _found(self, *, create: bool) -> lancedb.table.Table | None:
        with self._opening:
            if self._opened is None:
                with translated():
                    self._opened = self._open(create=create)
            return self._opened

    @contextmanager
    def _watched(self, *, resting: bool = True) -> Iterator[None]:
        """Notes whether the store answers; raises at once where it rests after a failure. A full one can be read."""
        if resting and time.monotonic() < self._rests_until:
            raise StoreUnavailable(self.trouble or "the cold tables do not answer")
        try:
            yield
        except StorageFull as error:
            self.trouble = f"the cold tables take nothing: {error}"
            raise
        except StorageTrouble as error:
            self.trouble = f"the cold tables do not answer: {error}"
            self._rests_until = time.monotonic() + REST_S
            raise
        self.trouble, self._rests_until = None, 0.0

    @property
    def to_be_asked_again(self) -> bool:
        """Whether it failed, and has been left alone for long enough."""
        return self.trouble is not None and time.monotonic() >= self._rests_until

    def answers(self) -> bool:
        """Asks the store; where it does not answer, `trouble` says why."""
        try:
            with self._watched():
                if self._found(create=False) is not None:
                    self.version()
        except StorageTrouble:
            return False
        return True

    # ---- writing

    def keep(self, rows: Sequence[Row]) -> None:
        """Hold these rows durably. One that is there already stays as it is."""
        with self._watched():
            self._merge(rows)
            self.sync()

    def forget(self, condition: Where) -> None:
        """Remove rows, durably. Their bytes leave with `clean`."""
        if self.exists:
            with self._watched():
                self.delete(condition)
                self.sync()

    def clean(self) -> None:
        """Rewrite the files without what was removed from them. Raises StoreUnavailable while they are held."""
        if self.hold.held:
            raise StoreUnavailable("a backup copies the cold table; what was removed leaves its files after that")
        if self.exists:
            with self._watched():
                self._rewrite()
                self.sync()

    def tend(self) -> None:
        """Keep the table compact."""
        if self._opened is not None:
            with self._watched():
                self.compact()

    # ---- reading

    def read(self, owner: str, seqs: Sequence[int]) -> list[Turn]:
        if not seqs or not self._readable():
            return []
        with self._watched(resting=False):
            return self.turns(owner, seqs)

    def find(self, owner: str, terms: Sequence[str], k: int, wanted: Wanted = ANY) -> list[Turn]:
        """The owner's turns that hold any of the terms and are wanted, by BM25, at most k."""
        if not terms or not self._readable():
            return []
        with self._watched(resting=False):
            return [turn for turn, _ in self.matching(owner, terms, k, wanted)]


_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("row", "rev", "seq", "created_at", "arrived_at")]
    + [(name, pa.string()) for name in ("kind", "owner", "session", "id", "terms")]
    + [("body", pa.binary())]
)
