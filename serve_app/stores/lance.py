"""The warm tables: one LanceDB table a shard, holding what the log's folded part says.

A row is a turn, a further chunk of a long turn, a version of a fact, a summary, an owner's hits, the mark of an
owner's last edit or erasure, the state of a user's erasure, the one watermark, or the one mark of the
last purge. Its key `row` is `seq * ROWS_PER_TURN_MAX + part`. The watermark is written in the same commit as
the rows it stands for. A turn that went cold stays as a stub: its place, without its content (`rows.stub_of`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import lancedb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.expr import col, lit
from numpy.typing import NDArray

from serve_app.core import EmbeddingVersion, Fact, Summary, Turn
from serve_app.records import Erasure
from serve_app.stores.block import resident_turns
from serve_app.stores.rows import COLD, HOT, Row, StoredOwner, StoredTurn, StoredVectors, Stub, cold_mark, pseudonym
from serve_app.stores.table import KEYS_A_SCAN, LOAD_ROWS_MAX, PURGED_ROW, WATERMARK_ROW, LanceTable, translated
from serve_app.stores.where import Where, every, of_either, of_kind, owned

AGES_A_BATCH = 65_536
"""Rows that a look at the ages of all turns holds at a time."""


class Age(NamedTuple):
    """When a turn that is not cold came, and the tier it is in."""

    seq: int
    session: str
    arrived_at: int
    tier: int


class RecordTable(LanceTable):
    """The table of one shard. Called from any thread; written by the shard's writer only."""

    newer = (
        "target.rev < source.rev OR (target.rev = source.rev AND "
        "(target.vector_seq < source.vector_seq OR target.tier < source.tier))"
    )
    """The source says something newer, or the same with its vector or in a colder tier."""

    def __init__(self, uri: str, name: str, version: EmbeddingVersion, options: Mapping[str, str]) -> None:
        self._vector = f"v_{version.name}"
        super().__init__(uri, name, options, _schema(self._vector, version.dimension))
        with translated():
            table = self._open(create=True)
        assert table is not None
        self._opened: lancedb.table.Table = table

    @property
    def _table(self) -> lancedb.table.Table:
        return self._opened

    def _added(self) -> Mapping[str, str]:
        """Turns of a table without arrival times count as having come when it is opened first: none is old at once."""
        return {"tier": f"cast({HOT} as bigint)", "arrived_at": f"cast({time.time_ns() // 1000} as bigint)"}

    def _holding(self, where: Where) -> Where:
        return every(where, col("tier") < lit(COLD))

    # ---- writing

    def merge(self, rows: Sequence[Row], folded_seq: int) -> None:
        """Insert or update `rows` and set the watermark, in one commit."""
        self._merge([*rows, Row(row=WATERMARK_ROW, rev=folded_seq, kind="watermark", owner="", seq=folded_seq)])

    def purge(self, folded_seq: int) -> None:
        """Take the bytes of what was deleted out of the files.

        Then note that what was erased up to `folded_seq` is gone from them.
        """
        self._rewrite()
        self._merge([Row(row=PURGED_ROW, rev=folded_seq, kind="purged", owner="", seq=folded_seq)])
        self.sync()

    def purge_due(self) -> bool:
        """Whether something was edited or erased that the files may still hold."""
        return self._later("mark", "purged")

    def cold_purge_due(self) -> bool:
        """The same of the cold table, as this one knows it: it may not answer."""
        return self._later("cold_changed", "cold_clean")

    def note_cold_clean(self, folded_seq: int) -> None:
        self._merge([cold_mark(folded_seq, clean=True)])
        self.sync()

    def _later(self, kind: str, done: str) -> bool:
        """Whether there is a mark of this kind that is newer than that of its being done."""
        found = self._scan(col("kind").isin([kind, done]), ["kind", "seq"]).to_pylist()
        last = max((row["seq"] for row in found if row["kind"] == done), default=0)
        return any(row["seq"] > last for row in found if row["kind"] == kind)

    # ---- reading

    def folded_seq(self) -> int:
        """The seq up to which the log is in this table."""
        found = self._scan(col("row") == lit(WATERMARK_ROW), ["seq"])
        return int(found["seq"][0].as_py()) if found.num_rows else 0

    def load(self, owner: str, resident_max: int) -> StoredOwner:
        """All of one owner; the bodies and vectors of the newest turns only, see `resident_turns`."""
        mine = of_either(owner, pseudonym(owner))
        light = self._scan(mine, ["seq", "kind", "session", "id", "created_at", "tier"]).sort_by("seq")
        lines = light.to_pylist()
        if not lines:
            return StoredOwner()
        rows = [row for row in lines if row["kind"] == "turn"]
        index = tuple(StoredTurn(*(row[name] for name in StoredTurn.__struct_fields__)) for row in rows)
        hot = [row["seq"] for row in rows if row["tier"] == HOT]
        resident = resident_turns(len(hot), resident_max)
        first = hot[-resident] if len(hot) > resident else 0
        heavy = self._scan(
            every(owned(owner), col("kind").isin(["turn", "chunk"]), col("seq") >= lit(first), col("tier") == lit(HOT)),
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
        found: list[Row] = []
        for start in range(0, len(keys), KEYS_A_SCAN):
            part = self._scan(col("row").isin(list(keys[start : start + KEYS_A_SCAN])), _PLAIN)
            found += [Row(**row) for row in part.to_pylist()]
        return found

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

    # ---- tiers

    def whole(self, owner: str, seqs: Sequence[int]) -> list[Row]:
        """All rows of these turns of the owner, with their vectors, as they can be merged again."""
        found: list[Row] = []
        for start in range(0, len(seqs), KEYS_A_SCAN):
            kinds = col("kind").isin(["turn", "chunk"])
            where = every(owned(owner), kinds, col("seq").isin(list(seqs[start : start + KEYS_A_SCAN])))
            part = self._scan(where, [*_PLAIN, self._vector])
            packed = [
                None if one is None else np.asarray(one, "<f2").tobytes() for one in part[self._vector].to_pylist()
            ]
            plain = part.select(_PLAIN).to_pylist()
            found += [Row(**row, vector=vector) for row, vector in zip(plain, packed, strict=True)]
        return found

    def stubs(self, owner: str, seqs: Sequence[int]) -> dict[int, Stub]:
        """What is left here of those of these turns that went cold, by seq."""
        found: dict[int, Stub] = {}
        for start in range(0, len(seqs), KEYS_A_SCAN):
            part = col("seq").isin(list(seqs[start : start + KEYS_A_SCAN]))
            where = every(owned(owner), of_kind("turn"), part, col("tier") == lit(COLD))
            rows = self._scan(where, ["seq", "body"]).to_pylist()
            found |= {row["seq"]: msgspec.msgpack.decode(row["body"], type=Stub) for row in rows}
        return found

    def any_stub(self, rows: Where) -> bool:
        """Whether one of these rows is that of a cold turn."""
        where = every(rows, of_kind("turn"), col("tier") == lit(COLD))
        found = self._read(lambda: self._table.search().where(where).select(["seq"]).limit(1).to_arrow())
        return bool(found.num_rows)

    def arrived_at(self, owner: str, seq: int) -> int:
        """When a turn came that went cold; 0 where it is not there."""
        found = self._scan(every(owned(owner), of_kind("turn"), col("seq") == lit(seq)), ["arrived_at"])
        return int(found["arrived_at"][0].as_py()) if found.num_rows else 0

    def oldest(self) -> dict[tuple[str, int], int]:
        """By owner and tier, when the oldest turn came that is not cold. Reads no bodies, in bounded batches."""
        found: dict[tuple[str, int], int] = defaultdict(lambda: 1 << 62)
        where = self._holding(of_kind("turn"))
        columns = ["owner", "tier", "arrived_at"]
        batches = self._read(
            lambda: self._table.search().where(where).select(columns).limit(LOAD_ROWS_MAX).to_batches(AGES_A_BATCH)
        )
        for batch in batches:
            least = pa.Table.from_batches([batch]).group_by(["owner", "tier"]).aggregate([("arrived_at", "min")])
            for row in least.to_pylist():
                key = row["owner"], row["tier"]
                found[key] = min(found[key], row["arrived_at_min"])
        return found

    def ages(self, owner: str) -> list[Age]:
        """Of the owner's turns that are not cold, oldest first, without their bodies."""
        found = self._scan(self._holding(every(owned(owner), of_kind("turn"))), list(Age._fields)).sort_by("seq")
        return [Age(**row) for row in found.to_pylist()]

    def session_vectors(self, owner: str, seqs: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The first vector of each of these turns that has one."""
        found: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(seqs), KEYS_A_SCAN):
            part = col("seq").isin(list(seqs[start : start + KEYS_A_SCAN]))
            where = every(owned(owner), of_kind("turn"), part, col("vector_rev") == col("rev"))
            for row in self._scan(where, ["seq", self._vector]).to_pylist():
                if row[self._vector] is not None:
                    found[row["seq"]] = np.asarray(row[self._vector], np.float32)
        return found

    def hits(self, owners: Sequence[str]) -> list[Row]:
        """The row of each of these owners that holds when their turns were found last."""
        found: list[Row] = []
        for start in range(0, len(owners), KEYS_A_SCAN):
            mine = col("owner").isin(list(owners[start : start + KEYS_A_SCAN]))
            found += [Row(**row) for row in self._scan(every(mine, of_kind("hits")), _PLAIN).to_pylist()]
        return found


def _schema(vector: str, dimension: int) -> pa.Schema:
    integers = ["row", "rev", "seq", "created_at", "arrived_at", "tier", "vector_rev", "vector_seq"]
    texts = ["kind", "owner", "session", "id", "terms"]
    return pa.schema(
        [(name, pa.int64()) for name in integers]
        + [(name, pa.string()) for name in texts]
        + [("body", pa.binary()), (vector, pa.list_(pa.float16(), dimension))]
    )


_PLAIN = [field for field in Row.__struct_fields__ if field != "vector"]


def _turn(body: bytes) -> Turn:
    return msgspec.msgpack.decode(body, type=Turn)


def _pairs(table: pa.Table, first: str, second: str) -> Iterator[tuple[Any, Any]]:
    return zip(table[first].to_pylist(), table[second].to_pylist(), strict=True)
