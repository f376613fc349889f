"""What has expired leaves memory, log, tables and files; what has not stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lancedb
import pytest

from serve_app.core import Summary
from serve_app.records import FactGone
from serve_app.stores.block import FACT_VERSIONS_MAX
from serve_app.stores.terms import index_terms
from serve_app.write.derived import PutSummary
from serve_app.write.erasing import EraseUser
from serve_app.write.facts import DeleteFact, PutFact
from serve_app.write.operations import AppendTurns, EditTurn, FieldLife, NewTurn
from tests.write.shards import ANN, BOB, VERSION, OneShard, told

PAST_US = 1_600_000_000_000_000
BRIEF_S, LONG_S = 10, 10**9


def priced(turn_id: str, price: str, life_s: int, **more: Any) -> NewTurn:
    data = b'{"price":"%b","order":7}' % price.encode()
    return NewTurn(
        "tool", id=turn_id, created_at=PAST_US, data=data, field_lives=(FieldLife("$.price", life_s),), **more
    )


def write(shard: OneShard) -> None:
    """Of each kind one that has expired, and one that has not."""
    brief = NewTurn("user", "shortlived words", id="brief", created_at=PAST_US, ttl_seconds=BRIEF_S)
    long = NewTurn("user", "longlived words", id="long", created_at=PAST_US, ttl_seconds=LONG_S)
    cut, whole = priced("cut", "goneprice", BRIEF_S), priced("whole", "keptprice", LONG_S)
    shard.do(AppendTurns(ANN, "a", [brief, long, cut, whole]))
    shard.do(PutFact(ANN, "pin", "gonepin", None, 1))
    shard.do(PutFact(ANN, "diet", "keptdiet", None, LONG_S))
    made = Summary("a", "gonesummary", 1, 4, 2, "v", "h", 0, 1, expires_at=2)
    shard.do(PutSummary(ANN, made, shard.block(ANN).applied_seq))


GONE = ("shortlived", "goneprice", "gonepin", "gonesummary")
KEPT = ("longlived", "keptprice", "keptdiet")


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("in_memory", [False, True])
def test_what_has_expired_is_in_no_file_any_more(
    opened: Callable[..., OneShard], folded: bool, in_memory: bool
) -> None:
    shard = opened(turns_resident=200_000 if in_memory else 1)
    write(shard)
    if folded:
        shard.fold()
    if not in_memory:
        shard.say(BOB, "b", "another")
        shard.block(BOB)
        shard.shard.evict()
    shard.housekeeper().perform("expire", 0)
    assert [text for text in GONE if shard.files_with(text)] == []
    assert all(shard.files_with(text) for text in KEPT)
    block = shard.block(ANN)
    turns = {turn.id: turn for turn in shard.shard.turns(ANN, block.sessions["a"].seqs)}
    assert [turns[one].data for one in ("cut", "whole")] == [b'{"order":7}', b'{"price":"keptprice","order":7}']
    assert set(turns) == {"long", "cut", "whole"}
    assert (list(block.facts), block.summaries) == (["diet"], {})
    assert not block.columns.lexical.coverage(index_terms("goneprice")).any()
    assert block.columns.lexical.coverage(index_terms("keptprice")).any()
    rebuilt, _ = shard.rebuilt(ANN)
    assert told(rebuilt) == told(block)
    shard.restart()
    assert told(shard.block(ANN)) == told(block)


def test_users_who_are_not_in_memory_are_not_loaded_for_it(shard: OneShard) -> None:
    write(shard)
    shard.fold()
    shard.restart()
    loads = shard.shard.loads
    shard.housekeeper().perform("expire", 0)
    assert shard.shard.loads == loads
    assert len(shard.block(ANN).turns) == 3


def test_parts_follow_each_other_until_nothing_is_due(shard: OneShard) -> None:
    turns = [NewTurn("user", f"number {n}", created_at=PAST_US, ttl_seconds=BRIEF_S) for n in range(7)]
    shard.do(AppendTurns(ANN, "a", [*turns, NewTurn("user", "stays")]))
    shard.do(AppendTurns(BOB, "b", turns[:2]))
    shard.housekeeper(due_a_part=2).perform("expire", 0)
    assert shard.contents(ANN, "a") == ["stays"]
    assert BOB not in shard.shard.owners("", "\uffff")
    assert (shard.block(ANN).total_turns, shard.block(BOB).total_turns) == (1, 0)


def test_an_older_value_of_a_fact_does_not_come_back(shard: OneShard) -> None:
    shard.do(PutFact(ANN, "pin", "first", None, None))
    shard.do(PutFact(ANN, "pin", "second", None, 1))
    shard.do(PutFact(ANN, "diet", "older", None, 1))
    shard.do(PutFact(ANN, "diet", "newer", None, None))
    shard.housekeeper().perform("expire", 0)
    for _ in range(2):
        assert {key: [one.value for one in held] for key, held in shard.block(ANN).facts.items()} == {"diet": ["newer"]}
        shard.restart()


def test_nothing_is_written_of_a_user_who_was_erased_meanwhile(shard: OneShard) -> None:
    """The table still lists what the tail has erased."""
    write(shard)
    shard.fold()
    shard.do(EraseUser(ANN, "acme"))
    before = shard.shard.applied_seq
    shard.housekeeper().perform("expire", 0)
    assert shard.shard.applied_seq == before
    assert [name for name in shard.files_with("ann") if name.startswith("tables")] == []


def test_what_was_written_anew_meanwhile_stays(shard: OneShard) -> None:
    write(shard)
    shard.fold()
    shard.do(EditTurn(ANN, "a", "cut", "in words", None))
    shard.do(DeleteFact(ANN, "pin"))
    shard.do(PutFact(ANN, "pin", "new", None, None))
    shard.housekeeper().perform("expire", 0)
    turn = shard.turn(ANN, "a", "cut")
    assert turn is not None
    assert (turn.content, turn.data) == ("in words", b'{"order":7}')
    assert shard.block(ANN).facts["pin"][-1].value == "new"


def test_values_of_a_fact_beyond_the_bound_leave_the_files(shard: OneShard) -> None:
    for number in range(FACT_VERSIONS_MAX + 3):
        shard.do(PutFact(ANN, "count", f"value{number:03}", None, None))
    keeper = shard.housekeeper()
    shard.fold()
    keeper.perform("expire", 0)
    shard.restart()
    assert shard.block(ANN).facts["count"][0].value == "value003"
    shard.housekeeper().purge_now(0)
    assert shard.files_with("value002") == []
    assert shard.files_with("value003")
    assert shard.block(ANN).changed_seq == 0


def test_the_same_turn_sent_again_is_a_duplicate_although_a_field_has_gone(shard: OneShard) -> None:
    new = priced("1", "goneprice", BRIEF_S)
    assert shard.do(AppendTurns(ANN, "a", [new]))[0].status == "stored"
    shard.housekeeper().perform("expire", 0)
    assert shard.do(AppendTurns(ANN, "a", [new]))[0].status == "duplicate"
    assert shard.do(AppendTurns(ANN, "a", [priced("1", "other", BRIEF_S)]))[0].status == "duplicate"
    other = NewTurn("tool", id="1", created_at=PAST_US, data=b'{"price":"goneprice","order":8}')
    assert shard.do(AppendTurns(ANN, "a", [other]))[0].status == "rejected"
    assert shard.files_with("goneprice") == []


class Counting:
    """The table, and how often it was scanned."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.scans = 0
        scan = table._scan

        def counted(*arguments: Any) -> Any:
            self.scans += 1
            return scan(*arguments)

        table._scan = counted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


def test_while_nothing_is_due_the_table_is_not_read(opened: Callable[..., OneShard]) -> None:
    shard = opened(table=Counting)
    shard.do(AppendTurns(ANN, "a", [NewTurn("user", "x", ttl_seconds=LONG_S)]))
    keeper = shard.housekeeper()
    keeper.perform("expire", 0)
    scans = shard.table.scans
    keeper.perform("expire", 0)
    assert shard.table.scans == scans
    shard.do(AppendTurns(ANN, "a", [NewTurn("user", "y", id="y", created_at=PAST_US, ttl_seconds=BRIEF_S)]))
    shard.fold()
    keeper.perform("expire", 0)
    assert shard.contents(ANN, "a") == ["x"]


def test_a_table_of_an_older_release_gets_the_column(shard: OneShard) -> None:
    shard.say(ANN, "a", "old")
    shard.fold()
    shard.close()
    table = lancedb.connect(str(shard.folder / "tables")).open_table("shard-0000")
    table.drop_columns(["expires_at"])
    shard.open()
    assert shard.contents(ANN, "a") == ["old"]
    write(shard)
    shard.embed(ANN, *shard.block(ANN).turns.values())
    shard.fold()
    shard.housekeeper().perform("expire", 0)
    assert [text for text in GONE if shard.files_with(text)] == []
    rebuilt, _ = shard.rebuilt(ANN)
    assert told(rebuilt) == told(shard.block(ANN))
    assert VERSION.name in str(lancedb.connect(str(shard.folder / "tables")).open_table("shard-0000").schema)


def test_records_of_older_releases_forget_a_fact_whole(shard: OneShard) -> None:
    assert FactGone(3, ANN, "diet").through == 0
    shard.do(PutFact(ANN, "diet", "older", None, None))
    shard.do(PutFact(ANN, "diet", "newer", None, None))
    shard.do(DeleteFact(ANN, "diet"))
    assert "diet" not in shard.block(ANN).facts
