"""Blocks come, go and come back equal; what is not in memory is read from tail or table; races change nothing."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from serve_app.core import Owner
from serve_app.stores.lance import RecordTable
from serve_app.stores.rows import StoredOwner
from serve_app.stores.terms import index_terms
from serve_app.stores.wanted import ANY
from serve_app.write.erasing import EraseUser
from serve_app.write.fold import FoldPlan
from serve_app.write.operations import DeleteSession
from serve_app.write.shard import LOAD_ATTEMPTS, LOADS_A_CHECK
from tests.write.shards import ANN, BOB, CAT, EMBEDDER, VERSION, WAIT_S, OneShard, told, wait_until

WORDS = ["amber", "birch", "cedar", "dahlia", "elder", "fern", "gorse", "hazel", "iris", "juniper"]


def texts(n: int) -> list[str]:
    return [f"{WORDS[at % 10]} number{at}" for at in range(n)]


def embed_all(shard: OneShard, owner: str, session: str, parts: int = 1) -> None:
    shard.embed(owner, *shard.shard.turns(owner, shard.block(owner).sessions[session].seqs), parts=parts)


# ---- owners beyond memory


@pytest.mark.parametrize("folded", [False, True], ids=["from the tail", "from the table"])
def test_turns_that_are_not_resident_are_read_all_the_same(opened: Callable[..., OneShard], folded: bool) -> None:
    shard = opened(owner_turns_resident=8)
    shard.say(ANN, "a", *texts(40))
    shard.say_as(ANN, "a", "last", "the newest")
    if folded:
        shard.fold()
    block = shard.block(ANN)
    assert len(block.turns) <= 9
    assert block.total_turns == 41
    assert shard.contents(ANN, "a") == [*texts(40), "the newest"]
    page = shard.shard.turns(ANN, [14, 12, 13, 41, 12])
    assert [turn.content for turn in page] == [*texts(40)[11:14], "the newest"]
    first = shard.shard.turns(ANN, [1])[0]
    assert shard.turn(ANN, "a", first.id) == first
    assert shard.shard.turns(BOB, [1, 41]) == []
    assert shard.say_as(ANN, "a", first.id, first.content).status == "duplicate"
    assert shard.say_as(ANN, "a", first.id, "something else").status == "rejected"


def test_turns_that_are_not_resident_are_found_by_word_and_vector(opened: Callable[..., OneShard]) -> None:
    shard = opened(owner_turns_resident=8)
    shard.say(ANN, "a", "a zebra crossed the road", *texts(40))
    embed_all(shard, ANN, "a", parts=2)
    shard.fold()
    turn = shard.shard.turns(ANN, [1])[0]
    (nearest, inner), *_ = shard.table.nearest(
        ANN, EMBEDDER.embed(["a zebra crossed the road further"])[0], 3, ANY, VERSION.name
    )
    assert (nearest, inner) == (turn, pytest.approx(1, abs=1e-3))
    assert [found for found, _ in shard.table.matching(ANN, index_terms("zebra"), 3)] == [turn]


def test_an_owner_beyond_memory_comes_back_with_the_newest_turns_and_all_ids(opened: Callable[..., OneShard]) -> None:
    shard = opened(owner_turns_resident=8)
    shard.say(ANN, "a", *texts(30))
    embed_all(shard, ANN, "a", parts=3)
    shard.fold()
    shard.restart()
    block = shard.block(ANN)
    assert list(block.turns) == list(range(23, 31))
    assert block.sessions["a"].seqs == list(range(1, 31))
    assert block.vectors.came.keys() == block.turns.keys()
    assert shard.hot[VERSION.name].count(ANN) == 3 * 8


@pytest.mark.parametrize("folded", [False, True], ids=["from the tail", "from the table"])
def test_a_restart_does_not_change_which_turns_are_resident(opened: Callable[..., OneShard], folded: bool) -> None:
    shard = opened(owner_turns_resident=32)
    shard.say(ANN, "a", *texts(30))
    for n in range(40):
        shard.say(ANN, "ab"[n % 2], f"one more {n}")
        if n % 5 == 4:
            before = list(shard.block(ANN).turns)
            if folded and n > 10:
                shard.fold()
            shard.restart()
            assert list(shard.block(ANN).turns) == before
    assert len(before) < 70


# ---- coming and going


def test_the_least_recently_used_leave_and_come_back_equal(opened: Callable[..., OneShard]) -> None:
    shard = opened(turns_resident=25)
    owners = [Owner("acme", f"user {n}").key for n in range(6)]
    for owner in owners:
        shard.say(owner, "a", *texts(6))
        embed_all(shard, owner, "a", parts=2)
    shard.fold()
    before = {owner: told(shard.block(owner)) for owner in owners}
    shard.shard.evict()
    assert shard.shard.block_counts() == (3, 18)
    assert [shard.hot[VERSION.name].count(owner) for owner in owners] == [0, 0, 0, 12, 12, 12]
    loads = shard.shard.loads
    assert {owner: told(shard.block(owner)) for owner in owners} == before
    assert shard.shard.loads == loads + 3


def test_loading_alone_keeps_to_the_bound(opened: Callable[..., OneShard]) -> None:
    shard = opened(turns_resident=30)
    owners = [Owner("acme", f"user {n}").key for n in range(3 * LOADS_A_CHECK)]
    for owner in owners:
        shard.say(owner, "a", "one", "two")
    assert shard.shard.block_counts()[0] < 10 + LOADS_A_CHECK


def test_owners_that_hold_nothing_do_not_pile_up(opened: Callable[..., OneShard]) -> None:
    shard = opened(turns_resident=20)
    for n in range(100):
        shard.block(Owner("acme", f"nobody {n}").key)
    shard.shard.evict()
    assert shard.shard.block_counts()[0] <= 20


def test_a_reader_of_a_block_that_has_left_meets_no_error(opened: Callable[..., OneShard]) -> None:
    shard = opened(turns_resident=1)
    shard.say(ANN, "a", "amber", "birch")
    left = shard.block(ANN)
    shard.block(BOB)
    shard.shard.evict()
    assert shard.block(ANN) is not left
    embed_all(shard, ANN, "a")
    query = EMBEDDER.embed(["amber"])[0]
    for as_of in (None, 1):
        assert len(left.dense(VERSION.name, query, left.columns.until(as_of), as_of)) == left.columns.until(as_of)


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_record_that_meets_its_block_leaving_is_not_lost_and_leaves_no_vectors_behind(
    opened: Callable[..., OneShard], comes_back: bool
) -> None:
    shard = opened(turns_resident=1)
    shard.say(ANN, "a", "amber")
    turn = shard.shard.turns(ANN, [1])[0]
    left = shard.block(ANN)
    with left.lock:  # the writer has noted the record and stands before the block
        writing = threading.Thread(target=shard.embed, args=(ANN, turn))
        writing.start()
        wait_until(lambda: shard.shard.tail_length() == 2)
        shard.block(BOB)
        shard.shard.evict()
        back = shard.block(ANN) if comes_back else None
    writing.join(WAIT_S)
    assert shard.hot[VERSION.name].count(ANN) == int(comes_back)
    assert shard.block(ANN).vectors.came.keys() == {1}
    assert back in (None, shard.block(ANN))


def test_an_erasure_empties_the_mapping_that_others_wait_on(shard: OneShard) -> None:
    shard.say(ANN, "a", "amber")
    shard.say(BOB, "a", "birch")
    pending = shard.shard.pending
    shard.do(EraseUser(ANN, "acme"))
    assert pending.keys() == {2}
    shard.do(DeleteSession(BOB, "a"))
    assert pending == {}


# ---- loads and folds


class OvertakenTable:
    """The real table; `meanwhile` runs after the named reads (once), or always after one, as another thread might."""

    def __init__(self, inner: RecordTable) -> None:
        self.inner = inner
        self.after: list[str] = []
        self.always = ""
        self.meanwhile: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def version(self) -> int:
        return self._read("version", self.inner.version())

    def load(self, owner: str, resident: int) -> StoredOwner:
        return self._read("load", self.inner.load(owner, resident))

    def _read(self, name: str, answer: Any) -> Any:
        if name == self.always:
            self.meanwhile()
        if self.after and name == self.after[0]:
            del self.after[0]
            if not self.after:
                self.meanwhile()
        return answer


def fold_whole(shard: OneShard) -> None:
    shard.fold()


def fold_half(shard: OneShard) -> None:
    """As a load sees it that comes between the merge and its being noted."""
    plan, tail = FoldPlan((VERSION,)), shard.shard.tail()
    for record in tail:
        plan.take(record)
    plan.merge_into(shard.table, shard.cold, tail[-1].seq)


@pytest.mark.parametrize("fold", [fold_whole, fold_half])
@pytest.mark.parametrize("after", [["version"], ["load"], ["version", "version"]], ids=["start", "rows", "end"])
def test_a_load_that_a_fold_overtakes_still_gives_everything_once(
    opened: Callable[..., OneShard], after: list[str], fold: Callable[[OneShard], None]
) -> None:
    shard = opened(table=OvertakenTable)
    shard.say(BOB, "a", "loaded before")
    shard.say(ANN, "a", *texts(5))
    shard.fold()
    shard.say(ANN, "a", *texts(5))
    embed_all(shard, ANN, "a")
    expected = told(shard.block(ANN))
    shard.restart()
    shard.block(BOB)

    def meanwhile() -> None:
        shard.say(BOB, "a", "more")
        fold(shard)

    shard.table.after, shard.table.meanwhile = list(after), meanwhile
    assert told(shard.block(ANN)) == expected
    assert shard.table.after == []


def test_a_load_that_folds_overtake_again_and_again_waits_for_its_turn(opened: Callable[..., OneShard]) -> None:
    """After some tries it is made between two folds, which wait for it."""
    shard = opened(table=OvertakenTable)
    shard.say(ANN, "a", "mine")
    shard.fold()
    shard.say(BOB, "a", "loaded before")
    folds: list[threading.Thread] = []

    def fold_beside() -> None:
        shard.say(BOB, "a", "more")
        folds.append(threading.Thread(target=shard.fold))
        folds[-1].start()
        folds[-1].join(0.3)

    shard.restart()
    shard.block(BOB)
    shard.table.always, shard.table.meanwhile = "load", fold_beside
    assert shard.contents(ANN, "a") == ["mine"]
    assert shard.shard.loads >= LOAD_ATTEMPTS
    shard.table.always = ""
    for thread in folds:
        thread.join()
    shard.restart()
    assert shard.contents(ANN, "a") == ["mine"]
    assert shard.contents(BOB, "a") == ["loaded before", *["more"] * len(folds)]


def test_everything_at_once(opened: Callable[..., OneShard]) -> None:
    """Writes, folds, purges, evictions and reads side by side: no error, and in the end all of it is there."""
    shard = opened(turns_resident=30, owner_turns_resident=8)
    keeper = shard.housekeeper()
    owners = [ANN, BOB, CAT]
    said: dict[str, list[str]] = {owner: [] for owner in owners}
    errors: list[BaseException] = []
    ends = time.monotonic() + 2.5

    def repeat(act: Callable[[int], None]) -> threading.Thread:
        def run() -> None:
            n = 0
            while time.monotonic() < ends and not errors:
                try:
                    act(n)
                except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                    errors.append(error)
                n += 1

        return threading.Thread(target=run)

    def write(owner: str) -> Callable[[int], None]:
        def act(n: int) -> None:
            shard.say(owner, f"s{n % 5}", f"{WORDS[n % 10]} {n}")
            said[owner].append(f"{WORDS[n % 10]} {n}")
            if n % 10 == 9:
                shard.embed(owner, *shard.shard.turns(owner, shard.block(owner).sessions["s4"].seqs[-2:]))

        return act

    def read(n: int) -> None:
        owner = owners[n % 3]
        known = len(said[owner])
        block = shard.block(owner)
        with block.lock:
            seqs = sorted(seq for index in block.sessions.values() for seq in index.seqs)
        turns = shard.shard.turns(owner, seqs)
        assert len(turns) == len(seqs) >= known
        query = EMBEDDER.embed([WORDS[n % 10]])[0]
        with block.lock:
            block.dense(VERSION.name, query, block.columns.until(None), n % 50)
            block.columns.lexical.scores([WORDS[n % 10]])
        shard.table.nearest(owner, query, 5, ANY, VERSION.name)
        shard.table.matching(owner, [WORDS[n % 10]], 5)

    def maintain(n: int) -> None:
        keeper.purge_now(0) if n % 4 == 3 else keeper.fold_now(0)
        time.sleep(0.05)

    threads = [*(repeat(write(owner)) for owner in owners), repeat(read), repeat(read), repeat(maintain)]
    threads.append(repeat(lambda n: (shard.shard.evict(), time.sleep(0.005))[0]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert errors == []
    for _ in range(2):
        for owner in owners:
            contents = [turn for n in range(5) for turn in shard.contents(owner, f"s{n}")]
            assert sorted(contents) == sorted(said[owner])
            rebuilt, _ = shard.rebuilt(owner)
            assert rebuilt.sessions == shard.block(owner).sessions
        shard.restart()


# ---- cost


def test_an_append_costs_the_same_in_a_long_session(shard: OneShard) -> None:
    for start in range(0, 5_000, 1_000):
        shard.say(ANN, "long", *texts(5_000)[start : start + 1_000])
    shard.say(BOB, "short", *texts(100))
    costs: dict[str, list[float]] = {ANN: [], BOB: []}
    for n in range(200):
        for owner, session in ((ANN, "long"), (BOB, "short")):
            started = time.process_time()
            shard.say_as(owner, session, f"id {n}", f"one more {n}")
            costs[owner].append(time.process_time() - started)
    assert statistics.median(costs[ANN]) <= 2 * statistics.median(costs[BOB])
