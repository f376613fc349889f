"""A fold may stop anywhere, and be repeated: nothing is lost, doubled or brought back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from serve_app.core import ROWS_PER_TURN_MAX, Summary
from serve_app.errors import StoreUnavailable
from serve_app.stores.lance import RecordTable
from serve_app.stores.rows import Row
from serve_app.stores.where import Where
from serve_app.write.derived import PutSummary
from serve_app.write.erasing import EraseUser
from serve_app.write.facts import DeleteFact, PutFact
from serve_app.write.operations import DeleteSession, DeleteTurn, EditTurn
from tests.write.shards import ANN, BOB, CAT, OneShard, told

OWNERS = (ANN, BOB, CAT)


class StoppingTable:
    """The real table, whose writes go well until `stop_at`: that one fails, before it is done or right after."""

    def __init__(self, inner: RecordTable) -> None:
        self.inner = inner
        self.stop_at: int | None = None
        self.done_first = False
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def merge(self, rows: Sequence[Row], folded_seq: int) -> None:
        self._write(self.inner.merge, rows, folded_seq)

    def delete(self, where: Where) -> None:
        self._write(self.inner.delete, where)

    def compact(self) -> None:
        self._write(self.inner.compact)

    def _write(self, method: Callable[..., Any], *arguments: Any) -> None:
        self.writes += 1
        stops = self.writes == self.stop_at
        if not stops or self.done_first:
            method(*arguments)
        if stops:
            raise StoreUnavailable("the tables went away")


def lived(shard: OneShard) -> None:
    """A folded past, and a tail with every kind of change to it."""
    ann = [result.id for result in shard.say(ANN, "a", "tea", "running shoes", "上海 apple", "price 42.50")]
    shard.say(ANN, "b", "left alone", "ZX-81Q")
    shard.say(ANN, "gone", "will go")
    shard.say(BOB, "a", "bob was here")
    shard.say_as(CAT, "a", "1", "cat stays")
    for turn_id in ann:
        turn = shard.turn(ANN, "a", turn_id)
        assert turn is not None
        shard.embed(ANN, turn, parts=2)
    shard.do(PutFact(ANN, "diet", "vegan", None, None))
    shard.do(PutFact(ANN, "city", "上海", None, None))
    shard.do(PutFact(BOB, "diet", "none", None, None))
    summarise(shard, ANN, "b")
    shard.fold()
    late = shard.turn(ANN, "a", ann[0])
    assert late is not None
    edited = shard.do(EditTurn(ANN, "a", ann[0], "coffee", None))
    assert shard.embed(ANN, late) == 0
    shard.embed(ANN, edited, parts=3)
    shard.do(DeleteSession(ANN, "gone"))
    shard.do(DeleteFact(ANN, "city"))
    shard.do(PutFact(ANN, "diet", "anything", None, None))
    shard.do(DeleteTurn(ANN, "a", ann[1]))
    summarise(shard, ANN, "a")
    shard.do(EraseUser(BOB, "acme"))
    shard.say_as(BOB, "a", "1", "bob is back")
    shard.say_as(ANN, "gone", "1", "the session lives again")


def summarise(shard: OneShard, owner: str, session: str) -> None:
    block = shard.block(owner)
    seqs = block.sessions[session].seqs
    summary = Summary(session, f"sum of {session}", seqs[0], seqs[-1], 3, "v", "h", 0, 1, 2)
    shard.do(PutSummary(owner, summary, block.applied_seq))


def told_of_all(shard: OneShard) -> dict[str, dict[str, Any]]:
    return {owner: told(shard.block(owner)) for owner in OWNERS}


def rebuilt_of_all(shard: OneShard) -> dict[str, dict[str, Any]]:
    return {owner: told(shard.rebuilt(owner)[0]) for owner in OWNERS}


def writes_of_a_fold(opened: Callable[..., OneShard], records_max: int) -> int:
    shard = opened(f"count-{records_max}", table=StoppingTable)
    lived(shard)
    before = shard.table.writes
    shard.fold(records_max)
    return int(shard.table.writes - before)


@pytest.mark.parametrize("done_first", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("records_max", [3, 4_000])
def test_a_fold_that_stops_anywhere(opened: Callable[..., OneShard], records_max: int, done_first: bool) -> None:
    writes = writes_of_a_fold(opened, records_max)
    assert writes >= 3
    for stop in range(1, writes + 1):
        shard = opened(f"stop-{stop}", table=StoppingTable)
        lived(shard)
        expected = told_of_all(shard)
        shard.table.stop_at, shard.table.done_first = shard.table.writes + stop, done_first
        with pytest.raises(StoreUnavailable):
            shard.fold(records_max)
        assert rebuilt_of_all(shard) == expected, f"loaded in the gap after write {stop}"
        assert told_of_all(shard) == expected
        if stop % 2:
            shard.restart()
            assert told_of_all(shard) == expected, f"started again after write {stop}"
        shard.fold()
        assert rebuilt_of_all(shard) == expected
        shard.restart()
        assert shard.shard.tail_length() == 0
        assert told_of_all(shard) == expected
        shard.close()


def test_a_fold_that_is_told_it_failed_although_it_was_done_goes_on_with_what_came_since(
    opened: Callable[..., OneShard],
) -> None:
    shard = opened(table=StoppingTable)
    lived(shard)
    shard.table.stop_at, shard.table.done_first = shard.table.writes + 2, True
    with pytest.raises(StoreUnavailable):
        shard.fold()
    shard.say_as(ANN, "a", "new", "said in the gap")
    shard.do(EditTurn(ANN, "gone", "1", "edited in the gap", None))
    shard.do(DeleteTurn(CAT, "a", "1"))
    expected = told_of_all(shard)
    shard.fold()
    assert rebuilt_of_all(shard) == expected
    shard.restart()
    assert told_of_all(shard) == expected


def test_vectors_that_come_after_their_turn_was_folded_are_merged_into_it(shard: OneShard) -> None:
    shard.say_as(ANN, "a", "1", "first folded, then embedded")
    shard.fold()
    turn = shard.turn(ANN, "a", "1")
    assert turn is not None
    shard.embed(ANN, turn, parts=2)
    shard.fold()
    shard.restart()
    assert shard.shard.pending == {}
    assert shard.block(ANN).vectors.count() == 2
    assert shard.contents(ANN, "a") == ["first folded, then embedded"]


def test_many_deletions_in_one_fold(shard: OneShard) -> None:
    ids = [result.id for result in shard.say(ANN, "a", *(f"turn {n}" for n in range(130)))]
    shard.fold()
    for turn_id in ids[:120]:
        shard.do(DeleteTurn(ANN, "a", turn_id))
    shard.fold()
    shard.restart()
    assert shard.contents(ANN, "a") == [f"turn {n}" for n in range(120, 130)]


def test_an_edit_wins_over_vectors_of_the_same_fold(shard: OneShard) -> None:
    shard.say_as(ANN, "a", "1", "old words")
    shard.fold()
    old = shard.turn(ANN, "a", "1")
    assert old is not None
    shard.embed(ANN, old, parts=3)
    edited = shard.do(EditTurn(ANN, "a", "1", "new words", None))
    shard.fold()
    assert shard.table.load(ANN, 5).turns == (edited,)
    assert shard.table.load(ANN, 5).vectors == {}
    assert len(shard.table.rows([old.seq * ROWS_PER_TURN_MAX + part for part in range(3)])) == 1
    shard.restart()
    assert shard.shard.pending.awaits(edited.seq, ANN, edited.rev)
