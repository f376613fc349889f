"""Folding: what the log's tail says becomes rows of the table, with the watermark in the same commit.

The cold table changes first, then deletions go, then vectors that lie beside (write/fold_beside.py), then all rows with
the watermark. Each can be repeated, so a crash between them only means that the fold is done again. A row that is in
the table already and gets its vectors now is merged whole: merging some of the columns makes LanceDB 0.40 panic once
rows have been deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import NamedTuple

import msgspec

from serve_app.core import ROWS_PER_TURN_MAX, EmbeddingVersion, Turn
from serve_app.entities.recognise import in_turn
from serve_app.errors import StorageTrouble
from serve_app.records import (
    Erasure,
    ErasureDone,
    FactGone,
    FactPut,
    Hits,
    Record,
    SessionGone,
    SummaryGone,
    SummaryPut,
    TurnGone,
    TurnPut,
    TurnsMoved,
    TurnVectors,
    UserGone,
    VectorsPut,
)
from serve_app.stores import where
from serve_app.stores.cold import ColdTable
from serve_app.stores.lance import RecordTable
from serve_app.stores.packing import PACKED_BYTES, turn_text
from serve_app.stores.parts import parts
from serve_app.stores.rows import COLD, HOT, Row, cold_mark, pseudonym, token_column, turn_row, vector_column
from serve_app.stores.terms import index_terms
from serve_app.stores.where import Where, every
from serve_app.write.fold_beside import BesidePlan
from serve_app.write.hits import HitsPlan
from serve_app.write.moves import DELETIONS_A_COMMIT, Moves
from serve_app.write.shard import Shard

FOLD_RECORDS_MAX = 4_000
"""Records that one merge takes, which bounds its time and memory; a longer tail takes several."""

FOLD_BYTES_MAX = 32 << 20
"""Bytes of vectors that one merge takes, or those of one record: records of a migration bring many turns each."""

MARK_PART = 1
"""Where the mark of a change lies beside the row of the same record: an erasure has both."""


def fold(shard: Shard, records_max: int = FOLD_RECORDS_MAX) -> int:
    """Bring the shard's table up to the newest durable record; gives that seq."""
    for piece in pieces(shard.tail(), records_max):
        planned = FoldPlan(shard.versions, shard.table.beside)
        for record in piece:
            planned.take(record)
        with shard.merging:
            shard.cold_purge_due |= planned.merge_into(shard.table, shard.cold, piece[-1].seq)
            shard.folded(piece[-1].seq)
    shard.table.compact()
    with suppress(StorageTrouble):  # told as the cold table's own trouble: what is folded is folded
        shard.cold.tend()
    return shard.folded_seq


def pieces(tail: Sequence[Record], records_max: int, bytes_max: int = FOLD_BYTES_MAX) -> Iterator[list[Record]]:
    """The tail in parts of so many records, with so many bytes of vectors, at most."""
    piece: list[Record] = []
    held = 0
    for record in tail:
        size = record.bytes if isinstance(record, VectorsPut) else 0
        if piece and (len(piece) == records_max or held + size > bytes_max):
            yield piece
            piece, held = [], 0
        piece.append(record)
        held += size
    if piece:
        yield piece


class FirstVectors(NamedTuple):
    """What came for a turn's row: of which state, by which record, and what lies in the columns of the versions."""

    rev: int
    seq: int
    packed: Mapping[str, bytes]

    def beside(self, row: Row, held: Mapping[str, bytes]) -> Row:
        """`held`: what the row has of this state, of versions that this record may not bring."""
        return msgspec.structs.replace(row, packed={**held, **self.packed}, vector_rev=self.rev, vector_seq=self.seq)


class FoldPlan:
    """The net effect of a piece of the tail on the table. `take` its records in order of seq."""

    def __init__(
        self, versions: Sequence[EmbeddingVersion], beside: Mapping[str, EmbeddingVersion] | None = None
    ) -> None:
        """`beside`: the versions whose vectors lie in tables of their own."""
        self.beside = BesidePlan(beside or {})
        self._sizes = {one.name: PACKED_BYTES * one.dimension for one in versions}
        self.rows: dict[int, Row] = {}
        self.vectors: dict[int, FirstVectors] = {}  # by row
        self.deletions: list[Where] = []
        self.moves = Moves()
        self.hits = HitsPlan()

    def merge_into(self, table: RecordTable, cold: ColdTable, folded_seq: int) -> bool:
        """Gives whether something was removed from the cold table."""
        moving = self.moves.stored(table)
        removed = self.moves.change_cold(table, cold, moving)
        if removed:
            self._put(cold_mark(folded_seq))
        deletions = [*self.deletions, *self.moves.chunks_gone()]
        for part in parts(deletions, DELETIONS_A_COMMIT):
            table.delete(reduce(where.either, part))
        self.beside.merge_into(table, self.rows, self.moves.cold)
        stored = table.rows(sorted({*self.vectors, *(seq * ROWS_PER_TURN_MAX for seq in self.moves.changed)}))
        held = self._held(table, stored)
        changed = {row.row: row for row in filter(None, (self._with_vector(row, held) for row in stored))}
        changed |= self.moves.moved(moving, changed)
        tiers = {row.seq: row.tier for row in stored}
        placed = [self.moves.placed(row, tiers.get(row.seq, HOT)) for row in self.rows.values()]
        table.merge([*changed.values(), *filter(None, placed), *self.hits.rows(table)], folded_seq)
        return removed

    def _held(self, table: RecordTable, stored: Sequence[Row]) -> dict[int, dict[str, bytes]]:
        """Of stored turns that have vectors of the very state that more came for: what lies in them, chunks included.

        As a rule none: a turn's vectors come in one record. Others may come after the versions in force were changed.
        """
        again = {row.seq for row in stored if row.row in self.vectors and row.vector_rev == self.vectors[row.row].rev}
        chunks = [row for row in self.rows.values() if row.kind == "chunk" and row.seq in again]
        held = table.packed(sorted([*(seq * ROWS_PER_TURN_MAX for seq in again), *(row.row for row in chunks)]))
        for row in chunks:
            self._put(msgspec.structs.replace(row, packed={**held.get(row.row, {}), **row.packed}))
        return held

    def _with_vector(self, row: Row, held: Mapping[int, Mapping[str, bytes]]) -> Row | None:
        """A stored row with the vectors that came since, unless its turn was changed or is in this plan."""
        came = self.vectors.get(row.row)
        if came is None or row.rev != came.rev or row.row in self.rows or row.tier == COLD:
            return None
        return came.beside(row, held.get(row.row, {}))

    def take(self, record: Record) -> None:
        match record:
            case TurnPut(owner=owner, turn=turn):
                self._put_turn(owner, turn)
            case VectorsPut():
                self._put_vectors(record)
            case TurnGone(seq=seq, owner=owner, session=session, turn_seq=turn_seq):
                self._forget_summaries(owner, session, seq)
                self._mark_change(owner, seq)
                self._forget(every(where.owned(owner), where.of_seq(turn_seq)), lambda row: row.seq == turn_seq)
                self.beside.forget_turn(owner, turn_seq)
                self.moves.forget_turn(owner, turn_seq)
            case SessionGone(seq=seq, owner=owner, session=session):
                rows = every(where.owned(owner), where.of_session(session), where.before(seq))
                self._forget(rows, lambda row: row.owner == owner and row.session == session)
                self.moves.forget_session(owner, session, seq)
                self.beside.forget_session(owner, session, seq)
                self._mark_change(owner, seq)
            case UserGone(seq=seq, owner=owner, erasure=erasure):
                self._forget(every(where.owned(owner), where.before(seq)), lambda row: row.owner == owner)
                self.moves.forget_owner(owner, seq)
                self.beside.forget_owner(owner, seq)
                self.hits.forget_owner(owner)
                self._mark_change(pseudonym(owner), seq)
                self._put(_row(seq, "erasure", "", erasure.id, erasure))
            case ErasureDone(seq=seq, erasure=erasure):
                self._put_erasure(seq, erasure)
            case FactPut(owner=owner, fact=fact):
                self._put(_row(fact.seq, "fact", owner, fact.key, fact, expires_at=fact.expires_at or 0))
            case FactGone():
                self._forget_fact(record)
            case SummaryPut(owner=owner, summary=one):
                ends = 0 if one.binding else one.expires_at  # what binds outlives the text that it stands in
                self._put(_row(one.seq, "summary", owner, str(one.seq), one, one.session, ends))
            case SummaryGone(seq=seq, owner=owner, session=session, through=through):
                self._forget_summaries(owner, session, through + 1)
                self._mark_change(owner, seq)
            case TurnsMoved():
                self.moves.take(record)
            case Hits():
                self.hits.take(record)

    def _put(self, row: Row) -> None:
        self.rows[row.row] = row

    def _forget(self, stored: Where, planned: Callable[[Row], bool]) -> None:
        """Delete what the table holds, and drop what this plan was about to add."""
        self.deletions.append(stored)
        for key in [row.row for row in self.rows.values() if planned(row)]:
            del self.rows[key]

    def _mark_change(self, owner: str, seq: int) -> None:
        """The seq of the owner's last edit or erasure: a context as of an earlier seq must say so."""
        older = every(where.owned(owner), where.of_kind("mark"), where.before(seq))
        self._forget(older, lambda row: (row.owner, row.kind) == (owner, "mark"))
        self._put(msgspec.structs.replace(_row(seq, "mark", owner, "changed"), row=seq * ROWS_PER_TURN_MAX + MARK_PART))

    def _forget_fact(self, record: FactGone) -> None:
        owner, key, end = record.owner, record.key, record.through + 1 if record.through else record.seq
        rows = every(where.owned(owner), where.of_kind("fact"), where.of_id(key), where.before(end))
        self._forget(rows, lambda row: (row.owner, row.kind, row.id) == (owner, "fact", key) and row.seq < end)
        self._mark_change(owner, record.seq)

    def _forget_summaries(self, owner: str, session: str, end: int) -> None:
        """A summary may quote a turn that changed: all earlier ones of the session go."""
        rows = every(where.owned(owner), where.of_kind("summary"), where.of_session(session), where.before(end))
        named = (owner, "summary", session)
        self._forget(rows, lambda row: (row.owner, row.kind, row.session) == named and row.seq < end)

    def _put_turn(self, owner: str, turn: Turn) -> None:
        if turn.rev != turn.seq:
            self._forget_summaries(owner, turn.session, turn.rev)
            self._mark_change(owner, turn.rev)
            chunks = every(where.owned(owner), where.of_seq(turn.seq), where.of_kind("chunk"))
            self._forget(chunks, lambda row: row.seq == turn.seq and row.kind == "chunk")
            self.moves.edited(owner, turn.seq)
            self.beside.forget_turn(owner, turn.seq)
        self._put(turn_row(owner, turn, index_terms(turn_text(turn)), in_turn(turn)))

    def _put_vectors(self, record: VectorsPut) -> None:
        for made in record.of_turns().values():
            self.beside.put(record, made)
            inline = {name: one for name, one in made.items() if name in self._sizes.keys() - self.beside.sizes.keys()}
            if not record.beside and (first := next(filter(self._sizes.__contains__, made), None)) is not None:
                self._put_parts(record, made[first], self._parts(inline))

    def _parts(self, made: Mapping[str, TurnVectors]) -> list[dict[str, bytes]]:
        """What lies beside each part of a turn: a vector of each version that has so many, the tokens at the first."""
        found: list[dict[str, bytes]] = [{token_column(name): one.tokens for name, one in made.items() if one.tokens}]
        for name, item in made.items():
            size = self._sizes[name]
            for part, at in enumerate(range(0, len(item.vectors), size)):
                if part == len(found):
                    found.append({})
                found[part][vector_column(name)] = item.vectors[at : at + size]
        return found

    def _put_parts(self, record: VectorsPut, item: TurnVectors, packed: Sequence[dict[str, bytes]]) -> None:
        first, *more = packed
        key = item.turn_seq * ROWS_PER_TURN_MAX
        row, before = self.rows.get(key), self.vectors.get(key)
        known = {} if before is None or before.rev != item.rev else before.packed
        came = FirstVectors(item.rev, record.seq, {**known, **first})
        if row is None:
            self.vectors[key] = came
        elif row.rev == item.rev:
            self._put(came.beside(row, row.packed))
        for part, beside in enumerate(more, 1):
            made = _chunk_row(record, item, part, beside)
            earlier = self.rows.get(made.row)
            if earlier is not None and earlier.rev == made.rev:
                made = msgspec.structs.replace(made, packed={**earlier.packed, **made.packed})
            self._put(made)

    def _put_erasure(self, seq: int, erasure: Erasure) -> None:
        """The finished state replaces the pending one."""
        rows = every(where.of_kind("erasure"), where.of_id(erasure.id))
        self._forget(rows, lambda row: (row.kind, row.id) == ("erasure", erasure.id))
        self._put(_row(seq, "erasure", "", erasure.id, erasure))


def _row(
    seq: int,
    kind: str,
    owner: str,
    identifier: str,
    value: msgspec.Struct | None = None,
    session: str = "",
    expires_at: int = 0,
) -> Row:
    body = b"" if value is None else msgspec.msgpack.encode(value)
    key = seq * ROWS_PER_TURN_MAX
    return Row(
        row=key,
        rev=seq,
        kind=kind,
        owner=owner,
        seq=seq,
        session=session,
        id=identifier,
        expires_at=expires_at,
        body=body,
    )


def _chunk_row(record: VectorsPut, item: TurnVectors, part: int, packed: Mapping[str, bytes]) -> Row:
    """The further vectors of a long turn; they lie beside the turn's row and leave with it."""
    return Row(
        row=item.turn_seq * ROWS_PER_TURN_MAX + part,
        rev=item.rev,
        kind="chunk",
        owner=record.owner,
        seq=item.turn_seq,
        session=item.session,
        id=item.turn_id,
        vector_rev=item.rev,
        vector_seq=record.seq,
        packed=packed,
    )
