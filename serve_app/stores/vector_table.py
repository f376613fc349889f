"""Vectors of one version beside the turns that they are of: one LanceDB table a shard and version.

A version that came by a migration lies here and not in columns of the shard's own table, whose rows would have to be
written anew for it, bodies and all. A row is the vector of one part of a turn, under the key that the turn has in the
shard's table. Nothing here says whether the turn is still there, or in which state: a row counts only while `rev` is
that of its turn, which the shard's table knows (`stores.vector_reads`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from hashlib import blake2b
from typing import Any

import lancedb
import msgspec
import numpy as np
import pyarrow as pa
from lancedb.expr import col, lit
from numpy.typing import NDArray

from serve_app.core import ROWS_PER_TURN_MAX, EmbeddingVersion
from serve_app.errors import NotFound
from serve_app.stores.holding import Hold
from serve_app.stores.owner_rows import packed_vectors
from serve_app.stores.ownership import OWNER, rows_of
from serve_app.stores.packing import DIGEST_BYTES
from serve_app.stores.parts import parts
from serve_app.stores.table import KEYS_A_SCAN, LOAD_ROWS_MAX, LanceTable, translated, vectors_column
from serve_app.stores.where import Where, either, every, of_seqs, owned

BATCH_ROWS = 65_536
"""Rows in memory at once while all of a table are looked at, without their vectors."""

DELETIONS_A_COMMIT = 50
"""Conditions that one delete joins, which bounds the depth of its expression."""

_PLACED = ("row", "seq", "rev", "vector_seq")

_SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,120}")


class VectorRow(msgspec.Struct, frozen=True):
    """The vector of one part of a turn in the state `rev`; `vector_seq` is the record that brought it.

    The vectors of the tokens lie in the row of the first part. `digest` is None where nobody has said it.
    """

    row: int
    rev: int
    vector_seq: int
    owner: str
    session: str
    seq: int
    digest: bytes | None
    vector: bytes
    tokens: bytes | None = None


def beside_name(table: str, version: str) -> str:
    """The name of the table that holds this version's vectors beside those of `table`."""
    safe = version if _SAFE_NAME.fullmatch(version) else blake2b(version.encode(), digest_size=16).hexdigest()
    return f"{table}.{safe}"


class VectorTable(LanceTable):
    """Called from any thread; written by the shard's writer only."""

    newer = "target.rev < source.rev OR (target.rev = source.rev AND target.vector_seq < source.vector_seq)"
    indexed = frozenset({"owner", "row", "seq"})

    def __init__(
        self, uri: str, table: str, version: EmbeddingVersion, options: Mapping[str, str], hold: Hold | None = None
    ) -> None:
        """Beside the table of that name, whose `hold` keeps these files, too."""
        super().__init__(uri, beside_name(table, version.name), options, _schema(version))
        self.hold = hold or self.hold
        with translated():
            opened = self._open(create=True)
        if opened is None:
            raise NotFound(f"there is no table {self._name} at {uri}")
        self._opened: lancedb.table.Table = opened

    @property
    def _table(self) -> lancedb.table.Table:
        return self._opened

    def there(self) -> bool:
        """Whether it has not been dropped."""
        with translated():
            return self._there(self._connected())

    def refresh(self) -> int:
        """Read the newest version from now on; gives it."""
        with translated():
            self._look_again()
        return self.version()

    # ---- writing

    def put(self, rows: Sequence[VectorRow]) -> None:
        """Insert or replace: of each of these turns all its rows, so that parts of a longer state do not stay."""
        keys = {row.row for row in rows}
        held = (self._scan(of_seqs(part), ["row"])["row"] for part in parts(sorted({r.seq for r in rows}), KEYS_A_SCAN))
        left = sorted({key for found in held for key in found.to_pylist()} - keys)
        for part in parts(left, KEYS_A_SCAN):
            self.delete(col("row").isin(part))
        if rows:
            self._merge_arrow(self._columns(rows))

    def _columns(self, rows: Sequence[VectorRow]) -> pa.Table:
        columns = [_column(field, [getattr(row, field.name) for row in rows]) for field in self._schema]
        return pa.table(columns, schema=self._schema)

    def forget(self, conditions: Sequence[Where]) -> None:
        """Remove rows. Their bytes leave with `clean`."""
        for part in parts(conditions, DELETIONS_A_COMMIT):
            self.delete(reduce(either, part))

    def clean(self) -> None:
        """Rewrite the files without what was removed from them. Raises StoreUnavailable while they are held."""
        self._rewrite()

    # ---- reading

    def of_owner(self, owner: str, first: int, last: int) -> pa.Table:
        """Rows of the owner's turns between two seqs, in order: row, seq, rev, vector_seq, vector, tokens."""
        between = every(col("seq") >= lit(first), col("seq") <= lit(last))
        return self._scan_of(owner, between, [*_PLACED, "vector", "tokens"]).sort_by("row")

    def between_seqs(self, where: Where) -> pa.Table:
        """Rows of any owner by their seqs, without tokens."""
        return self._scan(where, [*_PLACED, "vector"])

    def of_turns(self, owner: str, seqs: Sequence[int], column: str) -> dict[int, tuple[int, Any]]:
        """By seq, of the first part of each of these turns: the state that was embedded, and a column."""
        found: dict[int, tuple[int, Any]] = {}
        for part in parts(seqs, KEYS_A_SCAN):
            keys = col("row").isin([seq * ROWS_PER_TURN_MAX for seq in part])
            rows = rows_of(self._scan(keys, [OWNER, "seq", "rev", column]), owner)
            values = packed_vectors(rows[column]) if column == "vector" else rows[column].to_pylist()
            found |= dict(zip(rows["seq"].to_pylist(), zip(rows["rev"].to_pylist(), values, strict=True), strict=True))
        return found

    def keys(self, owner: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(row, rev) of all rows of the owner."""
        found = rows_of(self._scan(owned(owner), [OWNER, "row", "rev"]), owner)
        return np.asarray(found["row"]), np.asarray(found["rev"])

    def first_parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(seq, rev) of every turn that has vectors here, whoever's. 16 bytes each."""
        found = self._scan(col("row") >= lit(0), ["row", "rev"], LOAD_ROWS_MAX)
        rows, revs = np.asarray(found["row"]), np.asarray(found["rev"])
        first = rows % ROWS_PER_TURN_MAX == 0
        return rows[first] // ROWS_PER_TURN_MAX, revs[first]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of every row, a bounded number of rows at a time."""
        with translated():
            yield from self._table.search().select(list(columns)).to_batches(BATCH_ROWS)

    def nearest(self, owner: str, query: NDArray[np.float32], where: Where, limit: int) -> list[tuple[int, int, float]]:
        """(seq, rev, inner product) of the owner's rows that are most alike, exactly, best first."""
        found = self._read(
            lambda: (
                self._table.search(query, vector_column_name="vector")
                .distance_type("dot")  # type: ignore[attr-defined]
                .bypass_vector_index()
                .where(every(owned(owner), where))
                .select([OWNER, "seq", "rev", "_distance"])
                .limit(limit)
                .to_arrow()
            )
        )
        rows = rows_of(found, owner)
        return [(row["seq"], row["rev"], 1.0 - row["_distance"]) for row in rows.to_pylist()]


def _schema(version: EmbeddingVersion) -> pa.Schema:
    return pa.schema(
        [(name, pa.int64()) for name in ("row", "rev", "vector_seq", "seq")]
        + [(name, pa.string()) for name in ("owner", "session")]
        + [("digest", pa.binary(DIGEST_BYTES))]
        + [("vector", pa.list_(pa.float16(), version.dimension))]
        + [("tokens", pa.binary())]
    )


def _column(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    return vectors_column(values, field.type.list_size) if field.name == "vector" else pa.array(values, field.type)


class VectorTableAsItIs(VectorTable):
    """For reading only: it makes no table and builds no index. Raises NotFound where there is no such table (yet)."""

    def _open(self, *, create: bool) -> lancedb.table.Table | None:
        return self._open_as_is()
