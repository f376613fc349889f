"""Vectors of earlier turns, made of what was read some time ago, meet the turns as they are now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from serve_app.core import Turn
from serve_app.errors import InvalidRequest
from serve_app.models.stub import HashEmbedder
from serve_app.write.backfill import BackfillItem, Written, put_backfill
from serve_app.write.erasing import EraseUser
from serve_app.write.operations import DeleteSession, DeleteTurn, EditTurn
from tests.write.shards import ANN, BOB, VERSION, OneShard, vectors_of

TARGET = HashEmbedder(32)
NAME = TARGET.version.name


def unit(owner: str, turns: Sequence[Turn], parts: int = 1) -> list[BackfillItem]:
    return [BackfillItem(owner, vectors_of(turn, parts, TARGET)) for turn in turns]


def all_turns(shard: OneShard, owner: str) -> list[Turn]:
    return list(shard.block(owner).turns.values())


@pytest.fixture
def holding(shard: OneShard) -> OneShard:
    shard.shard.hold(TARGET.version)
    return shard


@pytest.mark.parametrize("folded", [False, True])
def test_what_is_as_it_was_embedded_gets_its_vectors(holding: OneShard, folded: bool) -> None:
    holding.say(ANN, "a", "amber", "birch")
    holding.say(BOB, "a", "cedar")
    if folded:
        holding.fold()
    items = [*unit(ANN, all_turns(holding, ANN), parts=2), *unit(BOB, all_turns(holding, BOB))]
    assert put_backfill(holding.writer, NAME, items) == Written(written=3)
    assert holding.block(ANN).vectors.shape(1)[NAME][0] == 2
    assert holding.block(BOB).vectors.shape(3)[NAME][0] == 1
    assert holding.shard.pending.keys() == {1, 2, 3}
    assert holding.block(ANN).vectors.came_by(VERSION.name) == {}


@pytest.mark.parametrize("folded", ["never", "before", "after", "both"])
def test_what_was_edited_or_erased_since_gets_none(holding: OneShard, folded: str) -> None:
    for owner in (ANN, BOB):
        for session in ("a", "b"):
            for turn in ("1", "2", "3"):
                holding.say_as(owner, session, turn, f"{session} {turn}")
    items = [*unit(ANN, all_turns(holding, ANN)), *unit(BOB, all_turns(holding, BOB))]
    if folded in ("before", "both"):
        holding.fold()
    holding.do(EditTurn(ANN, "a", "1", "other words", None))
    holding.do(DeleteTurn(ANN, "a", "2"))
    holding.do(DeleteSession(ANN, "b"))
    holding.do(EraseUser(BOB, "acme"))
    if folded in ("after", "both"):
        holding.fold()
    assert put_backfill(holding.writer, NAME, items) == Written(written=1, stale=1, gone=10)
    assert list(holding.block(ANN).vectors.came_by(NAME)) == [3]
    assert holding.block(BOB).vectors.came == {}


def test_another_owners_turn_is_gone_to_who_names_it(holding: OneShard) -> None:
    holding.say(ANN, "a", "amber")
    [turn] = all_turns(holding, ANN)
    assert put_backfill(holding.writer, NAME, unit(BOB, [turn])) == Written(gone=1)


def test_what_is_no_unit_is_refused(holding: OneShard, opened: Callable[..., OneShard]) -> None:
    holding.say(ANN, "a", "amber")
    turns = all_turns(holding, ANN)
    [item] = unit(ANN, turns)
    put = holding.writer
    cases = {
        "no vectors of 32": [BackfillItem(ANN, vectors_of(turns[0]).__class__(1, 1, "a", "x", b"123"))],
        "not finite": [BackfillItem(ANN, item.made.__class__(1, 1, "a", "x", b"\xff\x7f" * 32))],
        "of tokens": [BackfillItem(ANN, item.made.__class__(1, 1, "a", "x", item.made.vectors, b"1"))],
        "another length": [BackfillItem(ANN, item.made.__class__(1, 1, "a", "x", b"\x00\x3c" * 32))],
        "no digest": [BackfillItem(ANN, item.made.__class__(1, 1, "a", "x", item.made.vectors, b"", b"1"))],
        "stands in it twice": [item, item],
    }
    for said, items in cases.items():
        with pytest.raises(InvalidRequest, match=said):
            put_backfill(put, NAME, items)
    with pytest.raises(InvalidRequest, match="holds no vectors of 'unheard of'"):
        put_backfill(put, "unheard of", [item])
    assert holding.block(ANN).vectors.came == {}
