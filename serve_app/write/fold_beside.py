"""What a piece of the tail does to the vectors that lie beside: part of a fold, see write/fold.py.

What was forgotten leaves first, then new vectors go in, of turns that are there in the very state that was embedded.
Both can be repeated: the watermark comes after them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from serve_app.core import ROWS_PER_TURN_MAX, EmbeddingVersion
from serve_app.records import TurnVectors, VectorsPut
from serve_app.stores import where
from serve_app.stores.lance import RecordTable
from serve_app.stores.packing import PACKED_BYTES
from serve_app.stores.rows import COLD, Row
from serve_app.stores.vector_table import VectorRow
from serve_app.stores.where import Where, every


class BesidePlan:
    """`put` and the `forget_…` in order of seq, as the records come; then `merge_into`."""

    def __init__(self, versions: Mapping[str, EmbeddingVersion]) -> None:
        self.sizes = {name: PACKED_BYTES * version.dimension for name, version in versions.items()}
        self._rows: dict[str, dict[int, list[VectorRow]]] = {name: {} for name in self.sizes}  # by the seq of the turn
        self._gone: list[Where] = []

    def put(self, record: VectorsPut, made: Mapping[str, TurnVectors]) -> None:
        """What a record brings of one turn, by version."""
        for name, item in made.items():
            if name in self.sizes:
                self._rows[name][item.turn_seq] = _rows(record, item, self.sizes[name])

    def forget_turn(self, owner: str, turn_seq: int) -> None:
        self._forget(every(where.owned(owner), where.of_seq(turn_seq)), lambda row: row.seq == turn_seq)

    def forget_session(self, owner: str, session: str, seq: int) -> None:
        rows = every(where.owned(owner), where.of_session(session), where.before(seq))
        self._forget(rows, lambda row: (row.owner, row.session) == (owner, session))

    def forget_owner(self, owner: str, seq: int) -> None:
        self._forget(every(where.owned(owner), where.before(seq)), lambda row: row.owner == owner)

    def _forget(self, stored: Where, planned: Callable[[VectorRow], bool]) -> None:
        if not self.sizes:
            return
        self._gone.append(stored)
        for of_turns in self._rows.values():
            for seq in [seq for seq, rows in of_turns.items() if planned(rows[0])]:
                del of_turns[seq]

    def merge_into(self, table: RecordTable, turns: Mapping[int, Row], cold: Mapping[str, Sequence[int]]) -> None:
        """`turns`: the rows that the same piece writes, by key; `cold`: by owner, what it makes cold."""
        if not self.sizes:
            return
        leaving = [every(where.owned(owner), where.of_seqs(seqs)) for owner, seqs in cold.items()]
        table.forget_beside([*self._gone, *leaving])
        frozen = set(chain.from_iterable(cold.values()))
        wanted = {seq for of_turns in self._rows.values() for seq in of_turns} - frozen
        states = _states(table, turns, wanted)
        for name, of_turns in self._rows.items():
            rows = [rows for seq, rows in of_turns.items() if seq in wanted and states.get(seq) == rows[0].rev]
            table.put_beside(name, list(chain.from_iterable(rows)))


def _states(table: RecordTable, turns: Mapping[int, Row], seqs: set[int]) -> dict[int, int]:
    """Which state each of these turns is in once the piece is folded; of those that are gone or cold, none."""
    planned = {seq: turns[seq * ROWS_PER_TURN_MAX].rev for seq in seqs if seq * ROWS_PER_TURN_MAX in turns}
    stored = table.states(sorted(seqs - planned.keys()))
    return planned | {seq: state.rev for seq, state in stored.items() if state.tier != COLD}


def _rows(record: VectorsPut, item: TurnVectors, size: int) -> list[VectorRow]:
    return [
        VectorRow(
            row=item.turn_seq * ROWS_PER_TURN_MAX + part,
            rev=item.rev,
            vector_seq=record.seq,
            owner=record.owner,
            session=item.session,
            seq=item.turn_seq,
            digest=item.digest or None,
            vector=item.vectors[at : at + size],
            tokens=(item.tokens or None) if part == 0 else None,
        )
        for part, at in enumerate(range(0, len(item.vectors), size))
    ]
