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
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import lancedb
import lancedb.index as index_kinds
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.expr import col, lit
from lancedb.query import MatchQuery
from numpy.typing import NDArray

from serve_app.core import EmbeddingVersion, Fact, Summary, Turn
from serve_app.errors import MemstrataError, StorageFull, StorageTrouble, StoreUnavailable
from serve_app.records import Erasure
from serve_app.stores.block import resident_turns
from serve_app.stores.durable import SyncedFolder, local_folder
from serve_app.stores.rows import Row, StoredOwner, StoredTurn, StoredVectors, pseudonym
from serve_app.stores.where import Where, every, of_either, of_kind, owned

T = TypeVar("T")

warnings.filterwarnings("ignore", message=r"optimize\(cleanup_older_than=0\)")  # of concurrent readers: see `_read`

TABLES_MAX = 100_000
"""Tables of one store, a shard each."""

WATERMARK_ROW, PURGED_ROW = -1, -2
INDEXED = frozenset({"owner", "row", "seq", "terms"})
NEWER = "target.rev < source.rev OR (target.rev = source.rev AND target.vector_seq < source.vector_seq)"
"""When a merge replaces a row: the source says something newer, or the same with its vector."""
LOAD_ROWS_MAX = 10_000_000
"""LanceDB answers ten rows unless told otherwise; a scan of one owner asks for at most this many."""
KEYS_A_SCAN = 1_000
"""Keys that one scan asks for, which bounds the length of its expression."""
INDEX_CACHE_BYTES, METADATA_CACHE_BYTES = 32 << 20, 8 << 20
"""What LanceDB may remember of one table; its own defaults are gigabytes."""
COMPACT_FRAGMENTS = 24
"""Small fragments that the writer lets gather before it compacts."""
VERSIONS_KEPT_FOR = datetime.timedelta(minutes=10)
READ_ATTEMPTS = 4
"""A read is run again when a purge takes its files away; purges are seconds apart, so this many are never needed."""


@contextmanager
def translated() -> Iterator[None]:
    """Every error of LanceDB becomes one of this project's."""
    try:
        yield
    except MemstrataError:
        raise
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
        self.trouble: str | None = None
        """Why the last read failed."""
        folder = local_folder(uri)
        self._synced = None if folder is None else SyncedFolder(folder / f"{name}.lance")
        with translated():
            caches = lancedb.Session(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES)
            database = lancedb.connect(uri, storage_options=dict(options) or None, session=caches)
            self._open(database, name)

    def _open(self, database: lancedb.DBConnection, name: str) -> None:
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
            with translated():
                self._synced.sync()

    def merge(self, rows: Sequence[Row], folded_seq: int) -> None:
        """Insert or update `rows` and set the watermark, in one commit."""
        self._merge([*rows, Row(row=WATERMARK_ROW, rev=folded_seq, kind="watermark", owner="", seq=folded_seq)])

    def _merge(self, rows: Sequence[Row]) -> None:
        with translated():
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
        with translated():
            return int(self._table.delete(where).num_deleted_rows)  # type: ignore[attr-defined]

    def compact(self) -> None:
        """Merge small fragments and index what is new, once enough has gathered; then drop old versions."""
        with translated():
            if self.fragments() >= COMPACT_FRAGMENTS:
                self._table.optimize()
                self.sync()
                self._table.optimize(cleanup_older_than=VERSIONS_KEPT_FOR)

    def purge(self, folded_seq: int) -> None:
        """Rewrite what holds deleted rows, rebuild the indexes, drop every older version and what no version names.

        Then note that what was erased up to `folded_seq` is gone from the files.
        """
        self._purge_steps += 1
        try:
            with translated():
                self._table.optimize()
                self._build_indexes()
                self.sync()  # before the old files go: the new ones must outlast a power cut
                self._table.optimize(cleanup_older_than=datetime.timedelta(0), delete_unverified=True)
        finally:
            self._purge_steps += 1
        self._merge([Row(row=PURGED_ROW, rev=folded_seq, kind="purged", owner="", seq=folded_seq)])
        self.sync()

    def purge_due(self) -> bool:
        """Whether something was edited or erased that the files may still hold."""
        found = self._scan(col("kind").isin(["mark", "purged"]), ["kind", "seq"]).to_pylist()
        purged = max((row["seq"] for row in found if row["kind"] == "purged"), default=0)
        return any(row["seq"] > purged for row in found if row["kind"] == "mark")

    # ---- reading

    def version(self) -> int:
        """Changes with every commit."""
        with translated():
            return int(self._table.version)

    def folded_seq(self) -> int:
        """The seq up to which the log is in this table."""
        found = self._scan(col("row") == lit(WATERMARK_ROW), ["seq"])
        return int(found["seq"][0].as_py()) if found.num_rows else 0

    def load(self, owner: str, resident_max: int) -> StoredOwner:
        """All of one owner; the bodies and vectors of the newest turns only, see `resident_turns`."""
        mine = of_either(owner, pseudonym(owner))
        light = self._scan(mine, ["seq", "kind", "session", "id", "created_at"]).sort_by("seq")
        lines = light.to_pylist()
        if not lines:
            return StoredOwner()
        rows = [row for row in lines if row["kind"] == "turn"]
        index = tuple(StoredTurn(row["seq"], row["session"], row["id"], row["created_at"]) for row in rows)
        resident = resident_turns(len(rows), resident_max)
        first = rows[-resident]["seq"] if len(rows) > resident else 0
        heavy = self._scan(
            every(owned(owner), col("kind").isin(["turn", "chunk"]), col("seq") >= lit(first)),
            ["row", "kind", "seq", "body", "rev", "vector_rev", "vector_seq", self._vector],
        ).sort_by("row")
        turns = tuple(_turn(body) for body, kind in _pairs(heavy, "body", "kind") if kind == "turn")
        others = self._scan(every(owned(owner), col("kind").isin(["fact", "summary"])), ["seq", "kind", "body"])
        bodies = list(_pairs(others.sort_by("seq"), "body", "kind"))
        return StoredOwner(
            index=index,
            turns=turns,
            vectors=tuple(self._read_vectors(heavy)),
            facts=tuple(msgspec.msgpack.decode(body, type=Fact) for body, kind in bodies if kind == "fact"),
            summaries=tuple(msgspec.msgpack.decode(body, type=Summary) for body, kind in bodies if kind == "summary"),
            changed_seq=max((row["seq"] for row in lines if row["kind"] == "mark"), default=0),
        )

    def _read_vectors(self, table: pa.Table) -> Iterator[StoredVectors]:
        """Those of each turn that has its vectors; `table` is sorted by row."""
        parts: dict[int, list[NDArray[np.float32]]] = {}
        vector_seqs: dict[int, int] = {}
        for row in table.select(["seq", "rev", "vector_rev", "vector_seq", self._vector]).to_pylist():
            if row["vector_rev"] == row["rev"] and row[self._vector] is not None:
                parts.setdefault(row["seq"], []).append(np.asarray(row[self._vector], np.float32))
                vector_seqs[row["seq"]] = row["vector_seq"]
        for seq, found in parts.items():
            yield StoredVectors(seq, vector_seqs[seq], np.stack(found))

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
        with translated():
            return int(self._table.stats()["fragment_stats"]["num_fragments"])  # type: ignore[index]

    def versions(self) -> int:
        with translated():
            return len(self._table.list_versions())

    def _scan(self, where: Where, columns: Sequence[str]) -> pa.Table:
        return self._read(
            lambda: self._table.search().where(where).select(list(columns)).limit(LOAD_ROWS_MAX).to_arrow()
        )

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
        for _ in range(READ_ATTEMPTS - 1):
            steps = self._purge_steps
            try:
                with translated():
                    return query()
            except StoreUnavailable:
                if steps == self._purge_steps and steps % 2 == 0:
                    raise
        with translated():
            return query()


def _turn(body: bytes) -> Turn:
    return msgspec.msgpack.decode(body, type=Turn)


def _pairs(table: pa.Table, first: str, second: str) -> Iterator[tuple[Any, Any]]:
    return zip(table[first].to_pylist(), table[second].to_pylist(), strict=True)
