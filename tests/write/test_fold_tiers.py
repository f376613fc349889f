"""Moves between tiers may stop anywhere in a fold, and be repeated: nothing is lost, doubled or brought back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import StoreUnavailable
from serve_app.stores.cold import ColdTable
from serve_app.stores.terms import index_terms
from serve_app.write.erasing import EraseUser
from serve_app.write.housekeeping import FoldOptions
from serve_app.write.lifecycle import MoveTurns
from serve_app.write.operations import AppendTurns, DeleteSession, DeleteTurn, EditTurn, NewTurn
from tests.write.shards import ANN, BOB, OneShard, told, wait_until

SECRET = "kQ7xZp2LmW9sentinel"


class Stopping:
    """A real table, whose writes go well until `stop_at`: that one fails, before it is done or right after."""

    writes = frozenset({"merge", "delete", "keep", "forget", "clean"})
    done: list[str]
    stop_at: int | None = None
    done_first = False

    def __init__(self, inner: Any, done: list[str]) -> None:
        self.inner, self.done = inner, done

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in self.writes:
            return method

        def write(*arguments: Any) -> Any:
            self.done.append(name)
            stops = len(self.done) == Stopping.stop_at
            result = None if stops and not Stopping.done_first else method(*arguments)
            if stops:
                raise StoreUnavailable("the tables went away")
            return result

        return write


@pytest.fixture
def stopping(opened: Callable[..., OneShard]) -> Any:
    def open_shard(name: str) -> OneShard:
        done: list[str] = []
        shard = opened(name, table=lambda table: Stopping(table, done), cold=lambda table: Stopping(table, done))
        shard.written = done  # type: ignore[attr-defined]
        return shard

    yield open_shard
    Stopping.stop_at, Stopping.done_first = None, False


def move(shard: OneShard, owner: str, session: str, tier: int, seqs: list[int]) -> int:
    return shard.do(MoveTurns(owner, session, tier, seqs, shard.block(owner).sessions[session].seqs[-1]))


def gone_cold(shard: OneShard, owner: str, session: str = "a", tier: int = 2) -> list[int]:
    """Fold, move all of a session, fold."""
    shard.fold()
    seqs = list(shard.block(owner).sessions[session].seqs)
    assert move(shard, owner, session, tier, seqs) == len(seqs)
    shard.fold()
    return seqs


def lived(shard: OneShard) -> None:
    """A folded past with turns in every tier, and a tail that moves, edits and deletes some of each."""
    shard.say(ANN, "a", *(f"apple {n} said long ago" for n in range(6)))
    shard.say(ANN, "gone", "of a session that will go", "wholly")
    shard.say(BOB, "a", "bob's past", "bob's present")
    for turn in shard.shard.turns(ANN, list(shard.block(ANN).turns)):
        shard.embed(ANN, turn, parts=2)
    shard.fold()
    a = list(shard.block(ANN).sessions["a"].seqs)
    assert move(shard, ANN, "a", 2, a[:2]) == 2
    assert move(shard, ANN, "a", 1, a[2:4]) == 2
    gone_cold(shard, ANN, "gone")
    gone_cold(shard, BOB, tier=1)
    ids = {seq: turn_id for turn_id, seq in shard.block(ANN).sessions["a"].ids.items()}
    assert move(shard, ANN, "a", 2, a[2:6]) == 4
    assert move(shard, BOB, "a", 2, list(shard.block(BOB).sessions["a"].seqs)) == 2
    edited = shard.do(EditTurn(ANN, "a", ids[a[0]], "pear brought back", None))
    shard.embed(ANN, edited, parts=3)
    shard.do(EditTurn(ANN, "a", ids[a[2]], "edited on its way", None))
    shard.do(DeleteTurn(ANN, "a", ids[a[1]]))
    shard.do(DeleteTurn(ANN, "a", ids[a[3]]))
    shard.do(DeleteSession(ANN, "gone"))


def state(shard: OneShard) -> dict[str, Any]:
    def tiers(block: Any) -> dict[int, int]:
        seqs = [seq for index in block.sessions.values() for seq in index.seqs]
        return {seq: block.moved.tier(seq) for seq in seqs} | {-1: block.moved.cold}

    said = {owner: [one.content for one in shard.shard.turns(owner, _seqs(shard, owner))] for owner in (ANN, BOB)}
    blocks = {owner: (shard.block(owner), shard.rebuilt(owner)[0]) for owner in (ANN, BOB)}
    for held, rebuilt in blocks.values():
        assert (told(held), tiers(held)) == (told(rebuilt), tiers(rebuilt))
    return {"said": said} | {owner: (told(held), tiers(held)) for owner, (held, _) in blocks.items()}


def _seqs(shard: OneShard, owner: str) -> list[int]:
    return [seq for index in shard.block(owner).sessions.values() for seq in index.seqs]


def assert_tables(shard: OneShard) -> None:
    """After a fold each cold turn lies in the cold table alone, and nothing else does."""
    assert shard.shard.tail_length() == 0
    for owner in (ANN, BOB):
        block, seqs = shard.block(owner), _seqs(shard, owner)
        cold = [seq for seq in seqs if block.moved.is_cold(seq)]
        assert [turn.seq for turn in shard.cold.read(owner, range(1_000))] == sorted(cold)
        assert [turn.seq for turn in shard.table.turns(owner, range(1_000))] == sorted(set(seqs) - set(cold))


@pytest.mark.parametrize("done_first", [False, True], ids=["before", "after"])
def test_a_fold_with_moves_that_stops_anywhere(stopping: Callable[..., OneShard], done_first: bool) -> None:
    counted = stopping("count")
    lived(counted)
    before = len(counted.written)  # type: ignore[attr-defined]
    counted.fold()
    writes = counted.written[before:]  # type: ignore[attr-defined]
    assert writes[:2] == ["keep", "forget"]
    assert writes[-1] == "merge"
    for stop in range(1, len(writes) + 1):
        shard = stopping(f"stop-{stop}")
        lived(shard)
        expected = state(shard)
        Stopping.stop_at, Stopping.done_first = len(shard.written) + stop, done_first  # type: ignore[attr-defined]
        with pytest.raises(StoreUnavailable):
            shard.fold()
        Stopping.stop_at = None
        assert state(shard) == expected, f"in the gap after write {stop}"
        if stop % 2:
            shard.restart()
            assert state(shard) == expected, f"started again after write {stop}"
        shard.fold()
        assert state(shard) == expected
        assert_tables(shard)
        shard.restart()
        assert state(shard) == expected
        shard.close()


def test_a_turn_that_is_deleted_after_a_fold_had_kept_it_cold_is_not_left_there(
    stopping: Callable[..., OneShard],
) -> None:
    shard = stopping("store")
    shard.say_as(ANN, "a", "1", f"{SECRET} once")
    shard.say(ANN, "a", "another")
    shard.fold()
    assert move(shard, ANN, "a", 2, list(shard.block(ANN).sessions["a"].seqs)) == 2
    Stopping.stop_at, Stopping.done_first = len(shard.written) + 1, True  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailable):
        shard.fold()
    Stopping.stop_at = None
    assert [name for name in shard.files_with(SECRET) if name.startswith("cold")]
    shard.do(DeleteTurn(ANN, "a", "1"))
    shard.restart()
    shard.housekeeper().purge_now(0)
    assert shard.files_with(SECRET) == []
    assert shard.contents(ANN, "a") == ["another"]


@pytest.mark.parametrize("forget", ["turn", "session", "user", "edit"])
@pytest.mark.parametrize("started_again", [False, True])
def test_what_is_forgotten_leaves_the_cold_files_too(shard: OneShard, forget: str, started_again: bool) -> None:
    shard.say_as(ANN, "a", "1", f"{SECRET} to be forgotten")
    shard.say(BOB, "a", "bob stays")
    gone_cold(shard, ANN)
    gone_cold(shard, BOB)
    assert [name for name in shard.files_with(SECRET) if name.startswith("cold")]
    operation = {
        "turn": lambda: DeleteTurn(ANN, "a", "1"),
        "session": lambda: DeleteSession(ANN, "a"),
        "user": lambda: EraseUser(ANN, "acme"),
        "edit": lambda: EditTurn(ANN, "a", "1", "harmless", None),
    }[forget]()
    done = shard.do(operation)
    if forget == "user":
        assert done.counts["cold"] == 1
    if started_again:
        shard.fold()
        shard.restart()
        assert shard.shard.cold_purge_due
    shard.housekeeper().purge_now(0)
    assert shard.files_with(SECRET) == []
    assert not shard.shard.cold_purge_due
    assert shard.contents(ANN, "a") == (["harmless"] if forget == "edit" else [])
    assert shard.contents(BOB, "a") == ["bob stays"]
    shard.restart()
    assert not shard.shard.cold_purge_due
    assert shard.contents(BOB, "a") == ["bob stays"]


class Absent:
    """A cold table whose store does not answer while `away`."""

    def __init__(self, inner: ColdTable) -> None:
        self.inner, self.away = inner, True

    def __getattr__(self, name: str) -> Any:
        if self.away and name not in ("trouble", "tend", "to_be_asked_again"):
            raise StoreUnavailable("the cold store is away")
        return getattr(self.inner, name)


def test_a_cold_store_that_is_away_is_not_needed_for_anything_but_cold_turns(opened: Callable[..., OneShard]) -> None:
    shard = opened(cold=Absent)
    shard.cold.away = False
    shard.say_as(ANN, "a", "1", "cold words")
    gone_cold(shard, ANN)
    shard.cold.away = True
    shard.restart()
    shard.cold.away = True
    again = AppendTurns(ANN, "a", [NewTurn("user", "cold words", id="1"), NewTurn("user", "other words", id="1")])
    assert [one.status for one in shard.do(again)] == ["duplicate", "rejected"]
    shard.say(ANN, "a", "warm words")
    shard.do(EditTurn(ANN, "a", shard.say(ANN, "a", "typo")[0].id, "no typo", None))
    shard.say_as(BOB, "a", "1", "bob's")
    shard.do(DeleteTurn(BOB, "a", "1"))
    shard.fold()
    shard.housekeeper().purge_now(0)
    shard.restart()
    shard.cold.away = True
    block = shard.block(ANN)
    assert [turn.content for turn in block.turns.values()] == ["warm words", "no typo"]
    assert block.complete
    with pytest.raises(StoreUnavailable, match="away"):
        shard.contents(ANN, "a")
    shard.do(DeleteTurn(ANN, "a", "1"))
    with pytest.raises(StoreUnavailable, match="away"):
        shard.fold()
    assert shard.contents(ANN, "a") == ["warm words", "no typo"]
    shard.cold.away = False
    shard.fold()
    assert shard.cold.read(ANN, range(100)) == []


def test_a_warm_turn_keeps_its_vectors_and_gets_those_that_come_late(shard: OneShard) -> None:
    shard.say_as(ANN, "a", "1", "embedded before it moved")
    shard.say_as(ANN, "a", "2", "embedded after it moved")
    first, second = shard.turn(ANN, "a", "1"), shard.turn(ANN, "a", "2")
    assert first is not None
    assert second is not None
    shard.fold()
    shard.embed(ANN, first, parts=2)
    assert move(shard, ANN, "a", 1, [first.seq, second.seq]) == 2
    assert shard.block(ANN).turns == {}
    shard.fold()
    assert shard.embed(ANN, second, parts=3) == 1
    shard.fold()
    shard.restart()
    assert shard.shard.pending == {}
    assert shard.block(ANN).turns == {}
    assert len(shard.table.whole(ANN, [first.seq, second.seq])) == 5
    assert {row.tier for row in shard.table.whole(ANN, [first.seq, second.seq])} == {1}
    query = index_terms("embedded")
    assert len(shard.table.matching(ANN, query, 10)) == 2
    assert shard.contents(ANN, "a") == ["embedded before it moved", "embedded after it moved"]


def test_an_erasure_waits_for_the_cold_store_and_nothing_else_does(opened: Callable[..., OneShard]) -> None:
    class Uncleaned(Absent):
        def __getattr__(self, name: str) -> Any:
            if self.away and name == "clean":
                raise StoreUnavailable("the cold store is away")
            return getattr(self.inner, name)

    shard = opened(cold=Uncleaned)
    shard.say(ANN, "a", f"{SECRET} of the past")
    gone_cold(shard, ANN)
    erasure = shard.do(EraseUser(ANN, "acme"))
    shard.housekeeper(FoldOptions(records=1, round_s=0.02, purge_every_s=0))
    wait_until(lambda: shard.shard.cold_purge_due and not shard.shard.purge_due)
    shard.say(BOB, "a", "bob goes on")
    wait_until(lambda: shard.shard.tail_length() == 0)
    assert shard.shard.erasures[erasure.id].state == "running"
    wait_until(lambda: all(name.startswith("cold") for name in shard.files_with(SECRET)))
    wait_until(lambda: not shard.shard.purge_due)
    before = shard.table.version()
    time.sleep(0.5)
    assert shard.table.version() == before, "the warm table is not purged again and again"
    shard.cold.away = False
    wait_until(lambda: shard.shard.erasures[erasure.id].state == "done")
    assert shard.files_with(SECRET) == []


class Untended(ColdTable):
    """Its store answers, but not when it is to be kept compact."""

    def tend(self) -> None:
        raise StoreUnavailable("the cold store does not answer")


def test_a_cold_store_that_cannot_be_tended_holds_no_fold_up(opened: Callable[..., OneShard], tmp_path: Path) -> None:
    shard = opened(cold=lambda table: Untended(str(tmp_path / "cold"), "shard-0000", {}))
    shard.say_as(ANN, "a", "1", "said")
    shard.fold()
    assert shard.shard.tail_length() == 0
    assert shard.table.folded_seq() == shard.shard.applied_seq
