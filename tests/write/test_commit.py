"""Group commit: batches form by themselves, a failed one changes nothing, and nobody is left waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from serve_app.core import Fact
from serve_app.errors import Fenced, NotFound, Overloaded, StorageFull, StorageTrouble, StoreUnavailable
from serve_app.ports import SegmentStore
from serve_app.records import FactPut, Record
from serve_app.stores.log import ShardLog
from serve_app.write.commit import Draft, Operation, WriterBounds
from serve_app.write.facts import PutFact
from serve_app.write.operations import WEIGHT_BYTES, AppendTurns, DeleteSession, DeleteTurn, EditTurn, NewTurn
from serve_app.write.shard import Shard
from tests.stores.unreliable import Unreliable, fails, is_full, stores_then_fails
from tests.write.shards import ANN, BOB, WAIT_S, Noting, OneShard, wait_until


class Gate:
    """A segment store whose `create` waits while the gate is shut."""

    def __init__(self, inner: SegmentStore) -> None:
        self._inner = inner
        self._open = threading.Event()
        self._open.set()
        self.waiting = threading.Semaphore(0)
        self.created = 0

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def create(self, name: str, data: bytes) -> None:
        self.waiting.release()
        assert self._open.wait(WAIT_S)
        self._inner.create(name, data)
        self.created += 1

    def read(self, name: str) -> bytes:
        return self._inner.read(name)

    def names(self) -> list[str]:
        return self._inner.names()

    def delete(self, names: Sequence[str]) -> None:
        self._inner.delete(names)

    def replace(self, name: str, data: bytes, keep_as: str) -> None:
        self._inner.replace(name, data, keep_as)


@pytest.fixture
def gated(opened: Callable[..., OneShard]) -> OneShard:
    """A shard with small bounds behind a gate."""
    return opened(segments=Gate, writer_bounds=WriterBounds(queue_weight=20, batch_weight=8, tail_records=1_000))


def in_flight(shard: OneShard, text: str = "first") -> Future[Any]:
    """Shut the gate and wait until a commit stands before it."""
    while shard.segments.waiting.acquire(blocking=False):
        pass
    shard.segments.shut()
    future = shard.writer.submit(append(ANN, "a", text))
    assert shard.segments.waiting.acquire(timeout=WAIT_S)
    return future


def append(owner: str, session: str, *texts: str) -> AppendTurns:
    return AppendTurns(owner, session, [NewTurn("user", text) for text in texts])


def test_what_arrives_during_a_commit_goes_into_the_next_one(gated: OneShard) -> None:
    created = gated.segments.created
    first = in_flight(gated)
    later = [gated.writer.submit(append(owner, "a", f"{owner} {n}")) for n in range(3) for owner in (ANN, BOB)]
    assert not first.done()
    assert gated.contents(ANN, "a") == []
    gated.segments.open()
    receipts = [future.result(WAIT_S)[1] for future in (first, *later)]
    assert gated.segments.created - created == 2
    assert [receipt.seq for receipt in receipts] == [1] + 6 * [7]
    assert gated.contents(ANN, "a") == ["first", *(f"{ANN} {n}" for n in range(3))]


def test_a_batch_ends_at_its_bound(gated: OneShard) -> None:
    created = gated.segments.created
    first = in_flight(gated)
    later = [gated.writer.submit(append(ANN, "a", "x", "y")) for _ in range(8)]
    gated.segments.open()
    for future in (first, *later):
        future.result(WAIT_S)
    assert gated.segments.created - created == 3


def test_a_full_queue_sends_callers_away_and_takes_nothing(gated: OneShard) -> None:
    first = in_flight(gated)
    taken = [gated.writer.submit(append(ANN, "a", *"0123456789")) for _ in range(2)]
    with pytest.raises(Overloaded) as refusal:
        gated.writer.submit(append(ANN, "a", "one too many"))
    assert refusal.value.retry_after_s is not None
    assert gated.writer.waiting == 20
    gated.segments.open()
    for future in (first, *taken):
        future.result(WAIT_S)
    assert gated.contents(ANN, "a") == ["first", *"0123456789", *"0123456789"]
    assert gated.say(ANN, "a", "now there is room")[0].status == "stored"


def test_commits_and_refusals_are_told_with_the_bound(opened: Callable[..., OneShard]) -> None:
    meter = Noting()
    bounds = WriterBounds(queue_weight=10, tail_records=15)
    shard = opened(segments=Gate, writer_bounds=bounds, meter=meter)
    first = in_flight(shard)
    ten = shard.writer.submit(append(ANN, "a", *"0123456789"))
    with pytest.raises(Overloaded):
        shard.writer.submit(append(ANN, "a", "one too many"))
    shard.segments.open()
    first.result(WAIT_S)
    ten.result(WAIT_S)
    shard.do(DeleteSession(ANN, "none"))
    shard.say(ANN, "a", *"01234")
    with pytest.raises(Overloaded):
        shard.say(ANN, "a", "one too many")
    assert meter.commits == [1, 10, 5], "what writes nothing is no commit"
    assert meter.bounds == ["queue_weight", "tail_records"]


def test_one_call_larger_than_the_queue_is_taken_by_an_idle_writer(gated: OneShard) -> None:
    assert len(gated.say(ANN, "a", *(str(n) for n in range(50)))) == 50


def test_a_large_turn_weighs_more(gated: OneShard) -> None:
    assert append(ANN, "a", "small", "x" * (3 * WEIGHT_BYTES)).weight == 1 + 4
    assert AppendTurns(ANN, "a", [NewTurn("tool", data=b"1" * WEIGHT_BYTES)]).weight == 2


def test_a_tail_at_its_bound_sends_callers_away(opened: Callable[..., OneShard]) -> None:
    shard = opened(writer_bounds=WriterBounds(tail_records=3))
    shard.say(ANN, "a", "1", "2", "3", "4")
    with pytest.raises(Overloaded):
        shard.say(ANN, "a", "5")
    shard.fold()
    shard.say(ANN, "a", "5")
    assert shard.contents(ANN, "a") == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(("fault", "error"), [(is_full, StorageFull), (fails, StoreUnavailable)])
def test_a_commit_that_is_refused_fails_each_of_its_callers_and_changes_nothing(
    opened: Callable[..., OneShard], fault: Any, error: type[StorageTrouble]
) -> None:
    plan: list[Any] = []
    shard = opened(segments=lambda store: Gate(Unreliable(store, plan)))
    shard.say(ANN, "a", "before")
    store = shard.segments._inner
    first = in_flight(shard)
    later = [shard.writer.submit(append(owner, "a", "lost")) for owner in (ANN, BOB, ANN)]
    store.plan += [fault, fault]
    shard.segments.open()
    for future in (first, *later):
        assert isinstance(future.exception(WAIT_S), error)
    assert shard.contents(ANN, "a") == ["before"]
    assert shard.contents(BOB, "a") == []
    assert shard.shard.pending.keys() == {1}
    store.plan.clear()
    shard.say(ANN, "a", "after")
    assert shard.contents(ANN, "a") == ["before", "after"]
    shard.restart()
    assert shard.contents(ANN, "a") == ["before", "after"]


@pytest.mark.parametrize("started_again", [False, True])
def test_a_commit_that_was_stored_although_it_failed_is_taken_up_once(
    opened: Callable[..., OneShard], started_again: bool
) -> None:
    shard = opened(segments=Unreliable)
    shard.segments.plan.append(stores_then_fails)
    with pytest.raises(StoreUnavailable):
        shard.say_as(ANN, "a", "1", "stored all the same")
    assert shard.contents(ANN, "a") == []
    if started_again:
        shard.restart()
    result = shard.say_as(ANN, "a", "1", "stored all the same")
    assert (result.status, result.seq) == ("duplicate", 1)
    assert shard.contents(ANN, "a") == ["stored all the same"]
    assert shard.shard.pending.keys() == {1}
    shard.restart()
    assert shard.contents(ANN, "a") == ["stored all the same"]


def test_a_fenced_writer_acknowledges_nothing_more(opened: Callable[..., OneShard]) -> None:
    shard = opened()
    shard.say(ANN, "a", "mine")
    ShardLog.open(shard.segments, folded_seq=0, writer_id="the new owner")
    for _ in range(2):
        with pytest.raises(Fenced):
            shard.say(ANN, "a", "too late")
    with pytest.raises(Fenced):
        shard.say_as(ANN, "a", "1", "not even with an id")
    assert shard.contents(ANN, "a") == ["mine"]
    shard.restart()
    assert shard.contents(ANN, "a") == ["mine"]


def test_an_operation_sees_what_its_owner_did_before_it(gated: OneShard) -> None:
    first = in_flight(gated)
    turn = AppendTurns(ANN, "b", [NewTurn("user", "one", id="1")])
    outcomes = [
        gated.writer.submit(operation)
        for operation in (
            turn,
            EditTurn(ANN, "b", "1", "two", None),
            AppendTurns(ANN, "b", [NewTurn("user", "two", id="1"), NewTurn("user", "three", id="1")]),
            DeleteTurn(ANN, "b", "1"),
            EditTurn(ANN, "b", "1", "gone", None),
            turn,
            DeleteSession(ANN, "b"),
            DeleteSession(ANN, "b"),
        )
    ]
    gated.segments.open()
    first.result(WAIT_S)
    assert outcomes[1].result(WAIT_S)[0].content == "two"
    assert [result.status for result in outcomes[2].result(WAIT_S)[0]] == ["duplicate", "rejected"]
    assert isinstance(outcomes[4].exception(WAIT_S), NotFound)
    assert outcomes[5].result(WAIT_S)[0][0].status == "stored"
    assert [outcome.result(WAIT_S)[0] for outcome in outcomes[6:]] == [1, 0]


@pytest.mark.parametrize("in_one_batch", [False, True])
def test_fifty_at_once_store_one_turn(opened: Callable[..., OneShard], in_one_batch: bool) -> None:
    shard = opened(segments=Gate)
    first = in_flight(shard)
    start = threading.Barrier(50)
    results: list[Any] = []

    def send() -> None:
        start.wait(WAIT_S)
        results.append(shard.say_as(ANN, "b", "1", "the same for all"))

    threads = [threading.Thread(target=send) for _ in range(50)]
    if not in_one_batch:
        shard.segments.open()
    for thread in threads:
        thread.start()
    wait_until(lambda: not in_one_batch or shard.writer.waiting == 50)
    shard.segments.open()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(result.status for result in results) == 49 * ["duplicate"] + ["stored"]
    assert {result.seq for result in results} == {2}
    assert shard.contents(ANN, "b") == ["the same for all"]
    assert first.done()


def test_a_caller_that_goes_away_stops_nobody(gated: OneShard) -> None:
    first = in_flight(gated)
    gone, stays = gated.writer.submit(append(ANN, "a", "gone")), gated.writer.submit(append(ANN, "a", "stays"))
    assert gone.cancel()
    assert not first.cancel(), "what is being written can no longer be taken back"
    gated.segments.open()
    stays.result(WAIT_S)
    assert gated.contents(ANN, "a") == ["first", "stays"]
    assert gated.say(ANN, "a", "goes on")[0].status == "stored"


def test_what_cannot_be_stored_is_refused_and_the_others_go_on(gated: OneShard) -> None:
    first = in_flight(gated)
    endless = NewTurn("user", "fine", metadata={"n": 10**30})
    refused = gated.writer.submit(AppendTurns(ANN, "a", [NewTurn("user", "with it", id="1"), endless]))
    others = gated.writer.submit(AppendTurns(ANN, "a", [NewTurn("user", "another", id="1")]))
    gated.segments.open()
    assert isinstance(refused.exception(WAIT_S), OverflowError)
    assert others.result(WAIT_S)[0][0].status == "stored"
    first.result(WAIT_S)
    assert gated.contents(ANN, "a") == ["first", "another"]


class HalfDone(Operation):
    """Drafts a fact, then finds that it cannot go on."""

    owner, exclusive = ANN, False

    def prepare(self, draft: Draft) -> None:
        draft.add(FactPut(ANN, Fact("diet", "half done", draft.seq(), 0)))
        raise StoreUnavailable("a read in the middle failed")


def test_an_operation_that_fails_half_way_leaves_nothing_behind(gated: OneShard) -> None:
    first = in_flight(gated)
    half, whole = gated.writer.submit(HalfDone()), gated.writer.submit(append(ANN, "a", "whole"))
    gated.segments.open()
    assert isinstance(half.exception(WAIT_S), StoreUnavailable)
    for future in (first, whole):
        future.result(WAIT_S)
    assert gated.block(ANN).facts == {}
    gated.restart()
    assert gated.block(ANN).facts == {}
    assert gated.contents(ANN, "a") == ["first", "whole"]


def test_what_waits_is_committed_before_the_writer_ends(gated: OneShard) -> None:
    first = in_flight(gated)
    last = gated.writer.submit(PutFact(ANN, "diet", "vegan", None, None))
    threading.Timer(0.1, gated.segments.open).start()
    gated.writer.close()
    assert first.done()
    assert last.done()
    with pytest.raises(StoreUnavailable):
        gated.say(ANN, "a", "after the end")
    gated.restart()
    assert gated.block(ANN).fact_at("diet", None) is not None


class CountingLoop(asyncio.SelectorEventLoop):
    """Notes how often another thread wakes it."""

    woken = 0

    def call_soon_threadsafe(self, *arguments: Any, **options: Any) -> asyncio.Handle:
        self.woken += 1
        return super().call_soon_threadsafe(*arguments, **options)


def test_coroutines_are_answered_together_and_each_with_its_own(gated: OneShard) -> None:
    async def ask_together() -> tuple[list[Any], int]:
        asked = [gated.writer.ask(append(ANN, "b", f"turn {n}")) for n in range(5)]
        asked.append(gated.writer.ask(DeleteTurn(BOB, "b", "not there")))
        gone = gated.writer.ask(append(ANN, "b", "gone"))
        gone.cancel()
        threading.Timer(0.05, gated.segments.open).start()
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), WAIT_S)
        return answers, loop.woken

    first, loop = in_flight(gated), CountingLoop()
    try:
        answers, woken = loop.run_until_complete(ask_together())
    finally:
        loop.close()
    assert [receipt.seq for _, receipt in answers[:5]] == 5 * [6]
    assert [result[0].seq for result, _ in answers[:5]] == [2, 3, 4, 5, 6]
    assert isinstance(answers[5], NotFound)
    assert woken == 1
    assert gated.contents(ANN, "b") == [f"turn {n}" for n in range(5)]
    assert first.result(WAIT_S)[1].seq == 1


@pytest.mark.parametrize("fault", [is_full, None])
def test_a_coroutine_hears_of_what_failed(opened: Callable[..., OneShard], fault: Any) -> None:
    shard = opened(segments=Unreliable)
    shard.segments.plan += [fault] if fault else []

    async def ask() -> Any:
        return await asyncio.wait_for(shard.writer.ask(append(ANN, "a", "one")), WAIT_S)

    if fault is None:
        shard.writer.close()
    with pytest.raises(StorageFull if fault else StoreUnavailable):
        asyncio.run(ask())
    assert shard.contents(ANN, "a") == []


def test_a_loop_that_has_ended_stops_nobody(gated: OneShard) -> None:
    async def leave() -> None:
        gated.writer.ask(append(ANN, "a", "nobody waits for it"))

    first = in_flight(gated)
    asyncio.run(leave())
    stays = gated.writer.submit(append(ANN, "a", "stays"))
    gated.segments.open()
    for future in (first, stays):
        future.result(WAIT_S)
    assert gated.contents(ANN, "a") == ["first", "nobody waits for it", "stays"]
    assert gated.say(ANN, "a", "goes on")[0].status == "stored"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_ends_the_writer_and_leaves_nobody_waiting(opened: Callable[..., OneShard]) -> None:
    def defect(shard: Shard, records: Sequence[Record]) -> None:
        raise RuntimeError("a defect")

    shard = opened(segments=Gate, committed=defect)
    first = in_flight(shard)
    second = shard.writer.submit(append(ANN, "a", "second"))
    shard.segments.open()
    assert first.result(WAIT_S)[1].seq == 1
    assert isinstance(second.exception(WAIT_S), StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        shard.say(ANN, "a", "third")
    shard.writer.close()
    assert not shard.writer.alive
