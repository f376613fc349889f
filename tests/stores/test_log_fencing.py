"""Of two writers one goes on, and an answer that was lost is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.errors import Fenced, NameTaken, StorageFull, StoreUnavailable
from serve_app.ports import SegmentStore
from serve_app.stores.log import TAKEOVER_TRIES_MAX, Entry
from serve_app.stores.segments_disk import DiskSegments
from tests.stores.logs import add, group, held, memory, opened
from tests.stores.unreliable import Fault, Unreliable, fails, is_full, retries_itself, stores_then_fails, works


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SegmentStore:
    return DiskSegments(tmp_path) if request.param == "disk" else memory()


def test_the_older_writer_stops_for_ever(store: SegmentStore) -> None:
    old, _ = opened(store, writer_id="a")
    wrote = add(old, b"by the old one")
    new, recovery = opened(store, writer_id="b")
    assert list(recovery.entries) == wrote
    with pytest.raises(Fenced):
        add(old, b"too late")
    wrote += add(new, b"by the new one")
    for attempt in (lambda: add(old, b"too late"), old.settle):
        with pytest.raises(Fenced):
            attempt()
    assert (old.drop_through(100), old.writable) == (0, False)
    assert held(store) == tuple(wrote)


def test_a_writer_that_slept_through_a_takeover_and_its_fold_is_fenced(store: SegmentStore) -> None:
    """All data that the new owner wrote is gone, and with it the names that the sleeper could have met."""
    sleeper, _ = opened(store, writer_id="sleeper")
    add(sleeper, b"before the sleep")
    folded_seq = 0
    for _ in range(3):
        log, _ = opened(store, folded_seq, writer_id="new")
        add(log, b"a")
        add(log, b"b")
        folded_seq = log.last_seq
        log.drop_through(folded_seq)
    with pytest.raises(Fenced):
        add(sleeper, b"too late")


def test_a_fence_that_came_too_late_does_not_stand_in_for_the_one_that_counts() -> None:
    """Two fences of one epoch: one made at a number whose data a new owner has folded and dropped, and the owner's."""
    inner = memory()
    old, _ = opened(inner, writer_id="old")
    add(old, b"one")

    def is_overtaken(target: SegmentStore, name: str, data: bytes) -> None:
        add(old, b"two")
        owner, recovery = opened(target, writer_id="owner")
        owner.drop_through(recovery.last_seq)
        target.create(name, data)

    late, _ = opened(Unreliable(inner, [is_overtaken]), writer_id="late")
    next_owner, recovery = opened(inner, folded_seq=2, writer_id="next")
    next_owner.drop_through(recovery.last_seq)
    with pytest.raises(Fenced):
        add(late, b"too late")


def test_a_commit_that_comes_in_between_reading_and_taking_over_is_not_lost() -> None:
    inner = memory()
    old, _ = opened(inner, writer_id="old")
    wrote: list[Entry] = []

    def late_commit(target: SegmentStore, name: str, data: bytes) -> None:
        wrote.extend(add(old, b"just in time"))
        target.create(name, data)

    log, recovery = opened(Unreliable(inner, [late_commit]), writer_id="new")
    assert list(recovery.entries) == wrote
    wrote += add(log, b"next")
    assert held(inner) == tuple(wrote)


def test_a_takeover_gives_up_after_its_bound() -> None:
    inner = memory()

    def rival(target: SegmentStore, name: str, data: bytes) -> None:
        opened(target)
        target.create(name, data)

    with pytest.raises(StoreUnavailable, match="other writers"):
        opened(Unreliable(inner, [rival] * TAKEOVER_TRIES_MAX))
    opened(Unreliable(inner, [rival] * (TAKEOVER_TRIES_MAX - 1)))


def test_a_put_that_met_its_own_first_try_succeeded() -> None:
    store = Unreliable(memory(), [works, retries_itself])
    log, _ = opened(store)
    wrote = add(log, b"stored twice") + add(log, b"next")
    assert held(store) == tuple(wrote)


def test_a_batch_that_was_stored_although_it_failed_is_handed_over() -> None:
    store = Unreliable(memory(), [works, stores_then_fails])
    log, _ = opened(store)
    doubtful = group(log, b"perhaps", b"stored")
    with pytest.raises(StoreUnavailable):
        log.append(doubtful)
    assert log.unsettled
    assert log.next_seq == doubtful[-1].seq + 1
    with pytest.raises(StoreUnavailable, match="not settled"):
        add(log, b"before it is known")
    assert list(log.settle()) == doubtful
    assert not log.unsettled
    assert log.settle() == ()
    wrote = doubtful + add(log, b"next")
    assert held(store) == tuple(wrote)


def test_a_batch_that_was_not_stored_never_will_be() -> None:
    inner = memory()
    landed: list[tuple[str, bytes]] = []

    def lingers(target: SegmentStore, name: str, data: bytes) -> None:
        landed.append((name, data))
        raise StoreUnavailable("still on its way")

    log, _ = opened(Unreliable(inner, [works, lingers]))
    with pytest.raises(StoreUnavailable):
        add(log, b"lost", b"lost too")
    assert log.settle() == ()
    assert log.next_seq == 3, "its seqs are not given out again"
    with pytest.raises(NameTaken):
        inner.create(*landed[0])
    wrote = add(log, b"next")
    assert held(inner) == tuple(wrote)


@pytest.mark.parametrize("second", [fails, stores_then_fails, retries_itself])
@pytest.mark.parametrize("first", [fails, stores_then_fails])
def test_settling_may_fail_as_often_as_it_likes(first: Fault, second: Fault) -> None:
    store = Unreliable(memory(), [works, first, second, second, second])
    log, _ = opened(store)
    doubtful = group(log, b"doubtful")
    with pytest.raises(StoreUnavailable):
        log.append(doubtful)
    settled: tuple[Entry, ...] | None = None
    while settled is None:
        try:
            settled = log.settle()
        except StoreUnavailable:
            assert log.unsettled
    store.plan.clear()
    assert list(settled) == (doubtful if first is stores_then_fails else [])
    wrote = [*settled, *add(log, b"next")]
    assert held(store) == tuple(wrote)


def test_a_batch_that_landed_after_its_place_was_folded_is_not_handed_over() -> None:
    inner = memory()
    on_its_way: list[tuple[str, bytes]] = []

    def lingers(target: SegmentStore, name: str, data: bytes) -> None:
        on_its_way.append((name, data))
        raise StoreUnavailable("still on its way")

    sleeper, _ = opened(Unreliable(inner, [works, lingers, stores_then_fails]), writer_id="sleeper")
    for attempt in (lambda: add(sleeper, b"never stored in time"), sleeper.settle):
        with pytest.raises(StoreUnavailable):
            attempt()
    owner, recovery = opened(inner, writer_id="owner")
    assert recovery.entries == ()
    owner.drop_through(recovery.last_seq)
    inner.create(*on_its_way[0])
    with pytest.raises(Fenced):
        sleeper.settle()


def test_an_unsettled_writer_that_lost_the_shard_is_fenced() -> None:
    store = Unreliable(memory(), [works, fails])
    old, _ = opened(store, writer_id="old")
    with pytest.raises(StoreUnavailable):
        add(old, b"lost")
    opened(store, writer_id="new")
    for _ in range(2):
        with pytest.raises(Fenced):
            old.settle()


def test_a_full_store_is_read_at_once_and_taken_over_when_there_is_room(store: SegmentStore) -> None:
    old, _ = opened(store, writer_id="old")
    wrote = add(old, b"before it was full")
    full = Unreliable(store, [is_full, is_full, is_full])
    log, recovery = opened(full, writer_id="new")
    assert list(recovery.entries) == wrote
    assert (log.writable, log.doubt) == (False, "log: storage_full: this shard takes no writes yet")
    assert log.drop_through(100) == 0
    with pytest.raises(StoreUnavailable, match="not taken over"):
        add(log, b"without settling")
    for _ in range(2):
        with pytest.raises(StorageFull):
            log.settle()
    assert log.settle() == ()
    assert (log.writable, log.doubt) == (True, None)
    wrote += add(log, b"room again")
    with pytest.raises(Fenced):
        add(old, b"too late")
    assert held(store) == tuple(wrote)


def test_one_that_waits_for_room_stops_where_another_was_there_meanwhile(store: SegmentStore) -> None:
    late, _ = opened(Unreliable(store, [is_full]), writer_id="late")
    owner, _ = opened(store, writer_id="owner")
    for _ in range(2):
        with pytest.raises(Fenced):
            late.settle()
    wrote = add(owner, b"mine")
    assert held(store) == tuple(wrote)


@pytest.mark.parametrize("lost", [fails, stores_then_fails])
def test_a_late_takeover_whose_answer_was_lost_is_made_again(store: SegmentStore, lost: Fault) -> None:
    log, _ = opened(Unreliable(store, [is_full, lost, lost]), writer_id="late")
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            log.settle()
        assert not log.writable
    assert log.settle() == ()
    wrote = add(log, b"mine")
    assert held(store) == tuple(wrote)


def test_a_torn_tail_is_cut_when_there_is_room(tmp_path: Path) -> None:
    store = DiskSegments(tmp_path)
    old, _ = opened(store)
    kept = add(old, b"kept")
    add(old, b"torn")
    newest = sorted(tmp_path.glob("*.seg"))[-1]
    newest.write_bytes(newest.read_bytes()[:-2])
    log, recovery = opened(Unreliable(store, [is_full]))
    assert [damage.kind for damage in recovery.damages] == ["torn_tail"]
    assert log.settle() == ()
    kept += add(log, b"after")
    assert held(store) == tuple(kept)


def test_a_full_store_takes_nothing_and_writes_go_on_after_it() -> None:
    store = Unreliable(memory(), [works, is_full, is_full])
    log, _ = opened(store)
    for _ in range(2):
        with pytest.raises(StorageFull):
            add(log, b"no room")
        assert not log.unsettled
    wrote = add(log, b"room again")
    assert held(store) == tuple(wrote)
