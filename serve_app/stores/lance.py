"""The warm tables: one LanceDB table a shard, holding what the log's folded part says.

A row is a turn, a further chunk of a long turn, a version of a fact, a summary, the mark of an
owner's last edit or erasure, the state of a user's erasure, the one watermark, or the one mark of the
last purge. Its key `row` is `seq * ROWS_PER_TURN_MAX + part`; its `rev` is the seq of the record that
last wrote it, and a merge never replaces a newer `rev`. The watermark is written in the same commit as
the rows it stands for.
Filters are expressions, never strings.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import lancedb
import lancedb.index as index_kinds
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.expr import col, lit
from lancedb.query import MatchQuery
from numpy.typing import NDArray

from serve_app.core import EmbeddingVersion, Turn
from serve_app.errors import StorageFull, StoreUnavailable
from serve_app.records import Erasure
from serve_app.stores.block import resident_turns
from serve_app.stores.durable import SyncedFolder, local_folder
from serve_app.stores.owner_rows import HEAVY, LIGHT, stored_owner, turn_seqs
from serve_app.stores.rows import Row, StoredOwner, pseudonym
from serve_app.stores.table_files import LAG_ROWS, TableFiles
from serve_app.stores.where import Where, either, every, of_either, of_kind, owned

T = TypeVar("T")

TABLES_MAX = 100_000
"""Tables of one store, a shard each."""

WATERMARK_ROW, PURGED_ROW = -1, -2
INDEXED = frozenset({"owner", "row", "seq", "terms"})
NEWER = "target.rev < source.rev OR (target.rev = source.rev AND target.vector_seq < source.vector_seq)"
"""When a merge replaces a row: the source says something newer, or the same with its vector."""
LOAD_ROWS_MAX = 10_000_000
"""LanceDB answers ten rows unless told otherwise; a scan of one owner asks for at most this many."""
LOADED_AT_ONCE = 2_048
"""Rows of an owner up to which all columns are read in one scan; of more the ids first, then the newest content."""
KEYS_A_SCAN = 1_000
"""Keys that one scan asks for, which bounds the length of its expression."""
INDEX_CACHE_BYTES, METADATA_CACHE_BYTES = 32 << 20, 8 << 20
"""What LanceDB may remember of one table; its own defaults are gigabytes."""
VERSIONS_KEPT_FOR = datetime.timedelta(minutes=10)
READ_ATTEMPTS = 4
"""A read is run again when a purge takes its files away; purges are seconds apart, so this many are never needed."""


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if "No space left" in str(error) or "os error 28" in str(error):
            raise StorageFull("no room left for the tables") from error
        raise StoreUnavailable(f"the tables do not answer: {error}") from error


class RecordTable:
    """The table of one shard. Called from any thread; written by the shard's writer only."""

    def __init__(self, uri: str, name: str, version: EmbeddingVersion, options: Mapping[str, str]) -> None:
        self._version = version
        self._vector = f"v_{version.name}"
        self._purge_steps = 0  # odd while a purge is at work
        folder = local_folder(uri)
        self._files = TableFiles(f"{uri.rstrip('/')}/{name}.lance", options)
        self._synced = None if folder is None else SyncedFolder(folder / f"{name}.lance")
        with _translated():
            caches = lancedb.Session(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES)
            database = lancedb.connect(uri, storage_options=dict(options) or None, session=caches)
            if name in database.list_tables(limit=TABLES_MAX).tables:
                self._table = database.open_table(name)
            else:
                self._table = database.create_table(name, schema=self._schema())
            if not {column for index in self._table.list_indices() for column in index.columns} >= INDEXED:
                self._build_indexes()

    def _schema(self) -> pa.Schema:
        integers = ["row", "rev", "seq", "created_at", "vector_rev", "vector_seq"]
        texts = ["kind", "owner", "session", "id", "terms"]
        vector = pa.list_(pa.float16(), self._version.dimension)
        return pa.schema(
            [(name, pa.int64()) for name in integers]
            + [(name, pa.string()) for name in texts]
            + [("body", pa.binary()), (self._vector, vector)]
        )

    def _build_indexes(self) -> None:
        for name in sorted(INDEXED - {"terms"}):
            self._table.create_index(name, config=index_kinds.BTree())
        self._build_text_index()

    def _build_text_index(self) -> None:
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
        self._table.create_index("terms", config=config, replace=True)

    # ---- writing

    def sync(self) -> None:
        """Make all that was written so far outlast a power cut. On an object store it does already."""
        if self._synced is not None:
            with _translated():
                self._synced.sync()

    def merge(self, rows: Sequence[Row], folded_seq: int) -> None:
        """Insert or update `rows` and set the watermark, in one commit."""
        self._merge([*rows, Row(row=WATERMARK_ROW, rev=folded_seq, kind="watermark", owner="", seq=folded_seq)])

    def _merge(self, rows: Sequence[Row]) -> None:
        with _translated():
            (
                self._table.merge_insert("row")
                .when_matched_update_all(where=NEWER)
                .when_not_matched_insert_all()
                .execute(self._arrow(rows), on_bad_vectors="null")
            )

    def _arrow(self, rows: Sequence[Row]) -> pa.Table:
        schema = self._schema()
        columns = [
            pa.array([getattr(row, name) for row in rows], schema.field(name).type) for name in schema.names[:-1]
        ]
        return pa.table([*columns, self._vectors([row.vector for row in rows])], schema=schema)

    def _vectors(self, packed: Sequence[bytes | None]) -> pa.Array:
        dimension = self._version.dimension
        empty = bytes(2 * dimension)
        values = np.frombuffer(b"".join(one or empty for one in packed), "<f2")
        missing = pa.array([one is None for one in packed], pa.bool_())
        return pa.FixedSizeListArray.from_arrays(pa.array(values), dimension, mask=missing)

    def delete(self, where: Where) -> int:
        """Remove rows; gives their number. Their bytes leave with `purge`."""
        with _translated():
            return int(self._table.delete(where).num_deleted_rows)  # type: ignore[attr-defined]

    def compact(self) -> None:
        """Merge small fragments and index what is new, each once enough has gathered; then drop old versions."""
        with _translated():
            compacted = self._files.compact()
            if compacted:
                self._look_again()
            self._index_what_lags(terms_too=compacted)
            if compacted:
                self.sync()
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

    def purge(self, folded_seq: int) -> None:
        """Rewrite what holds deleted rows, rebuild the indexes, drop every older version and what no version names.

        Then note that what was erased up to `folded_seq` is gone from the files.
        """
        self._purge_steps += 1
        try:
            with _translated():
                self._files.rewrite_deleted()
                self._look_again()
                self._build_indexes()
                self.sync()  # before the old files go: the new ones must outlast a power cut
                self._files.drop_versions(datetime.timedelta(0), unverified=True)
        finally:
            self._purge_steps += 1
        self._merge([Row(row=PURGED_ROW, rev=folded_seq, kind="purged", owner="", seq=folded_seq)])
        self.sync()

    def _look_again(self) -> None:
        """The files were rewritten past this handle: from here on it reads the newest version."""
        self._table.checkout_latest()  # type: ignore[no-untyped-call]

    def purge_due(self) -> bool:
        """Whether something was edited or erased that the files may still hold."""
        found = self._scan(col("kind").isin(["mark", "purged"]), ["kind", "seq"]).to_pylist()
        purged = max((row["seq"] for row in found if row["kind"] == "purged"), default=0)
        return any(row["seq"] > purged for row in found if row["kind"] == "mark")

    # ---- reading

    def version(self) -> int:
        """Changes with every commit."""
        with _translated():
            return int(self._table.version)

    def folded_seq(self) -> int:
        """The seq up to which the log is in this table."""
        found = self._scan(col("row") == lit(WATERMARK_ROW), ["seq"])
        return int(found["seq"][0].as_py()) if found.num_rows else 0

    def load(self, owner: str, resident_max: int) -> StoredOwner:
        """All of one owner up to a seq; the bodies and vectors of the newest turns only, see `resident_turns`.

        One look at the table for all but owners with very many rows: each look costs more than what it brings.
        """
        mine = either(of_either(owner, pseudonym(owner)), col("row") == lit(WATERMARK_ROW))
        whole = self._scan(mine, [*dict.fromkeys(LIGHT + HEAVY), self._vector], LOADED_AT_ONCE + 1)
        if whole.num_rows <= LOADED_AT_ONCE:
            return self._stored_owner(whole, whole, resident_max)
        light = self._scan(mine, LIGHT)
        first = _first_resident(light, resident_max)
        content = either(col("seq") >= lit(first), col("kind").isin(["fact", "summary"]))
        heavy = self._scan(every(owned(owner), content), [*HEAVY, self._vector])
        return self._stored_owner(light, heavy, resident_max)

    def _stored_owner(self, light: pa.Table, heavy: pa.Table, resident_max: int) -> StoredOwner:
        return stored_owner(light, heavy, _first_resident(light, resident_max), self._vector)

    def rows(self, keys: Sequence[int]) -> list[Row]:
        """The rows with these keys as they stand, without their vectors."""
        names = [field for field in Row.__struct_fields__ if field != "vector"]
        found: list[Row] = []
        for start in range(0, len(keys), KEYS_A_SCAN):
            part = self._scan(col("row").isin(list(keys[start : start + KEYS_A_SCAN])), names)
            found += [Row(**row) for row in part.to_pylist()]
        return found

    def turns(self, owner: str, seqs: Sequence[int]) -> list[Turn]:
        """The turns with these seqs that are the owner's, oldest first."""
        wanted, found = sorted(set(seqs)), []
        for start in range(0, len(wanted), KEYS_A_SCAN):
            where = every(owned(owner), of_kind("turn"), col("seq").isin(wanted[start : start + KEYS_A_SCAN]))
            found += self._scan(where, ["seq", "body"]).sort_by("seq")["body"].to_pylist()
        return [_turn(body) for body in found]

    def nearest(self, owner: str, query: NDArray[np.float32], k: int) -> list[tuple[Turn, float]]:
        """The owner's turns with the largest inner product, exactly (no vector index), best first."""
        where = every(owned(owner), col("kind").isin(["turn", "chunk"]), col("vector_rev") == col("rev"))
        found = self._read(
            lambda: (
                self._table.search(query, vector_column_name=self._vector)
                .distance_type("dot")  # type: ignore[attr-defined]
                .bypass_vector_index()
                .where(where)
                .select(["seq", "_distance"])
                .limit(k)
                .to_list()
            )
        )
        best: dict[int, float] = {}
        for row in found:
            best[row["seq"]] = max(best.get(row["seq"], -2.0), 1.0 - row["_distance"])
        turns = sorted(self.turns(owner, list(best)), key=lambda turn: best[turn.seq], reverse=True)
        return [(turn, best[turn.seq]) for turn in turns]

    def matching(self, owner: str, terms: Sequence[str], k: int) -> list[tuple[Turn, float]]:
        """The owner's turns that hold any of the terms, by the table's BM25."""
        if not terms:
            return []
        where = every(owned(owner), of_kind("turn"))
        found = self._read(
            lambda: (
                self._table.search(MatchQuery(" ".join(terms), "terms"))  # type: ignore[call-arg]
                .where(where)
                .select(["seq", "_score"])
                .limit(k)
                .to_list()
            )
        )
        scores = {row["seq"]: row["_score"] for row in found}
        return [(turn, scores[turn.seq]) for turn in self.turns(owner, list(scores))]

    def without_vectors(self) -> list[tuple[str, str, int, int]]:
        """(owner, session, seq, rev) of turns whose vectors are still to come."""
        columns = ["owner", "session", "seq", "rev"]
        found = self._scan(every(of_kind("turn"), col("vector_rev") < col("rev")), columns).to_pylist()
        return [(row["owner"], row["session"], row["seq"], row["rev"]) for row in found]

    def owners(self, start: str, end: str) -> set[str]:
        """Owners of turns or facts whose key is `start` or after it, and before `end`."""
        within = every(col("owner") >= lit(start), col("owner") < lit(end), col("kind").isin(["turn", "fact"]))
        return set(pc.unique(self._scan(within, ["owner"])["owner"]).to_pylist())

    def erasures(self) -> list[Erasure]:
        bodies = self._scan(of_kind("erasure"), ["body"])["body"].to_pylist()
        return [msgspec.msgpack.decode(body, type=Erasure) for body in bodies]

    def fragments(self) -> int:
        with _translated():
            return int(self._table.stats()["fragment_stats"]["num_fragments"])  # type: ignore[index]

    def versions(self) -> int:
        with _translated():
            return len(self._table.list_versions())

    def _scan(self, where: Where, columns: Sequence[str], most: int = LOAD_ROWS_MAX) -> pa.Table:
        return self._read(lambda: self._table.search().where(where).select(list(columns)).limit(most).to_arrow())

    def _read(self, query: Callable[[], T]) -> T:
        """Run a query; one whose files a purge takes away under its hands is run again on the new ones."""
        for _ in range(READ_ATTEMPTS - 1):
            steps = self._purge_steps
            try:
                with _translated():
                    return query()
            except StoreUnavailable:
                if steps == self._purge_steps and steps % 2 == 0:
                    raise
        with _translated():
            return query()


def _turn(body: bytes) -> Turn:
    return msgspec.msgpack.decode(body, type=Turn)


def _first_resident(light: pa.Table, resident_max: int) -> int:
    """The seq of the oldest turn that is resident, 0 where all are."""
    seqs = turn_seqs(light)
    resident = resident_turns(len(seqs), resident_max)
    return int(seqs[-resident]) if len(seqs) > resident else 0
