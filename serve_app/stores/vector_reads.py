"""What the table of a shard says of vectors: of each version those in its own columns, and those beside it.

Promises that a vector counts only while it is of the state that its turn is in, wherever it lies, and that a version
which has some at either place is read as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from lancedb.expr import col, lit
from numpy.typing import NDArray

from serve_app.core import NEVER, ROWS_PER_TURN_MAX, Turn
from serve_app.errors import NotFound
from serve_app.stores.beside import Beside
from serve_app.stores.owner_rows import packed_vectors, states_of
from serve_app.stores.ownership import OWNER, rows_of
from serve_app.stores.parts import parts
from serve_app.stores.rows import COLD, token_column, vector_column
from serve_app.stores.table import KEYS_A_SCAN, LOAD_ROWS_MAX, LanceTable, translated
from serve_app.stores.vector_parts import Parts, States, inline_parts, parts_beside, united
from serve_app.stores.volume import PLACED, Span
from serve_app.stores.wanted import Wanted, best_turns
from serve_app.stores.where import Where, before, every, of_kind, owned

LACKING_MAX = 10_000
"""Turns without vectors that one look gives."""

NOBODY = -1
"""The seq of no turn."""


class Lacking(NamedTuple):
    """A turn, in the state `rev`, that has no vectors."""

    owner: str
    session: str
    seq: int
    rev: int


class VectorReads(LanceTable):
    """The reads of `RecordTable` that are about vectors."""

    _versions: tuple[str, ...]
    _beside: Beside
    _found: frozenset[str]

    def _columns(self) -> frozenset[str]:
        """Those that the table has: one that is opened as it is lacks some until its writer has added them."""
        if not self._found.issuperset(self._schema.names):
            with translated():
                self._found = frozenset(self._table.schema.names)
        return self._found

    def _entity_columns(self) -> list[str]:
        return ["entities"] if "entities" in self._columns() else []

    def _holding(self, where: Where) -> Where:
        return every(where, col("tier") < lit(COLD))

    def _inline(self) -> list[str]:
        """The versions that have a column in the table."""
        return [name for name in self._versions if vector_column(name) in self._columns()]

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
