"""The warm tables: one LanceDB table a shard, holding what the log's folded part says.

A row is a turn, a further chunk of a long turn, a version of a fact, a summary, an owner's hits, the mark of an
owner's last edit or erasure, the state of a user's erasure, the one watermark, or the one mark of the
last purge. Its key `row` is `seq * ROWS_PER_TURN_MAX + part`. The watermark is written in the same commit as
the rows it stands for. A turn that went cold stays as a stub: its place, without its content (`rows.stub_of`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import lancedb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.expr import col, lit

from serve_app.core import NEVER, ROWS_PER_TURN_MAX, EmbeddingVersion, Summary
from serve_app.errors import StoreUnavailable
from serve_app.records import Erasure
from serve_app.stores.beside import Beside
from serve_app.stores.block import resident_turns
from serve_app.stores.entity_rows import surely_not
from serve_app.stores.owner_rows import HEAVY, LIGHT, packed_vectors, seqs_within, stored_owner
from serve_app.stores.ownership import OWNER, rows_of
from serve_app.stores.parts import grouped, parts
from serve_app.stores.rows import (
    COLD,
    HOT,
    PLAIN,
    Due,
    Row,
    StoredOwner,
    Stub,
    Told,
    TurnState,
    cold_mark,
    pseudonym,
    token_column,
    vector_column,
)
from serve_app.stores.table import (
    KEYS_A_SCAN,
    LOAD_ROWS_MAX,
    PURGED_ROW,
    TABLES_MAX,
    WATERMARK_ROW,
    translated,
)
from serve_app.stores.vector_reads import VectorReads
from serve_app.stores.vector_table import VectorRow, VectorTable, beside_name
from serve_app.stores.wanted import Wanted
from serve_app.stores.where import Where, before, either, every, of_either, of_kind, of_seqs, owned

LOADED_AT_ONCE = 2_048
"""Rows of an owner up to which all columns are read in one scan; of more the ids first, then the newest content."""

AGES_A_BATCH = 65_536
"""Rows that a look at the ages of all turns holds at a time."""


class Age(NamedTuple):
    """When a turn that is not cold came, and the tier it is in."""

    seq: int
    session: str
    arrived_at: int
    tier: int


class Standing(NamedTuple):
    """Of an owner's turns in one tier: when the oldest came, and the newest state of any."""

    came: int
    rev: int


class RecordTable(VectorReads):
    """The table of one shard. Called from any thread; written by the shard's writer only."""

    newer = (
        "target.rev < source.rev OR (target.rev = source.rev AND "
        "(target.vector_seq < source.vector_seq OR target.tier < source.tier))"
    )
    """The source says something newer, or the same with its vector or in a colder tier."""

    coldest = HOT
    """`load` gives the content of turns in this tier or a hotter one."""

    def __init__(self, uri: str, name: str, versions: Sequence[EmbeddingVersion], options: Mapping[str, str]) -> None:
        self._versions = tuple(version.name for version in versions)
        self._next_expiry: int | None = None  # nothing of this table expires before; None: not looked at yet
        self._merges = 0
        self._found: frozenset[str] = frozenset()
        self._beside = Beside(self._open_beside)
        super().__init__(uri, name, options, _schema(versions))
        with translated():
            table = self._open(create=True)
        assert table is not None
        self._opened: lancedb.table.Table = table
        self._schema = self._whole_schema()

    @property
    def _table(self) -> lancedb.table.Table:
        return self._opened

    def _whole_schema(self) -> pa.Schema:
        """With columns of versions that nobody names here, too: a merge has to bring all columns, see write/fold.py."""
        with translated():
            there = self._table.schema
        return pa.schema([*self._schema, *(field for field in there if field.name not in self._schema.names)])

    # ---- versions

    @property
    def beside(self) -> Mapping[str, EmbeddingVersion]:
        """The versions whose vectors lie, or are to lie, in tables beside this one, by name."""
        return self._beside.versions

    @property
    def tables_beside(self) -> Mapping[str, VectorTable]:
        """Those of them that are there."""
        return self._beside.tables

    def hold_beside(self, version: EmbeddingVersion) -> None:
        """From now on vectors of this version lie in a table of its own. What it has inline counts as before.

        Made where it is not there, else opened. Again and again the same.
        """
        self._beside.hold(version)
        self._versions = tuple(dict.fromkeys([*self._versions, version.name]))

    def release(self, name: str) -> None:
        """Forget all vectors of a version, inline and beside. Again and again the same; no fold may be under way.

        Raises StoreUnavailable while the files are held. The bytes of inline vectors leave the files with the upkeep of
        the next folds.
        """
        if self.hold.held:
            raise StoreUnavailable("a backup copies these tables; a version is released after that")
        self._versions = tuple(one for one in self._versions if one != name)
        self._beside.let_go(name)
        with translated():
            database, table = self._connected(), beside_name(self._name, name)
            if table in database.list_tables(limit=TABLES_MAX).tables:
                database.drop_table(table)
            columns = [vector_column(name), token_column(name)]
            if held := [column for column in columns if column in self._table.schema.names]:
                self._table.drop_columns(held)
                self._found = frozenset()
                self._schema = pa.schema([field for field in self._schema if field.name not in held])
        self.sync()

    def _open_beside(self, version: EmbeddingVersion) -> VectorTable | None:
        return VectorTable(self._uri, self._name, version, self._options, self.hold)

    def _added(self) -> Mapping[str, str]:
        """Turns of a table without arrival times count as having come when it is opened first: none is old at once.

        What expires in rows that do not say so is never shown, but not looked for either.
        """
        now = time.time_ns() // 1000
        values = {"tier": HOT, "arrived_at": now, "expires_at": 0}
        integers = {name: f"cast({value} as bigint)" for name, value in values.items()}
        return integers | {"entities": "cast(null as string)"}

    def _version_columns(self) -> list[str]:
        wanted = [column(version) for version in self._versions for column in (vector_column, token_column)]
        return [name for name in wanted if name in self._columns()]

    # ---- writing

    def merge(self, rows: Sequence[Row], folded_seq: int) -> None:
        """Insert or update `rows` and set the watermark, in one commit."""
        self._merge([*rows, Row(row=WATERMARK_ROW, rev=folded_seq, kind="watermark", owner="", seq=folded_seq)])
        self._merges += 1
        if self._next_expiry is not None:
            self._next_expiry = min([self._next_expiry, *(row.expires_at for row in rows if row.expires_at)])

    def put_beside(self, version: str, rows: Sequence[VectorRow]) -> None:
        """Vectors of a version that is held beside; of each of these turns all of them."""
        self._beside.put(version, rows)

    def forget_beside(self, conditions: Sequence[Where]) -> None:
        """Remove what lies beside of these turns, by `owner`, `session` and `seq` alone."""
        self._beside.forget(conditions)

    def compact(self) -> None:
        super().compact()
        for table in self._beside.tables.values():
            table.compact()

    def sync(self) -> None:
        for table in self._beside.tables.values():
            table.sync()
        super().sync()

    def purge(self, folded_seq: int) -> None:
        """Take the bytes of what was deleted out of the files.

        Then note that what was erased up to `folded_seq` is gone from them.
        """
        for table in self._beside.tables.values():
            table.clean()
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
        """All of one owner up to a seq; the bodies and vectors of the newest turns only, see `resident_turns`.

        One look at the table for all but owners with very many rows: each look costs more than what it brings.
        """
        theirs = (owner, pseudonym(owner), "")  # the watermark is nobody's
        mine = either(of_either(owner, pseudonym(owner)), col("row") == lit(WATERMARK_ROW))
        held = [*self._version_columns(), *self._entity_columns()]
        whole = self._scan(mine, [OWNER, *dict.fromkeys(LIGHT + HEAVY), *held], LOADED_AT_ONCE + 1)
        if whole.num_rows <= LOADED_AT_ONCE:
            whole = rows_of(whole, *theirs)
            return self._stored_owner(owner, whole, whole, resident_max)
        light = rows_of(self._scan(mine, [OWNER, *LIGHT]), *theirs)
        first = self._first_resident(light, resident_max)
        newest = every(col("seq") >= lit(first), col("tier") <= lit(self.coldest))
        content = either(newest, col("kind").isin(["fact", "summary"]))
        heavy = self._scan_of(owner, content, [*HEAVY, *held])
        return self._stored_owner(owner, light, heavy, resident_max)

    def _stored_owner(self, owner: str, light: pa.Table, heavy: pa.Table, resident_max: int) -> StoredOwner:
        first = self._first_resident(light, resident_max)
        beside = self._beside.of_owner(owner, first, NEVER)
        return stored_owner(light, heavy, beside, first, self._versions, self.coldest)

    def _first_resident(self, light: pa.Table, resident_max: int) -> int:
        """The seq of the oldest turn that is resident, 0 where all are that may be."""
        seqs = seqs_within(light, self.coldest)
        resident = resident_turns(len(seqs), resident_max)
        return int(seqs[-resident]) if len(seqs) > resident else 0

    def due(self, now: int, limit: int, after: int = -1, *, cold: bool = True) -> list[Due]:
        """Rows after seq `after` of which something has expired, in order of seq, at most `limit`.

        With `cold` those of cold turns, too. While there are none this reads nothing.
        """
        if self._next_expiry is not None and self._next_expiry > now:
            return []
        expires_at, merges = col("expires_at"), self._merges
        expired = every(expires_at > lit(0), expires_at <= lit(now), col("seq") > lit(after))
        found = self._first(expired if cold else every(expired, col("tier") < lit(COLD)), limit)
        first = None if found else self._first_expiry()
        self._next_expiry = first if merges == self._merges else None
        return found

    def _first(self, where: Where, limit: int) -> list[Due]:
        """The first `limit` of these rows by seq. A scan comes in no order: their seqs alone are looked at first."""
        seqs = np.sort(np.asarray(self._scan(where, ["seq"])["seq"]))
        if not len(seqs):
            return []
        within = every(where, col("seq") <= lit(int(seqs[:limit][-1])))
        rows = self._scan(within, ["owner", "kind", "seq", "session", "id", "tier"]).sort_by("seq").to_pylist()
        return [Due(**row) for row in rows]

    def _first_expiry(self) -> int:
        ends = self._scan(col("expires_at") > lit(0), ["expires_at"])["expires_at"]
        return NEVER if len(ends) == 0 else int(pc.min(ends).as_py())

    def told(self, first: int, end: int) -> tuple[list[Told], list[tuple[str, Summary]]]:
        """Which turns that are not cold there are with `first <= seq < end`, in order, and summaries, with owners."""
        between = every(col("seq") >= lit(first), col("seq") < lit(end))
        turns = self._scan(self._holding(every(between, of_kind("turn"))), list(Told._fields)).sort_by("seq")
        made = self._scan(every(between, of_kind("summary")), ["owner", "body"]).to_pylist()
        return (
            [Told(*row) for row in zip(*(turns[name].to_pylist() for name in Told._fields), strict=True)],
            [(row["owner"], msgspec.msgpack.decode(row["body"], type=Summary)) for row in made],
        )

    def versions_of_facts(self) -> dict[tuple[str, str], list[int]]:
        """Seqs of the values of each fact that has several, oldest first, by owner and key."""
        found = self._scan(of_kind("fact"), ["owner", "id", "seq"]).sort_by("seq").to_pylist()
        return grouped(((row["owner"], row["id"]), row["seq"]) for row in found)

    def versions_of_summaries(self) -> dict[tuple[str, str], list[int]]:
        """The same of summaries, by owner and session."""
        found = self._scan(of_kind("summary"), ["owner", "session", "seq"]).sort_by("seq").to_pylist()
        return grouped(((row["owner"], row["session"]), row["seq"]) for row in found)

    def rows(self, keys: Sequence[int]) -> list[Row]:
        """The rows with these keys as they stand, without their vectors."""
        found: list[Row] = []
        for part in parts(keys, KEYS_A_SCAN):
            found += [Row(**row) for row in self._scan(col("row").isin(part), PLAIN).to_pylist()]
        return found

    def states(self, seqs: Sequence[int]) -> dict[int, TurnState]:
        """By seq, where those of these turns stand that are here, whoever's they are. Reads no bodies."""
        found: dict[int, TurnState] = {}
        for part in parts(seqs, KEYS_A_SCAN):
            where = every(col("row").isin([seq * ROWS_PER_TURN_MAX for seq in part]), of_kind("turn"))
            rows = self._scan(where, ["seq", *TurnState._fields]).to_pylist()
            found |= {row.pop("seq"): TurnState(**row) for row in rows}
        return found

    def _among(self, where: Where, wanted: Wanted) -> Where:
        """Where more turns have moved than one condition names, those in memory are left out after the query."""
        where, first, moved = super()._among(where, wanted), wanted.resident_from, wanted.moved
        if first is None or len(moved) > KEYS_A_SCAN:
            return where
        outside = either(col("tier") > lit(HOT), before(first))
        return every(where, either(outside, of_seqs(moved)) if moved else outside)

    def owners(self, start: str, end: str) -> set[str]:
        """Owners of turns or facts whose key is `start` or after it, and before `end`."""
        within = every(col("owner") >= lit(start), col("owner") < lit(end), col("kind").isin(["turn", "fact"]))
        return set(pc.unique(self._scan(within, ["owner"])["owner"]).to_pylist())

    def erasures(self) -> list[Erasure]:
        bodies = self._scan(of_kind("erasure"), ["body"])["body"].to_pylist()
        return [msgspec.msgpack.decode(body, type=Erasure) for body in bodies]

    def named(self, owner: str) -> pa.Table:
        """What each of the owner's turns names that is not cold: seq, rev, expires_at, entities; in no order."""
        where = self._holding(every(owned(owner), of_kind("turn")))
        found = self._scan_of(owner, where, ["seq", "rev", "expires_at", *self._entity_columns()])
        if "entities" in found.column_names:
            return found
        return found.append_column("entities", pa.nulls(found.num_rows, pa.string()))

    def not_naming(self, owner: str, keys: Collection[str]) -> set[int]:
        """Seqs of the owner's turns that surely do not name all of these entities, as this table knows the turns."""
        rows = self.named(owner)
        return set(np.asarray(rows["seq"])[surely_not(rows["entities"], keys)].tolist())

    # ---- tiers

    def whole(self, owner: str, seqs: Sequence[int]) -> list[Row]:
        """All rows of these turns of the owner, with their vectors, as they can be merged again."""
        found: list[Row] = []
        for part in parts(seqs, KEYS_A_SCAN):
            where = every(owned(owner), col("kind").isin(["turn", "chunk"]), col("seq").isin(part))
            rows = self._scan(where, [*PLAIN, *self._version_columns()])
            plain = rows.select(PLAIN).to_pylist()
            found += [Row(**row, packed=packed) for row, packed in zip(plain, self._packed(rows), strict=True)]
        return found

    def packed(self, keys: Sequence[int]) -> dict[int, dict[str, bytes]]:
        """By key, what lies in the columns of the versions in these rows."""
        found: dict[int, dict[str, bytes]] = {}
        for part in parts(keys, KEYS_A_SCAN):
            rows = self._scan(col("row").isin(part), ["row", *self._version_columns()])
            found |= dict(zip(rows["row"].to_pylist(), self._packed(rows), strict=True))
        return found

    def _packed(self, rows: pa.Table) -> list[dict[str, bytes]]:
        """What lies in the columns of the versions, row by row."""
        found: list[dict[str, bytes]] = [{} for _ in range(rows.num_rows)]
        for name in self._version_columns():
            column = rows[name]
            values = packed_vectors(column) if pa.types.is_fixed_size_list(column.type) else column.to_pylist()
            for row, value in zip(found, values, strict=True):
                if value is not None:
                    row[name] = value
        return found

    def stubs(self, owner: str, seqs: Sequence[int]) -> dict[int, Stub]:
        """What is left here of those of these turns that went cold, by seq."""
        found: dict[int, Stub] = {}
        for part in parts(seqs, KEYS_A_SCAN):
            where = every(owned(owner), of_kind("turn"), col("seq").isin(part), col("tier") == lit(COLD))
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

    def oldest(self) -> dict[tuple[str, int], Standing]:
        """By owner and tier, the turns that are not cold. Reads no bodies, in bounded batches."""
        where = self._holding(of_kind("turn"))
        columns = ["owner", "tier", "arrived_at", "rev"]

        def looked() -> dict[tuple[str, int], Standing]:
            found: dict[tuple[str, int], Standing] = defaultdict(lambda: Standing(NEVER, 0))
            query = self._table.search().where(where).select(columns).limit(LOAD_ROWS_MAX)
            for batch in query.to_batches(AGES_A_BATCH):
                grouped = pa.Table.from_batches([batch]).group_by(["owner", "tier"])
                for row in grouped.aggregate([("arrived_at", "min"), ("rev", "max")]).to_pylist():
                    key = row["owner"], row["tier"]
                    came, rev = found[key]
                    found[key] = Standing(min(came, row["arrived_at_min"]), max(rev, row["rev_max"]))
            return found

        return self._read(looked)

    def ages(self, owner: str) -> list[Age]:
        """Of the owner's turns that are not cold, oldest first, without their bodies."""
        found = self._scan(self._holding(every(owned(owner), of_kind("turn"))), list(Age._fields)).sort_by("seq")
        return [Age(**row) for row in found.to_pylist()]

    def hits(self, owners: Sequence[str]) -> list[Row]:
        """The row of each of these owners that holds when their turns were found last."""
        found: list[Row] = []
        for part in parts(owners, KEYS_A_SCAN):
            where = every(col("owner").isin(part), of_kind("hits"))
            found += [Row(**row) for row in self._scan(where, PLAIN).to_pylist()]
        return found


def _schema(versions: Sequence[EmbeddingVersion]) -> pa.Schema:
    integers = ["row", "rev", "seq", "created_at", "arrived_at", "expires_at", "tier", "vector_rev", "vector_seq"]
    texts = ["kind", "owner", "session", "id", "terms", "entities"]
    return pa.schema(
        [(name, pa.int64()) for name in integers]
        + [(name, pa.string()) for name in texts]
        + [("body", pa.binary())]
        + [(vector_column(one.name), pa.list_(pa.float16(), one.dimension)) for one in versions]
        + [(token_column(one.name), pa.binary()) for one in versions]
    )
