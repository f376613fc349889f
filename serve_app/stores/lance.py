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
from functools import partial
from typing import NamedTuple

import lancedb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.expr import col, lit
from numpy.typing import NDArray

from serve_app.core import NEVER, ROWS_PER_TURN_MAX, EmbeddingVersion, Summary, Turn
from serve_app.errors import NotFound, StoreUnavailable
from serve_app.records import Erasure
from serve_app.stores.beside import Beside
from serve_app.stores.block import resident_turns
from serve_app.stores.entity_rows import surely_not
from serve_app.stores.owner_rows import HEAVY, LIGHT, packed_vectors, seqs_within, states_of, stored_owner
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
    LanceTable,
    translated,
)
from serve_app.stores.vector_parts import Parts, States, inline_parts, parts_beside, united
from serve_app.stores.vector_table import VectorRow, VectorTable, beside_name
from serve_app.stores.volume import PLACED, Span
from serve_app.stores.wanted import Wanted, best_turns
from serve_app.stores.where import Where, before, either, every, of_either, of_kind, of_seqs, owned

LOADED_AT_ONCE = 2_048
"""Rows of an owner up to which all columns are read in one scan; of more the ids first, then the newest content."""

LACKING_MAX = 10_000
"""Turns without vectors that one look gives."""

NOBODY = -1
"""The seq of no turn."""

AGES_A_BATCH = 65_536
"""Rows that a look at the ages of all turns holds at a time."""


class Age(NamedTuple):
    """When a turn that is not cold came, and the tier it is in."""

    seq: int
    session: str
    arrived_at: int
    tier: int


class Lacking(NamedTuple):
    """A turn, in the state `rev`, that has no vectors."""

    owner: str
    session: str
    seq: int
    rev: int


class Standing(NamedTuple):
    """Of an owner's turns in one tier: when the oldest came, and the newest state of any."""

    came: int
    rev: int


class RecordTable(LanceTable):
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

    def _columns(self) -> frozenset[str]:
        """Those that the table has: one that is opened as it is lacks some until its writer has added them."""
        if not self._found.issuperset(self._schema.names):
            with translated():
                self._found = frozenset(self._table.schema.names)
        return self._found

    def _version_columns(self) -> list[str]:
        wanted = [column(version) for version in self._versions for column in (vector_column, token_column)]
        return [name for name in wanted if name in self._columns()]

    def _entity_columns(self) -> list[str]:
        return ["entities"] if "entities" in self._columns() else []

    def _holding(self, where: Where) -> Where:
        return every(where, col("tier") < lit(COLD))

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

    def span(self, owner: str, first: int, last: int) -> Span:
        """What a volume needs of the owner's turns between two seqs that are not cold."""
        between = every(col("seq") >= lit(first), col("seq") <= lit(last), col("kind").isin(["turn", "chunk"]))
        inline = {name: vector_column(name) for name in self._inline()}
        rows = self._scan_of(owner, self._holding(between), [*PLACED, *self._entity_columns(), *inline.values()])
        states, of_versions = states_of(rows), self._beside.of_owner(owner, first, last)
        vectors: dict[str, Parts] = {}
        for name in self._versions:
            held = inline_parts(rows, inline[name]) if name in inline else None
            beside = parts_beside(of_versions[name], states, NEVER) if name in of_versions else None
            if (found := united(held, beside)) is not None:
                vectors[name] = found
        return Span(rows.select([*PLACED, *self._entity_columns()]), vectors)

    def vectors_between(self, version: str, first: int, end: int) -> Parts:
        """Of turns with `first <= seq < end` that are not cold, whoever's, the vectors of their present states."""
        within = every(col("seq") >= lit(first), col("seq") < lit(end))
        name = vector_column(version)
        held = [name] if name in self._columns() else []
        columns = ["row", "kind", "seq", "rev", "vector_rev", "vector_seq", *held]
        rows = self._scan(self._holding(every(within, col("kind").isin(["turn", "chunk"]))), columns)
        beside = self._beside.between(version, within)
        found = united(
            inline_parts(rows, name) if held else None,
            None if beside is None else parts_beside(beside, states_of(rows), NEVER),
        )
        if found is None:
            raise NotFound(f"there are no vectors of {version!r} here")
        return found

    def _inline(self) -> list[str]:
        """The versions that have a column in the table."""
        return [name for name in self._versions if vector_column(name) in self._columns()]

    def _states(self, owner: str, seqs: Sequence[int] | None = None) -> States:
        """Of the owner's turns that are not cold, of all or of these."""
        where = self._holding(of_kind("turn"))
        if seqs is None:
            found = self._scan_of(owner, where, ["seq", "rev"])
        else:
            keyed = (col("row").isin([seq * ROWS_PER_TURN_MAX for seq in part]) for part in parts(seqs, KEYS_A_SCAN))
            held = [rows_of(self._scan(every(keys, where), [OWNER, "seq", "rev"]), owner) for keys in keyed]
            if not held:
                return States(np.empty(0, np.int64), np.empty(0, np.int64))
            found = pa.concat_tables(held)
        return States.of(np.asarray(found["seq"]), np.asarray(found["rev"]))

    def vector_rows(self, owner: str) -> set[tuple[str, int]]:
        """(version, key) of each vector in the owner's rows, or beside them, that is of its turn as it is.

        Reads no vectors.
        """
        where = every(owned(owner), col("kind").isin(["turn", "chunk"]), col("vector_rev") == col("rev"))
        names = self._inline()
        valid = {f"held{place}": f"`{vector_column(name)}` is not null" for place, name in enumerate(names)}
        columns: dict[str, str | Where] = {OWNER: OWNER, "row": "row", **valid}
        query = self._table.search().where(self._holding(where)).select(columns).limit(LOAD_ROWS_MAX)
        rows_held = rows_of(self._read(query.to_arrow), owner)
        rows = rows_held["row"].to_pylist()
        found = {
            (name, row)
            for place, name in enumerate(names)
            for row, held in zip(rows, rows_held[f"held{place}"].to_pylist(), strict=True)
            if held
        }
        return found | self._rows_beside(owner)

    def _rows_beside(self, owner: str) -> set[tuple[str, int]]:
        of_versions = self._beside.keys(owner)
        if not of_versions:
            return set()
        states = self._states(owner)
        return {
            (name, row)
            for name, (rows, revs) in of_versions.items()
            for row in rows[states.agree(rows // ROWS_PER_TURN_MAX, revs)].tolist()
        }

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

    def tokens(self, owner: str, version: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """By seq, the vectors of the tokens of those of these turns that have them as they are."""
        name, found = token_column(version), dict[int, bytes]()
        for part in parts(seqs, KEYS_A_SCAN) if name in self._columns() else ():
            keys = col("row").isin([seq * ROWS_PER_TURN_MAX for seq in part])
            where = self._holding(every(keys, of_kind("turn"), col("vector_rev") == col("rev")))
            rows = rows_of(self._scan(where, [OWNER, "seq", name]), owner)
            found |= {row["seq"]: row[name] for row in rows.to_pylist() if row[name]}
        return found | self._first_beside(owner, version, seqs, "tokens")

    def _first_beside(self, owner: str, version: str, seqs: Sequence[int], column: str) -> dict[int, bytes]:
        """What lies beside the first parts of those of these turns that have it there as they are."""
        found = {seq: one for seq, one in self._beside.of_turns(version, owner, seqs, column).items() if one[1]}
        states = self._states(owner, list(found))
        agreeing = states.agree(np.array(list(found), np.int64), np.array([rev for rev, _ in found.values()], np.int64))
        return {seq: one for (seq, (_, one)), agrees in zip(found.items(), agreeing, strict=True) if agrees and one}

    def nearest(
        self, owner: str, query: NDArray[np.float32], k: int, wanted: Wanted, version: str
    ) -> list[tuple[Turn, float]]:
        """The owner's wanted turns with the largest inner product of those that this version has made vectors of.

        Exactly (no vector index), best first.
        """

        def ask(limit: int) -> list[tuple[int, float]]:
            found = self._nearest_inline(owner, query, limit, wanted, version)
            beside = self._nearest_beside(owner, query, limit, wanted, version)
            return sorted(found + beside, key=lambda one: -one[1])[:limit]

        return best_turns(ask, partial(self.turns, owner), k, wanted)

    def _nearest_inline(
        self, owner: str, query: NDArray[np.float32], limit: int, wanted: Wanted, version: str
    ) -> list[tuple[int, float]]:
        if vector_column(version) not in self._columns():
            return []
        whole = every(owned(owner), col("kind").isin(["turn", "chunk"]), col("vector_rev") == col("rev"))
        where = self._among(whole, wanted)
        found = self._read(
            lambda: (
                self._table.search(query, vector_column_name=vector_column(version))
                .distance_type("dot")  # type: ignore[attr-defined]
                .bypass_vector_index()
                .where(where)
                .select(["seq", "_distance"])
                .limit(limit)
                .to_list()
            )
        )
        return [(row["seq"], 1.0 - row["_distance"]) for row in found]

    def _nearest_beside(
        self, owner: str, query: NDArray[np.float32], limit: int, wanted: Wanted, version: str
    ) -> list[tuple[int, float]]:
        """A row that is not of its turn's present state counts as one of no turn."""
        within = before(NEVER if wanted.until is None else wanted.until + 1)
        found = self._beside.nearest(version, owner, query, within, limit)
        states = self._states(owner, sorted({seq for seq, _, _ in found}))
        agreeing = states.agree(*(np.array([one[at] for one in found], np.int64) for at in (0, 1)))
        return [(seq if agrees else NOBODY, score) for (seq, _, score), agrees in zip(found, agreeing, strict=True)]

    def _among(self, where: Where, wanted: Wanted) -> Where:
        """Where more turns have moved than one condition names, those in memory are left out after the query."""
        where, first, moved = super()._among(where, wanted), wanted.resident_from, wanted.moved
        if first is None or len(moved) > KEYS_A_SCAN:
            return where
        outside = either(col("tier") > lit(HOT), before(first))
        return every(where, either(outside, of_seqs(moved)) if moved else outside)

    def without_vectors(self, limit: int = LOAD_ROWS_MAX, after_rev: int = 0) -> list[Lacking]:
        """Turns in states after `after_rev` that wait for the vectors of the versions in force, the first by rev."""
        where = every(of_kind("turn"), col("vector_rev") < col("rev"), col("rev") > lit(after_rev))
        return self._told(where, np.asarray(self._scan(where, ["rev"])["rev"]), limit)

    def lacking(self, version: str, after_rev: int = 0, limit: int = LACKING_MAX) -> list[Lacking]:
        """Turns in states after `after_rev` that this version has no vectors of, inline or beside.

        The first `limit` by rev, so that the last one's rev leads to those after it. Cold turns need none. Of all turns
        it reads ids alone, and holds some 50 bytes of each.
        """
        where = self._holding(every(of_kind("turn"), col("rev") > lit(after_rev)))
        turns = self._scan(where, ["seq", "rev"])
        seqs, revs = np.asarray(turns["seq"]), np.asarray(turns["rev"])
        held = States.of(*self._beside.first_parts(version)).agree(seqs, revs)
        return self._told(where, revs[~(held | self._inline_states(version).agree(seqs, revs))], limit)

    def _inline_states(self, version: str) -> States:
        """Of turns with an inline vector of their present state."""
        name = vector_column(version)
        where = self._holding(every(of_kind("turn"), col("vector_rev") == col("rev")))
        columns: dict[str, str | Where] = {"seq": "seq", "rev": "rev", "held": f"`{name}` is not null"}
        if name not in self._columns():
            return States.of(np.empty(0, np.int64), np.empty(0, np.int64))
        found = self._read(self._table.search().where(where).select(columns).limit(LOAD_ROWS_MAX).to_arrow)
        found = found.filter(found["held"])
        return States.of(np.asarray(found["seq"]), np.asarray(found["rev"]))

    def _told(self, where: Where, revs: NDArray[np.int64], limit: int) -> list[Lacking]:
        """The turns of the first `limit` of these states, in their order."""
        first = np.sort(revs)[:limit]
        if not len(first):
            return []
        within = every(where, col("rev") >= lit(int(first[0])), col("rev") <= lit(int(first[-1])))
        found = self._scan(within, list(Lacking._fields)).sort_by("rev")
        found = found.filter(pa.array(np.isin(np.asarray(found["rev"]), first)))
        return [Lacking(*row) for row in zip(*(found[name].to_pylist() for name in Lacking._fields), strict=True)]

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

    def session_vectors(self, owner: str, seqs: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The first vector of each of these turns that has one, of the version that most of them have."""
        found: dict[str, dict[int, bytes]] = {name: {} for name in self._versions}
        names = self._inline()
        for part in parts(seqs, KEYS_A_SCAN) if names else ():
            where = every(owned(owner), of_kind("turn"), col("seq").isin(part), col("vector_rev") == col("rev"))
            rows = self._scan(where, ["seq", *map(vector_column, names)])
            for name in names:
                packed = zip(rows["seq"].to_pylist(), packed_vectors(rows[vector_column(name)]), strict=True)
                found[name] |= {seq: one for seq, one in packed if one}
        for name in self._beside.tables:
            found.setdefault(name, {}).update(self._first_beside(owner, name, seqs, "vector"))
        most = max(found.values(), key=len, default={})
        return {seq: np.frombuffer(one, "<f2").astype(np.float32) for seq, one in most.items()}

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
