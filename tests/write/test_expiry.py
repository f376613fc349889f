"""A turn that has expired is gone for whoever writes, too: its id is free, and nothing of it stays behind."""

from __future__ import annotations

from serve_app.records import TurnGone, TurnPut
from serve_app.write.commit import Draft
from serve_app.write.derived import PutVectors
from serve_app.write.operations import AppendTurns, NewTurn
from tests.write.shards import ANN, EMBEDDER, OneShard, made_of, told

DAY_US = 24 * 3600 * 1_000_000


def brief(content: str, ttl_seconds: int = 1) -> AppendTurns:
    return AppendTurns(ANN, "a", [NewTurn("user", content, id="1", ttl_seconds=ttl_seconds)])


def test_an_id_is_free_again_once_its_turn_has_expired(shard: OneShard) -> None:
    shard.say(ANN, "a", "stays")
    assert shard.do(brief("old"))[0].status == "stored"
    shard.fold()
    again = shard.do(brief("new", ttl_seconds=1_000))[0]
    assert again.status == "stored"
    assert shard.contents(ANN, "a") == ["stays", "new"]
    assert shard.do(brief("new", ttl_seconds=1_000))[0].status == "duplicate"
    assert shard.do(brief("other"))[0].status == "rejected"
    rebuilt, _ = shard.rebuilt(ANN)
    assert told(rebuilt) == told(shard.block(ANN))
    shard.fold()
    shard.restart()
    assert shard.contents(ANN, "a") == ["stays", "new"]
    assert shard.block(ANN).find("a", "1") == again.seq


def test_the_only_turn_of_a_session_is_followed_by_its_successor(shard: OneShard) -> None:
    for content in ("one", "two", "three"):
        assert shard.do(brief(content))[0].status == "stored"
    assert shard.contents(ANN, "a") == ["three"]
    assert shard.block(ANN).total_turns == 1


def test_in_one_batch_the_expired_turn_goes_once_and_takes_no_vectors(shard: OneShard) -> None:
    shard.do(brief("old"))
    old = shard.turn(ANN, "a", "1")
    assert old is not None
    draft = Draft(shard.shard, old.arrived_at + DAY_US)
    statuses = [brief(content).prepare(draft)[0].status for content in ("new", "new", "other")]
    assert statuses == ["stored", "duplicate", "rejected"]
    assert [type(record) for record in draft.records] == [TurnGone, TurnPut]
    assert PutVectors(ANN, made_of([old], [EMBEDDER])).prepare(draft) == 0


def test_what_a_refused_operation_drafted_is_forgotten(shard: OneShard) -> None:
    shard.do(brief("old"))
    old = shard.turn(ANN, "a", "1")
    assert old is not None
    draft = Draft(shard.shard, old.arrived_at + DAY_US)
    brief("new").prepare(draft)
    draft.cut(0)
    assert (draft.new_turns, draft.gone_turns) == ({}, set())
    assert PutVectors(ANN, made_of([old], [EMBEDDER])).prepare(draft) == 1
