"""Idle topics leave memory, then the warm tables, by the tenant's policy; hits and new turns keep them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from serve_app.core import Turn
from serve_app.policies import DAY_S, LifecyclePolicy
from serve_app.write.erasing import EraseUser
from serve_app.write.hits import HITS_KEPT_MAX, NOTED_MAX, Noted, WriteHits, newest
from serve_app.write.housekeeping import FoldOptions
from serve_app.write.lifecycle import Demote, MoveTurns
from serve_app.write.operations import AppendTurns, DeleteSession, DeleteTurn, EditTurn, NewTurn
from tests.write.shards import ANN, BOB, CAT, OneShard, wait_until

DAY = DAY_S * 1_000_000


class Rules:
    """Policies by tenant."""

    def __init__(self, **of_tenants: LifecyclePolicy) -> None:
        self.of_tenants = of_tenants

    def of(self, tenant: str, kind: type[Any]) -> Any:
        return self.of_tenants.get(tenant, kind())

    def of_service(self, kind: type[Any]) -> Any:
        return kind()


def threes(turns: Sequence[Turn], vectors: Mapping[int, np.ndarray[Any, Any]]) -> list[int]:
    """Topics of three turns each."""
    return [len(turns[start : start + 3]) for start in range(0, len(turns), 3)]


class Ageing:
    """A shard and its duty, on a clock that is put forward by hand."""

    def __init__(self, shard: OneShard, policies: Rules | None = None) -> None:
        self.shard = shard
        self.noted = {0: Noted()}
        self.duty = Demote(policies or Rules(), lambda: shard.clock.now, self.noted, threes)

    def later(self, days: float) -> None:
        self.shard.clock.now += int(days * DAY)

    def demote(self) -> None:
        while self.duty.tend(0, self.shard.writer):
            continue
        self.shard.fold()

    def tiers(self, owner: str = ANN, session: str = "a") -> list[int]:
        block = self.shard.block(owner)
        return [block.moved.tier(seq) for seq in block.sessions[session].seqs]

    def found(self, *places: int, owner: str = ANN, session: str = "a") -> None:
        seqs = self.shard.block(owner).sessions[session].seqs
        self.noted[0].note(owner, [seqs[place] for place in places], self.shard.clock.now)


@pytest.fixture
def ageing(shard: OneShard) -> Ageing:
    return Ageing(shard)


def spoken(ageing: Ageing, turns: int = 6, owner: str = ANN) -> None:
    ageing.shard.say(owner, "a", *(f"word{n} of the past" for n in range(turns)))
    ageing.shard.fold()


def test_idle_topics_leave_memory_after_a_week_and_the_warm_tables_after_a_month(ageing: Ageing) -> None:
    spoken(ageing)
    ageing.later(6.9)
    ageing.demote()
    assert ageing.tiers() == [0] * 6
    ageing.later(0.2)
    ageing.demote()
    assert ageing.tiers() == [1] * 6
    assert ageing.shard.block(ANN).turns == {}
    ageing.later(22)
    ageing.demote()
    assert ageing.tiers() == [1] * 6
    ageing.later(1)
    ageing.demote()
    assert ageing.tiers() == [2] * 6
    assert ageing.shard.contents(ANN, "a") == [f"word{n} of the past" for n in range(6)]


def test_an_imported_old_history_is_new(ageing: Ageing) -> None:
    old = [NewTurn("user", "said in 2001", created_at=1_000_000_000_000_000)]
    ageing.shard.do(AppendTurns(ANN, "a", old))
    ageing.shard.fold()
    ageing.demote()
    assert ageing.tiers() == [0]


def test_a_hit_keeps_its_topic_and_no_other(ageing: Ageing) -> None:
    spoken(ageing)
    ageing.later(6)
    ageing.found(4)
    ageing.later(2)
    ageing.demote()
    assert ageing.tiers() == [1, 1, 1, 0, 0, 0]
    ageing.later(23)
    ageing.demote()
    assert ageing.tiers() == [2, 2, 2, 1, 1, 1]
    ageing.found(3)
    ageing.later(29)
    ageing.demote()
    assert ageing.tiers() == [2, 2, 2, 1, 1, 1]
    ageing.later(2)
    ageing.demote()
    assert ageing.tiers() == [2] * 6


def test_a_new_turn_keeps_the_topic_that_it_belongs_to(ageing: Ageing) -> None:
    spoken(ageing, turns=5)
    ageing.later(8)
    ageing.shard.say(ANN, "a", "the sixth")
    ageing.demote()
    assert ageing.tiers() == [1, 1, 1, 0, 0, 0], "not folded yet, but there"
    ageing.shard.fold()
    ageing.demote()
    assert ageing.tiers() == [1, 1, 1, 0, 0, 0]


def test_topics_between_cold_ones_are_told_apart(ageing: Ageing) -> None:
    spoken(ageing, turns=9)
    ageing.later(25)
    ageing.found(0, 8)
    ageing.later(6)
    ageing.demote()
    assert ageing.tiers() == [0, 0, 0, 2, 2, 2, 0, 0, 0]
    ageing.found(6)
    ageing.later(2)
    ageing.demote()
    assert ageing.tiers() == [1, 1, 1, 2, 2, 2, 0, 0, 0]


def test_each_tenant_has_its_own_times(opened: Callable[..., OneShard]) -> None:
    ageing = Ageing(opened(), Rules(acme=LifecyclePolicy(warm_after_s=None, cold_after_s=None)))
    spoken(ageing)
    spoken(ageing, owner=CAT)
    ageing.later(3_000)
    ageing.demote()
    assert ageing.tiers() == [0] * 6
    assert ageing.tiers(CAT) == [2] * 6
    ageing.duty = Demote(Rules(acme=LifecyclePolicy(1, None)), lambda: ageing.shard.clock.now, ageing.noted, threes)
    ageing.demote()
    assert ageing.tiers() == [1] * 6


def test_hits_outlast_a_restart_once_they_are_written(ageing: Ageing) -> None:
    spoken(ageing)
    ageing.later(6)
    ageing.found(0)
    assert not WriteHits(ageing.noted).tend(0, ageing.shard.writer)
    assert ageing.noted[0].of(ANN) == {}
    ageing.shard.restart()
    ageing.later(2)
    ageing.demote()
    assert ageing.tiers() == [0, 0, 0, 1, 1, 1]
    ageing.found(4)
    WriteHits(ageing.noted).tend(0, ageing.shard.writer)
    ageing.shard.fold()
    ageing.shard.restart()
    ageing.later(29)
    ageing.demote()
    assert ageing.tiers() == [2, 2, 2, 1, 1, 1]


def test_hits_of_an_erased_owner_are_not_written_and_leave_no_row(ageing: Ageing) -> None:
    spoken(ageing)
    ageing.found(0)
    WriteHits(ageing.noted).tend(0, ageing.shard.writer)
    ageing.shard.fold()
    assert len(ageing.shard.table.hits([ANN])) == 1
    ageing.found(1)
    ageing.shard.do(EraseUser(ANN, "acme"))
    WriteHits(ageing.noted).tend(0, ageing.shard.writer)
    ageing.shard.fold()
    assert ageing.shard.table.hits([ANN]) == []


def test_the_hits_of_an_owner_are_one_row_however_often_they_are_written(ageing: Ageing) -> None:
    spoken(ageing)
    for place in range(3):
        ageing.found(place)
        WriteHits(ageing.noted).tend(0, ageing.shard.writer)
        if place:
            ageing.shard.fold()
    rows = ageing.shard.table.hits([ANN, BOB])
    assert len(rows) == 1
    assert len(ageing.shard.table.hits([ANN])[0].body) < 100


def test_what_is_noted_is_bounded() -> None:
    noted = Noted()
    for owner in range(60):
        noted.note(f"owner {owner}", range(5_000), 1)
    assert NOTED_MAX < sum(map(len, noted.take(1_000).values())) <= NOTED_MAX + 5_000
    noted.note("owner", [1], 2)
    assert noted.take(10) == {"owner": {1: 2}}
    kept = newest({seq: seq for seq in range(HITS_KEPT_MAX + 10)})
    assert (len(kept), min(kept)) == (HITS_KEPT_MAX, 10)


@pytest.mark.parametrize("forget", [lambda: DeleteTurn(ANN, "a", "1"), lambda: DeleteSession(ANN, "a")])
def test_what_was_erased_since_it_was_seen_does_not_come_back(ageing: Ageing, forget: Callable[[], Any]) -> None:
    ageing.shard.say_as(ANN, "a", "1", "gone soon")
    ageing.shard.fold()
    seq = ageing.shard.block(ANN).sessions["a"].seqs[0]
    ageing.shard.do(forget())
    assert ageing.shard.do(MoveTurns(ANN, "a", 2, [seq], seq)) == 0
    ageing.shard.say(ANN, "a", "another life")
    assert ageing.shard.do(MoveTurns(ANN, "a", 2, [seq], seq)) == 0
    ageing.shard.fold()
    ageing.shard.restart()
    assert ageing.shard.contents(ANN, "a") == ["another life"]
    assert not ageing.shard.cold.exists


def test_nothing_is_sent_to_a_cold_store_that_does_not_answer(opened: Callable[..., OneShard], tmp_path: Any) -> None:
    ageing = Ageing(opened())
    spoken(ageing)
    spoken(ageing, owner=BOB)
    (tmp_path / "store" / "cold").write_text("in the way of the folder")
    ageing.later(8)
    ageing.demote()
    assert ageing.tiers() == [1] * 6
    ageing.later(30)
    ageing.demote()
    assert ageing.shard.cold.trouble is not None
    assert ageing.tiers() == [1] * 6
    ageing.shard.fold()
    assert ageing.shard.contents(ANN, "a") == [f"word{n} of the past" for n in range(6)]
    (tmp_path / "store" / "cold").unlink()
    ageing.shard.cold._rests_until = 0.0
    ageing.shard.housekeeper(FoldOptions(round_s=0.02))
    wait_until(lambda: ageing.shard.cold.trouble is None)
    ageing.demote()
    assert ageing.tiers() == [2] * 6


def test_one_call_does_a_bounded_part(ageing: Ageing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.write.lifecycle.OWNERS_A_PART", 1)
    monkeypatch.setattr("serve_app.write.lifecycle.MOVED_A_RECORD", 4)
    for owner in (ANN, BOB, CAT):
        spoken(ageing, owner=owner)
    ageing.later(8)
    assert [ageing.duty.tend(0, ageing.shard.writer) for _ in range(3)] == [True, True, False]
    assert [ageing.tiers(owner) for owner in (ANN, BOB, CAT)] == [[1] * 6] * 3


def test_owners_with_nothing_due_are_not_looked_at_again_until_something_is(
    ageing: Ageing, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    ages = ageing.shard.table.ages
    monkeypatch.setattr(ageing.shard.table, "ages", lambda owner: looks.append(owner) or ages(owner))
    spoken(ageing)
    ageing.later(6)
    ageing.found(0, 3)
    ageing.later(2)
    ageing.demote()
    ageing.demote()
    assert (looks, ageing.tiers()) == ([ANN], [0] * 6)
    ageing.later(5.1)
    ageing.demote()
    assert (looks, ageing.tiers()) == ([ANN, ANN], [1] * 6)
    ageing.later(22)
    ageing.demote()
    assert len(looks) == 2
    ageing.later(1.1)
    ageing.demote()
    assert ageing.tiers() == [2] * 6


def test_turns_that_came_after_a_look_go_in_time(ageing: Ageing) -> None:
    """All that was there then is cold, or is kept for long by a hit."""
    spoken(ageing)
    ageing.later(31)
    ageing.demote()
    assert ageing.tiers() == [2] * 6
    ageing.demote()
    ageing.shard.say(ANN, "new", "another time", "another word")
    ageing.shard.fold()
    ageing.demote()
    assert ageing.tiers(session="new") == [0] * 2
    ageing.later(8)
    ageing.demote()
    assert ageing.tiers(session="new") == [1] * 2


def test_turns_that_came_after_others_left_memory_go_in_time(ageing: Ageing) -> None:
    """Those others are not due for weeks."""
    spoken(ageing)
    ageing.later(8)
    ageing.demote()
    ageing.later(2)
    ageing.shard.say(ANN, "new", "another time")
    ageing.shard.fold()
    ageing.later(6.9)
    ageing.demote()
    assert (ageing.tiers(), ageing.tiers(session="new")) == ([1] * 6, [0])
    ageing.later(0.2)
    ageing.demote()
    assert (ageing.tiers(), ageing.tiers(session="new")) == ([1] * 6, [1])


def test_a_cold_turn_that_is_edited_goes_cold_again(ageing: Ageing) -> None:
    spoken(ageing)
    ageing.later(31)
    ageing.demote()
    turn = next(iter(ageing.shard.shard.turns(ANN, ageing.shard.block(ANN).sessions["a"].seqs[:1])))
    ageing.shard.do(EditTurn(ANN, "a", turn.id, "edited", None))
    ageing.shard.fold()
    assert ageing.tiers() == [1] + [2] * 5
    ageing.demote()
    assert ageing.tiers() == [2] * 6
