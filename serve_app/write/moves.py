"""What a piece of the tail does to the tiers of turns that are folded: part of a fold, see write/fold.py.

Rows go into the cold table, durably, before anything of them leaves the warm one; what was forgotten leaves the cold
table before the warm one forgets that it was there. Each step can be repeated. The cold store is asked only for
owners who have, or are about to have, something there that is concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import NamedTuple

import msgspec

from serve_app.records import TurnsMoved
from serve_app.stores import where
from serve_app.stores.cold import ColdTable
from serve_app.stores.lance import RecordTable
from serve_app.stores.parts import grouped, parts
from serve_app.stores.rows import COLD, HOT, WARM, Row, stub_of
from serve_app.stores.where import Where, every

DELETIONS_A_COMMIT = 50
"""Conditions that one delete of a table joins, which bounds the depth of its expression."""


class Move(NamedTuple):
    owner: str
    session: str
    tier: int


class Forgotten(NamedTuple):
    """Rows that have to leave the cold table if the owner has any there."""

    owner: str
    rows: Where


class Moves:
    """`take`, `edited` and the `forget_…` in order of seq, as the records come; then `change_cold` and `rows`."""

    def __init__(self) -> None:
        self._moves: dict[int, Move] = {}
        self._moved: set[int] = set()  # by any record of the piece, whatever came after it
        self._edited: set[int] = set()
        self._cold_owners: set[str] = set()
        self._forgotten: list[Forgotten] = []

    def take(self, record: TurnsMoved) -> None:
        for seq in record.turn_seqs:
            self._moves[seq] = Move(record.owner, record.session, record.tier)
        self._moved.update(record.turn_seqs)
        if record.tier == COLD:
            self._cold_owners.add(record.owner)

    def edited(self, owner: str, turn_seq: int) -> None:
        self._edited.add(turn_seq)
        self.forget_turn(owner, turn_seq)

    def forget_turn(self, owner: str, turn_seq: int) -> None:
        self._moves.pop(turn_seq, None)
        self._forgotten.append(Forgotten(owner, every(where.owned(owner), where.of_seq(turn_seq))))

    def forget_session(self, owner: str, session: str, seq: int) -> None:
        rows = every(where.owned(owner), where.of_session(session), where.before(seq))
        self._forget(Forgotten(owner, rows), lambda move: (move.owner, move.session) == (owner, session))

    def forget_owner(self, owner: str, seq: int) -> None:
        rows = every(where.owned(owner), where.before(seq))
        self._forget(Forgotten(owner, rows), lambda move: move.owner == owner)

    def _forget(self, forgotten: Forgotten, gone: Callable[[Move], bool]) -> None:
        for seq in [seq for seq, move in self._moves.items() if gone(move)]:
            del self._moves[seq]
        self._forgotten.append(forgotten)

    # ---- into the tables

    def stored(self, table: RecordTable) -> list[Row]:
        """The warm rows of the turns that move, as they stand; of those that are cold already, none."""
        of_owners = grouped((move.owner, seq) for seq, move in self._moves.items())
        rows = [row for owner, seqs in of_owners.items() for row in table.whole(owner, seqs)]
        return [row for row in rows if row.tier != COLD]

    def change_cold(self, table: RecordTable, cold: ColdTable, stored: Iterable[Row]) -> bool:
        """Durable when it returns; gives whether something was removed."""
        going = [row for row in stored if row.kind == "turn" and self._moves[row.seq].tier == COLD]
        if going:
            cold.keep(going)
        removed = False
        for part in parts(self._forgotten, DELETIONS_A_COMMIT):
            rows = reduce(where.either, [one.rows for one in part])
            if table.any_stub(rows) or any(one.owner in self._cold_owners for one in part):
                cold.forget(rows)
                removed = True
        return removed

    def chunks_gone(self) -> list[Where]:
        """The further vectors of turns that go cold."""
        return [
            every(where.owned(owner), where.of_kind("chunk"), where.of_seqs(seqs)) for owner, seqs in self.cold.items()
        ]

    def moved(self, stored: Iterable[Row], with_vectors: Mapping[int, Row]) -> dict[int, Row]:
        """The rows of `stored` in their new tier, by key; with the vector that has come since where there is one."""
        found: dict[int, Row] = {}
        for row in stored:
            if self._moves[row.seq].tier == WARM:
                found[row.row] = msgspec.structs.replace(with_vectors.get(row.row, row), tier=WARM)
            elif row.kind == "turn":
                found[row.row] = stub_of(row)
        return found

    def placed(self, row: Row, held: int) -> Row | None:
        """A row of the plan in the tier of its turn, which the warm table has in that of `held`; None: it is gone."""
        tier = self._moves[row.seq].tier if row.seq in self._moves else held
        if row.seq in self._edited:
            tier = WARM if tier != HOT or row.seq in self._moved else HOT
        return None if tier == COLD else row if tier == HOT else msgspec.structs.replace(row, tier=tier)

    @property
    def cold(self) -> dict[str, list[int]]:
        """By owner, the seqs of the turns that go cold."""
        return grouped((move.owner, seq) for seq, move in self._moves.items() if move.tier == COLD)

    @property
    def changed(self) -> set[int]:
        """Turns that were edited: the tier of each is in the warm table."""
        return self._edited
