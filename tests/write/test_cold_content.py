"""What has to be done to cold turns: their expiry, and knowing them when they are sent again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import StoreUnavailable
from serve_app.write.lifecycle import MoveTurns
from serve_app.write.operations import AppendTurns, FieldLife, NewTurn
from serve_app.write.redaction import redacted_turn, repeats
from tests.write.shards import ANN, BOB, CAT, OneShard

MAIL = "anna.kestrel@example.org"


def go_cold(shard: OneShard, owner: str) -> None:
    shard.fold()
    seqs = list(shard.block(owner).sessions["a"].seqs)
    assert shard.do(MoveTurns(owner, "a", 2, seqs, seqs[-1])) == len(seqs)
    shard.fold()


def brief(shard: OneShard, owner: str, word: str) -> None:
    """A turn, and a field of another, that expire in a while."""
    whole = NewTurn("user", f"{word}turn", id="1", ttl_seconds=1_000)
    data = b'{"price":"%bfield","order":7}' % word.encode()
    cut = NewTurn("tool", id="2", data=data, field_lives=(FieldLife("$.price", 1_000),))
    shard.do(AppendTurns(owner, "a", [whole, cut, NewTurn("user", "stays", id="3")]))


def expired(shard: OneShard) -> None:
    """Much later, with nobody in memory."""
    shard.clock.now += 2_000_000_000
    shard.restart()


def left(shard: OneShard, *words: str) -> list[str]:
    return [word for word in words if shard.files_with(word)]


def test_what_has_expired_in_cold_turns_is_in_no_file_although_their_user_is_not_in_memory(shard: OneShard) -> None:
    brief(shard, ANN, "ann")
    go_cold(shard, ANN)
    expired(shard)
    assert left(shard, "annturn", "annfield") == ["annturn", "annfield"]
    loads = shard.shard.loads
    shard.housekeeper().perform("expire", 0)
    assert left(shard, "annturn", "annfield") == []
    assert shard.shard.loads == loads
    assert [turn.data for turn in shard.shard.turns(ANN, shard.block(ANN).sessions["a"].seqs)] == [
        b'{"order":7}',
        None,
    ]


@pytest.mark.parametrize("part", [1, 2_000])
def test_cold_turns_wait_for_a_store_that_is_away_and_nobody_else_does(
    shard: OneShard, tmp_path: Path, part: int
) -> None:
    for owner, word in ((ANN, "ann"), (BOB, "bob")):
        brief(shard, owner, word)
        go_cold(shard, owner)
    brief(shard, CAT, "cat")
    shard.fold()
    expired(shard)
    cold = tmp_path / "store" / "cold"
    cold.rename(tmp_path / "aside")
    cold.write_text("in the way of the folder")
    shard.housekeeper(due_a_part=part).perform("expire", 0)
    assert left(shard, "catturn", "catfield") == []
    assert shard.cold.trouble is not None
    cold.unlink()
    (tmp_path / "aside").rename(cold)
    shard.cold._rests_until = 0.0
    shard.housekeeper(due_a_part=part).perform("expire", 0)
    assert left(shard, "annturn", "annfield", "bobturn", "bobfield") == []


class OfOneRefused:
    """A table that does not give one owner's turns."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def turns(self, owner: str, seqs: list[int]) -> Any:
        if owner == ANN:
            raise StoreUnavailable("this one is not to be had")
        return self.inner.turns(owner, seqs)


def test_rows_that_cannot_be_dealt_with_keep_no_others(opened: Callable[..., OneShard]) -> None:
    shard = opened(table=OfOneRefused)
    brief(shard, ANN, "ann")
    brief(shard, BOB, "bob")
    shard.fold()
    expired(shard)
    keeper = shard.housekeeper(due_a_part=1)
    for _ in range(2):  # and it is said again in the next round
        with pytest.raises(StoreUnavailable, match="not to be had"):
            keeper.perform("expire", 0)
    keeper.purge_now(0)
    assert left(shard, "annturn", "bobturn", "bobfield") == ["annturn"]


def test_a_cold_turn_sent_again_is_known_although_a_field_has_gone(shard: OneShard) -> None:
    brief(shard, ANN, "ann")
    expired(shard)
    shard.housekeeper().perform("expire", 0)
    go_cold(shard, ANN)
    data = b'{"price":"annfield","order":%d}'
    again = [NewTurn("tool", id="2", data=data % order, field_lives=(FieldLife("$.price", 9),)) for order in (7, 8)]
    results = [shard.do(AppendTurns(ANN, "a", [one, NewTurn("user", "stays", id="3")])) for one in again]
    assert [[one.status for one in result] for result in results] == [
        ["duplicate", "duplicate"],
        ["rejected", "duplicate"],
    ]
    assert results[1][0].error.startswith("id_conflict")


def test_a_cold_turn_sent_again_is_known_although_the_policy_has_become_tighter(shard: OneShard) -> None:
    new = NewTurn("user", f"write to {MAIL}", id="1")
    shard.do(AppendTurns(ANN, "a", [new]))
    go_cold(shard, ANN)
    again = AppendTurns(ANN, "a", [redacted_turn(new, "strict")], partial(repeats, level="strict"))
    assert [one.status for one in shard.do(again)] == ["duplicate"]


def test_one_that_cannot_be_compared_now_is_to_be_sent_again(shard: OneShard, tmp_path: Path) -> None:
    new = NewTurn("user", f"write to {MAIL}", id="1")
    shard.do(AppendTurns(ANN, "a", [new, NewTurn("user", "plain", id="2")]))
    go_cold(shard, ANN)
    shard.restart()
    cold = tmp_path / "store" / "cold"
    cold.rename(tmp_path / "aside")
    cold.write_text("in the way of the folder")
    turns = [redacted_turn(new, "strict"), NewTurn("user", "plain", id="2"), NewTurn("user", "new", id="3")]
    results = shard.do(AppendTurns(ANN, "a", turns, partial(repeats, level="strict")))
    assert [one.status for one in results] == ["rejected", "duplicate", "stored"]
    assert results[0].error.startswith("store_unavailable")
