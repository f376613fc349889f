"""What the tables of both tiers share: opening, merges of whole rows, deletions, purges, scans, and their errors.

A table has one row for each `row`, its key; `rev` is the seq of the record that last wrote it, and a merge never
replaces a newer one. Filters are expressions, never strings.
"""

from __future__ import annotations

import datetime
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, TypeVar

import lancedb
import lancedb.index as index_kinds
import msgspec
import numpy as np
import pyarrow as pa
from lancedb.expr import col, lit
from lancedb.query import MatchQuery

from serve_app.core import ROWS_PER_TURN_MAX, Turn
from serve_app.errors import StorageFull, StorageTrouble, StoreUnavailable
from serve_app.stores.durable import SyncedFolder, local_folder
from serve_app.stores.holding import Hold
from serve_app.stores.ownership import OWNER, rows_of
from serve_app.stores.parts import parts
from serve_app.stores.rows import PLAIN, Row
from serve_app.stores.table_files import LAG_ROWS, TableFiles
from serve_app.stores.wanted import ANY, Wanted, best_turns
from serve_app.stores.where import Where, before, every, of_kind, owned

T = TypeVar("T")

warnings.filterwarnings("ignore", message=r"optimize\(cleanup_older_than=0\)")  # of concurrent readers: see `_read`

ABSENT = "was not found"
"""What LanceDB says of a table that has no version, though it lists its folder."""

TABLES_MAX = 100_000
"""Tables of one store, a shard each."""

WATERMARK_ROW, PURGED_ROW = -1, -2
INDEXED = frozenset({"owner", "row", "seq", "terms"})
LOAD_ROWS_MAX = 10_000_000
"""LanceDB answers ten rows unless told otherwise; a scan of one owner asks for at most this many."""
KEYS_A_SCAN = 1_000
"""Keys that one scan asks for, which bounds the length of its expression."""
INDEX_CACHE_BYTES, METADATA_CACHE_BYTES = 32 << 20, 8 << 20
"""What LanceDB may remember of one table; its own defaults are gigabytes."""
VERSIONS_KEPT_FOR = datetime.timedelta(minutes=10)
READ_ATTEMPTS = 4
"""A read is run again when a purge takes its files away; purges are seconds apart, so this many are never needed."""

STORE_ERRORS = (RuntimeError, ValueError, OSError, pa.ArrowException)
"""What LanceDB, its engine, Arrow and the system raise where a store does not answer or what it holds is damaged."""


@contextmanager
def translated() -> Iterator[None]:
    """Every error of LanceDB becomes one of this project's: StorageFull or StoreUnavailable.

    Others are defects, and stay what they are.
    """
    try:
        yield
    except STORE_ERRORS as error:
        if "No space left" in str(error) or "os error 28" in str(error):
            raise StorageFull("no room left for the tables") from error
        raise StoreUnavailable(f"the tables do not answer: {error}") from error


class LanceTable(ABC):
    """One table of a shard. Called from any thread; written by the shard's writer only."""

    newer: ClassVar[str] = "target.rev < source.rev"
    """When a merge replaces a row."""

    indexed: ClassVar[frozenset[str]] = INDEXED
    """Columns with an index: of words that of `terms`, of values the others."""

    def __init__(self, uri: str, name: str, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._uri, self._name, self._options, self._schema = uri, name, options, schema
        self._purge_steps = 0  # odd while a purge is at work
        self.hold = Hold()
        self.trouble: str | None = None
        """Why the last read failed."""
        self._files = TableFiles(f"{uri.rstrip('/')}/{name}.lance", options)
        folder = local_folder(uri)
        self._synced = None if folder is None else SyncedFolder(folder / f"{name}.lance")

    @property
    @abstractmethod
    def _table(self) -> lancedb.table.Table:
        """The open table. Raises StoreUnavailable."""

    # ---- opening

    def _open(self, *, create: bool) -> lancedb.table.Table | None:
        """The table, complete in columns and indexes; None where there is none and it is not to be made."""
        database = self._connected()
        table = self._table_found(database)
        if table is None and create:
            table = database.create_table(self._name, schema=self._schema)
        if table is None:
            return None
        self._complete(table)
        if not {column for index in table.list_indices() for column in index.columns} >= self.indexed:
            self._build_indexes(table)
        return table

    def _complete(self, table: lancedb.table.Table) -> None:
        """Add the columns that a table of an earlier release, or of fewer versions, lacks: no row is written anew."""
        there, constants = set(table.schema.names), self._added()
        missing = [field for field in self._schema if field.name not in there]
        known = {field.name: constants[field.name] for field in missing if field.name in constants}
        if known:
            table.add_columns(known)
        if empty := [field for field in missing if field.name not in constants]:
            table.add_columns(empty)

    def _open_as_is(self) -> lancedb.table.Table | None:
        """The table with the columns and indexes that it has; None where there is none. Makes nothing."""
        folder = local_folder(self._uri)
        if folder is not None and not folder.exists():  # LanceDB would make it
            return None
        return self._table_found(self._connected())

    def _table_found(self, database: lancedb.DBConnection) -> lancedb.table.Table | None:
        """The table as it is; None where there is none, or only what was left when its making was cut short."""
        if not self._there(database):
            return None
        try:
            return database.open_table(self._name)
        except ValueError as error:
            if ABSENT not in str(error) or not self._is_empty():
                raise
            return None

    def _is_empty(self) -> bool:
        """Whether no version and no row of it was ever complete. An object store does not lose versions alone."""
        folder = local_folder(self._uri)
        if folder is None:
            return True
        files = folder / f"{self._name}.lance"
        return not any(files.glob("_versions/*.manifest")) and not any(files.glob("data/*"))

    def _connected(self) -> lancedb.DBConnection:
        caches = lancedb.Session(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES)
        return lancedb.connect(self._uri, storage_options=dict(self._options) or None, session=caches)

    def _there(self, database: lancedb.DBConnection) -> bool:
        return self._name in database.list_tables(limit=TABLES_MAX).tables

    def _added(self) -> Mapping[str, str]:
        """What older rows get in columns that their table lacks, constants in SQL; in all others nothing."""
        return {}

    # ---- writing

    def sync(self) -> None:
        """Make all that was written so far outlast a power cut. On an object store it does already."""
        if self._synced is not None:
            with translated():
                self._synced.sync()

    def _merge(self, rows: Sequence[Row]) -> None:
        self._merge_arrow(self._arrow(rows))

    def _merge_arrow(self, rows: pa.Table) -> None:
        with translated():
            (
                self._table.merge_insert("row")
                .when_matched_update_all(where=self.newer)
                .when_not_matched_insert_all()
                .execute(rows, on_bad_vectors="null")
            )

    def _arrow(self, rows: Sequence[Row]) -> pa.Table:
        return pa.table([_column(field, rows) for field in self._schema], schema=self._schema)

    def delete(self, where: Where) -> int:
        """Remove rows; gives their number. Their bytes leave with `purge`."""
        with translated():
            return int(self._table.delete(where).num_deleted_rows)  # type: ignore[attr-defined]

    def compact(self) -> None:
        """Merge small fragments and index what is new, each once enough has gathered; then drop old versions."""
        with translated():
            compacted = self._files.compact()
            if compacted:
                self._look_again()
            self._index_what_lags(terms_too=compacted)
            if compacted:
                self.sync()
                with self.hold.removing() as may:
                    if may:
                        self._files.drop_versions(VERSIONS_KEPT_FOR)

    def _index_what_lags(self, *, terms_too: bool) -> None:
        """The words of new rows wait for the compaction: merging fragments that an index knows costs it a rewrite."""
        lagging = [
            index.name
            for index in self._table.list_indices()
            if terms_too or (index.columns != ["terms"] and (index.num_unindexed_rows or 0) > LAG_ROWS)
        ]
        if lagging:
            self._files.index(lagging)
            self._look_again()

    def _look_again(self) -> None:
        """The files were rewritten past this handle: from here on it reads the newest version."""
        self._table.checkout_latest()  # type: ignore[no-untyped-call]

    def _rewrite(self) -> None:
        """Rewrite what holds deleted rows, rebuild the indexes, drop every older version and what no version names.

        Raises StoreUnavailable while the files are held.
        """
        with self.hold.removing() as may:
            if not may:
                raise StoreUnavailable("a backup copies this table; what was erased leaves its files after that")
            self._rewrite_files()

    def _rewrite_files(self) -> None:
        self._purge_steps += 1
        try:
            with translated():
                self._files.rewrite_deleted()
                self._look_again()
                self._build_indexes(self._table)
                self.sync()  # before the old files go: the new ones must outlast a power cut
                self._files.drop_versions(datetime.timedelta(0), unverified=True)
        finally:
            self._purge_steps += 1

    def _build_indexes(self, table: lancedb.table.Table) -> None:
        for name in sorted(self.indexed - {"terms"}):
            table.create_index(name, config=index_kinds.BTree())
        if "terms" in self.indexed:
            _build_text_index(table)

    # ---- reading

    def version(self) -> int:
        """Changes with every commit."""
        with translated():
            return int(self._table.version)

    def turns(self, owner: str, seqs: Sequence[int]) -> list[Turn]:
        """The turns with these seqs that are the owner's and whose content is in this table, oldest first."""
        wanted, found = sorted(set(seqs)), []
        for part in parts(wanted, KEYS_A_SCAN):
            keys = col("row").isin([seq * ROWS_PER_TURN_MAX for seq in part])
            where = self._holding(
                every(keys, of_kind("turn"))
            )  # the owner's rows may be many: they are not gone through
            rows = rows_of(self._scan(where, [OWNER, "seq", "body"]), owner)
            found += rows.sort_by("seq")["body"].to_pylist()
        return [msgspec.msgpack.decode(body, type=Turn) for body in found]

    def has_column(self, name: str) -> bool:
        with translated():
            return name in self._table.schema.names

    def between(
        self, first: int, last: int, columns: Sequence[str] | Mapping[str, str], kinds: Sequence[str] = ()
    ) -> pa.Table:
        """Rows with `first <= seq <= last`, whoever's they are, by their keys; of these kinds, if any are named.

        `columns` by name, or each with the expression that it is to hold.
        """
        within = every(col("seq") >= lit(first), col("seq") <= lit(last))
        where = every(within, col("kind").isin(list(kinds))) if kinds else within
        named: dict[str, str | Where] = {"row": "row"}
        named.update(columns if isinstance(columns, Mapping) else {name: name for name in columns})
        query = self._table.search().where(where).select(named).limit(LOAD_ROWS_MAX)
        return self._read(query.to_arrow).sort_by("row")

    def _holding(self, where: Where) -> Where:
        """Narrowed to the rows of turns whose content is in this table."""
        return where

    def matching(self, owner: str, terms: Sequence[str], k: int, wanted: Wanted = ANY) -> list[tuple[Turn, float]]:
        """The owner's turns that hold any of the terms and are wanted, by the table's BM25, best first."""
        if not terms:
            return []
        where = self._among(every(owned(owner), of_kind("turn")), wanted)

        def ask(limit: int) -> list[tuple[int, float]]:
            found = self._read(
                lambda: (
                    self._table.search(MatchQuery(" ".join(terms), "terms"))  # type: ignore[call-arg]
                    .where(where)
                    .select(["seq", "_score"])
                    .limit(limit)
                    .to_list()
                )
            )
            return [(row["seq"], row["_score"]) for row in found]

        return best_turns(ask, partial(self.turns, owner), k, wanted)

    def _among(self, where: Where, wanted: Wanted) -> Where:
        """Narrowed to the rows of turns that may be wanted, as far as columns tell."""
        return where if wanted.until is None else every(where, before(wanted.until + 1))

    def fragments(self) -> int:
        with translated():
            return int(self._table.stats()["fragment_stats"]["num_fragments"])  # type: ignore[index]

    def versions(self) -> int:
        with translated():
            return len(self._table.list_versions())

    def _scan(self, where: Where, columns: Sequence[str], most: int = LOAD_ROWS_MAX) -> pa.Table:
        return self._read(lambda: self._table.search().where(where).select(list(columns)).limit(most).to_arrow())

    def _scan_of(self, owner: str, where: Where, columns: Sequence[str]) -> pa.Table:
        """One owner's rows: asked for by a filter, and looked at again."""
        return rows_of(self._scan(every(owned(owner), where), [OWNER, *columns]), owner)

    def _read(self, query: Callable[[], T]) -> T:
        """Run a query, and note whether the table answers."""
        try:
            found = self._read_patiently(query)
        except StorageTrouble as error:
            self.trouble = str(error)
            raise
        self.trouble = None
        return found

    def _read_patiently(self, query: Callable[[], T]) -> T:
        """Run a query; one whose files a purge takes away under its hands is run again on the new ones."""
        attempts = 0
        while True:
            attempts, steps = attempts + 1, self._purge_steps
            try:
                with translated():
                    return query()
            except StoreUnavailable:
                undisturbed = steps == self._purge_steps and steps % 2 == 0
                if undisturbed or attempts == READ_ATTEMPTS:
                    raise


def _build_text_index(table: lancedb.table.Table) -> None:
    """Terms come ready from `terms.index_terms`, so the tables find what memory finds: split at blanks only."""
    config = index_kinds.FTS(
        base_tokenizer="whitespace",
        max_token_length=None,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
        with_position=False,
    )
    table.create_index("terms", config=config, replace=True)


def _column(field: pa.Field, rows: Sequence[Row]) -> pa.Array:
    if field.name in PLAIN:
        return pa.array([getattr(row, field.name) for row in rows], field.type)
    packed = [row.packed.get(field.name) for row in rows]
    if pa.types.is_fixed_size_list(field.type):
        return vectors_column(packed, field.type.list_size)
    return pa.array(packed, field.type)


def vectors_column(packed: Sequence[bytes | None], dimension: int) -> pa.Array:
    empty = bytes(2 * dimension)
    values = np.frombuffer(b"".join(one or empty for one in packed), "<f2")
    missing = pa.array([one is None for one in packed], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(pa.array(values), dimension, mask=missing)
