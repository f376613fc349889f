"""Folding, purging and erasing go on by themselves, end, and survive what stops them half-way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from serve_app.core import Owner, Summary
from serve_app.errors import Fenced, StoreUnavailable
from serve_app.records import Erasure
from serve_app.stores.lance import RecordTable
from serve_app.stores.rows import pseudonym
from serve_app.write.derived import PutSummary
from serve_app.write.erasing import EraseUser
from serve_app.write.facts import DeleteFact, PutFact
from serve_app.write.hits import PutHits
from serve_app.write.housekeeping import SEGMENTS_A_DROP, FoldOptions
from serve_app.write.operations import DeleteSession, DeleteTurn, EditTurn
from tests.write.shards import ANN, BOB, OneShard, wait_until

SECRET = "kQ7xZp2LmW9sentinel"

BUSY = FoldOptions(records=10**9, segments=10**9, age_s=1e9, round_s=0.02, purge_every_s=0)
"""Looks often, and purges as soon as something is to be purged."""


class UnwillingTable:
    """The real table, which refuses the next `purge` calls, as many as `refusals`."""

    def __init__(self, inner: RecordTable) -> None:
        self.inner = inner
        self.refusals = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def purge(self, folded_seq: int) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("not now")
        self.inner.purge(folded_seq)


def secrets_of(shard: OneShard, owner: str) -> None:
    """Something of everything, with the secret in it."""
    for n in range(3):
        shard.say_as(owner, "a", f"{n}", f"turn {n} {SECRET}")
        turn = shard.turn(owner, "a", f"{n}")
        assert turn is not None
        shard.embed(owner, turn, parts=2)
    shard.say_as(owner, "b", "1", f"{SECRET} in another session")
    shard.do(PutFact(owner, "code", SECRET, None, None))
    shard.do(PutFact(owner, "code", f"{SECRET} again", None, None))
    block = shard.block(owner)
    shard.do(PutSummary(owner, Summary("a", SECRET, 1, 5, 3, "v", "h", 0, 1, 2), block.applied_seq))


def erased(shard: OneShard, identifier: str) -> Callable[[], bool]:
    return lambda: shard.shard.erasures[identifier].state == "done"


def started_erasure(shard: OneShard) -> Erasure:
    shard.say(BOB, "a", "bob stays")
    secrets_of(shard, ANN)
    assert shard.files_with(SECRET)
    shard.fold()
    secrets_of_more = shard.say(ANN, "a", f"{SECRET} not folded")
    assert secrets_of_more[0].status == "stored"
    erasure: Erasure = shard.do(EraseUser(ANN, "acme"))
    return erasure


def assert_gone(shard: OneShard) -> None:
    assert shard.files_with(SECRET) == []
    assert [name for name in shard.files_with(ANN) if name.startswith("tables")] == []
    assert shard.block(ANN).total_turns == 0
    assert shard.contents(BOB, "a") == ["bob stays"]


def test_an_erasure_ends_by_itself_and_leaves_no_byte(shard: OneShard) -> None:
    erasure = started_erasure(shard)
    assert erasure.state == "running"
    assert erasure.counts == {"turns": 5, "vectors": 6, "facts": 1, "summaries": 1, "cold": 0, "log_records": 1}
    shard.housekeeper(BUSY)
    wait_until(erased(shard, erasure.id))
    done = shard.shard.erasures[erasure.id]
    assert done.completed_at is not None
    assert done.completed_at > done.requested_at
    assert done.counts == erasure.counts
    shard.say(BOB, "b", "the log goes on")
    assert_gone(shard)
    shard.restart()
    assert shard.shard.erasures[erasure.id] == done
    assert_gone(shard)


@pytest.mark.parametrize("got_to", ["nothing", "fold", "drop", "purge"])
def test_an_erasure_that_was_stopped_half_way_ends_after_the_restart(shard: OneShard, got_to: str) -> None:
    erasure = started_erasure(shard)
    if got_to == "fold":
        shard.fold()
    elif got_to == "drop":
        shard.housekeeper().fold_now(0)
    elif got_to == "purge":
        shard.housekeeper().purge_now(0)
    shard.restart()
    assert shard.shard.erasures[erasure.id].state == "running"
    shard.housekeeper(BUSY)
    wait_until(erased(shard, erasure.id))
    assert shard.shard.erasures[erasure.id].counts == erasure.counts
    assert_gone(shard)


def test_an_erased_user_may_write_again_while_the_erasure_runs(shard: OneShard) -> None:
    erasure = started_erasure(shard)
    shard.say_as(ANN, "a", "0", "a new life")
    shard.housekeeper(BUSY)
    wait_until(erased(shard, erasure.id))
    assert shard.files_with(SECRET) == []
    shard.restart()
    assert shard.contents(ANN, "a") == ["a new life"]
    assert shard.block(ANN).changed_seq > 0


def test_what_marks_an_erasure_does_not_name_the_user() -> None:
    assert "ann" not in pseudonym(ANN)
    assert pseudonym(ANN) != pseudonym(BOB)


@pytest.mark.parametrize(
    "forget",
    [
        lambda: DeleteTurn(ANN, "a", "1"),
        lambda: DeleteSession(ANN, "a"),
        lambda: EditTurn(ANN, "a", "1", "harmless", None),
        lambda: DeleteFact(ANN, "code"),
    ],
    ids=["turn", "session", "edit", "fact"],
)
@pytest.mark.parametrize("started_again", [False, True])
def test_what_is_deleted_or_edited_leaves_the_files_soon(
    shard: OneShard, forget: Callable[[], Any], started_again: bool
) -> None:
    shard.say(BOB, "a", "bob stays")
    shard.say_as(ANN, "a", "1", f"{SECRET} to be forgotten")
    shard.do(PutFact(ANN, "code", "kQ7xZp2LmW9fact", None, None))
    secret = "kQ7xZp2LmW9fact" if isinstance(forget(), DeleteFact) else SECRET
    shard.fold()
    assert len(shard.files_with(secret)) > 1
    shard.do(forget())
    if started_again:
        shard.housekeeper().fold_now(0)
        shard.restart()
    assert shard.shard.purge_due
    shard.housekeeper(BUSY)
    wait_until(lambda: not shard.shard.purge_due)
    wait_until(lambda: shard.files_with(secret) == [])
    assert shard.contents(BOB, "a") == ["bob stays"]
    shard.restart()
    assert not shard.shard.purge_due


def test_a_purge_that_fails_is_named_and_tried_again(opened: Callable[..., OneShard]) -> None:
    shard = opened(table=UnwillingTable)
    shard.say_as(ANN, "a", "1", SECRET)
    shard.fold()
    shard.do(DeleteTurn(ANN, "a", "1"))
    shard.table.refusals = 10**6
    keeper = shard.housekeeper(BUSY)
    wait_until(lambda: keeper.trouble() == {0: "not now"})
    assert shard.files_with(SECRET)
    shard.table.refusals = 0
    wait_until(lambda: keeper.trouble() == {})
    wait_until(lambda: shard.files_with(SECRET) == [])
    assert keeper.alive


@pytest.mark.parametrize(
    "options",
    [
        FoldOptions(records=5, round_s=0.02),
        FoldOptions(segments=5, round_s=0.02),
        FoldOptions(age_s=0.05, round_s=0.02),
    ],
)
def test_it_folds_when_one_of_its_bounds_is_reached(shard: OneShard, options: FoldOptions) -> None:
    shard.housekeeper(options)
    for n in range(8):
        shard.say(ANN, "a", f"turn {n}")
    wait_until(lambda: shard.shard.folded_seq >= 5)
    wait_until(lambda: shard.shard.log.segment_count < 8)
    shard.restart()
    assert shard.contents(ANN, "a") == [f"turn {n}" for n in range(8)]


def test_blocks_that_grow_by_appends_are_kept_to_the_bound_too(opened: Callable[..., OneShard]) -> None:
    shard = opened(turns_resident=30)
    shard.say(ANN, "a", "one")
    shard.say(BOB, "a", "one")
    shard.say(ANN, "a", *map(str, range(40)))
    shard.say(BOB, "a", *map(str, range(20)))
    shard.housekeeper(BUSY)
    wait_until(lambda: shard.shard.block_counts() == (1, 21))
    assert shard.contents(ANN, "a") == ["one", *map(str, range(40))]


def test_a_shard_whose_writer_has_ended_is_named(shard: OneShard) -> None:
    shard.say(ANN, "a", "mine")
    shard.writer.close()
    keeper = shard.housekeeper(FoldOptions(records=1, round_s=0.02))
    wait_until(lambda: "stopped" in keeper.trouble().get(0, ""))
    assert keeper.alive
    shard.restart()
    assert shard.contents(ANN, "a") == ["mine"]


def test_folds_from_two_sides_take_turns(shard: OneShard) -> None:
    keeper = shard.housekeeper(FoldOptions(records=1, round_s=0.001))
    threads = [threading.Thread(target=keeper.fold_now, args=(0,)) for _ in range(4)]
    for n in range(30):
        shard.say(ANN, "a", f"turn {n}")
        if n % 8 == 0:
            threads[n // 8].start()
    for thread in threads:
        thread.join()
    keeper.fold_now(0)
    shard.restart()
    assert shard.contents(ANN, "a") == [f"turn {n}" for n in range(30)]


def test_writer_that_lost_its_shard_leaves_the_tables_alone(tmp_path):
    """A fenced writer must not merge its tail over what the new owner has written."""
    old = OneShard(tmp_path)
    old.say(ANN, "a", "before")
    new = OneShard(tmp_path)
    new.say(ANN, "a", "after")
    with pytest.raises(Fenced):
        old.say(ANN, "a", "too late")
    keeper = old.housekeeper(BUSY)
    with pytest.raises(StoreUnavailable):
        keeper.fold_now(0)
    wait_until(lambda: "no writes" in keeper.trouble().get(0, ""))
    assert new.table.folded_seq() == 0
    new.fold()
    assert new.contents(ANN, "a") == ["before", "after"]
    for shard in (old, new):
        shard.close()


def test_many_folded_segments_go_in_bites(shard: OneShard) -> None:
    for n in range(SEGMENTS_A_DROP * 2 + 10):
        shard.say(ANN, "a", f"turn {n}")
    shard.housekeeper().fold_now(0)
    assert shard.shard.log.segment_count <= 2
    shard.restart()
    assert len(shard.contents(ANN, "a")) == SEGMENTS_A_DROP * 2 + 10


def test_no_file_names_the_user_once_the_erasure_is_done(shard: OneShard) -> None:
    """Nothing is written after it: the record of the erasure itself would be in the newest segment of the log."""
    named = Owner("acme", "wq8unmistakable").key
    shard.say_as(named, "a", "1", "words")
    shard.do(PutHits(named, {shard.block(named).sessions["a"].seqs[0]: 1}))
    shard.do(EditTurn(named, "a", "1", "other words", None))
    shard.fold()
    erasure = shard.do(EraseUser(named, "acme"))
    assert shard.files_with("wq8unmistakable")
    shard.housekeeper(BUSY)
    wait_until(erased(shard, erasure.id))
    assert shard.files_with("wq8unmistakable") == []


def test_an_erasure_waits_while_the_segments_that_name_the_user_are_held(shard: OneShard) -> None:
    erasure = started_erasure(shard)
    with shard.shard.log.hold.holding():
        shard.housekeeper(BUSY)
        wait_until(lambda: not shard.shard.purge_due)
        time.sleep(0.2)
        assert shard.shard.erasures[erasure.id].state == "running"
    wait_until(erased(shard, erasure.id))
    assert_gone(shard)
