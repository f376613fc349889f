"""The shard log by itself: what was acknowledged comes back once, in order, and goes when it is folded."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import StoreUnavailable
from serve_app.ports import SegmentStore
from serve_app.stores.log import FENCES_KEPT, Entry, Recovery
from serve_app.stores.segment import SEQ_SPAN_MAX, segment_name
from serve_app.stores.segments_disk import DiskCalls, DiskSegments
from tests.stores.logs import add, group, held, memory, opened
from tests.stores.unreliable import Unreliable


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SegmentStore:
    return DiskSegments(tmp_path) if request.param == "disk" else memory()


def test_an_empty_log_starts_at_one(store: SegmentStore) -> None:
    log, recovery = opened(store)
    assert recovery == Recovery((), (), 1, 0)
    assert (log.epoch, log.last_seq, log.next_seq, log.segment_count) == (1, 0, 1, 1)


def test_groups_come_back_once_in_order_and_epochs_rise(store: SegmentStore) -> None:
    log, _ = opened(store)
    wrote = [entry for n in range(5) for entry in add(log, *(f"{n}-{k}".encode() for k in range(n + 1)))]
    assert log.last_seq == 15
    assert log.bytes == sum(len(store.read(name)) for name in store.names())
    again, recovery = opened(store)
    assert recovery == Recovery(tuple(wrote), (), 2, 15)
    assert (again.next_seq, again.segment_count) == (16, 7)
    assert again.bytes == sum(len(store.read(name)) for name in store.names())


def test_only_what_is_not_folded_is_given_back(store: SegmentStore) -> None:
    log, _ = opened(store)
    wrote = add(log, b"1", b"2", b"3") + add(log, b"4", b"5")
    assert held(store, folded_seq=2) == tuple(wrote[2:])
    assert held(store, folded_seq=5) == ()


def test_seqs_may_have_gaps_and_go_on_behind_the_fold(store: SegmentStore) -> None:
    log, _ = opened(store, folded_seq=100)
    assert log.next_seq == 101
    log.append([Entry(150, b"a"), Entry(170, b"b")])
    assert log.next_seq == 171
    assert held(store, folded_seq=100) == (Entry(150, b"a"), Entry(170, b"b"))


@pytest.mark.parametrize(
    "entries", [[], [Entry(3, b"")], [Entry(5, b""), Entry(5, b"")], [Entry(4 + SEQ_SPAN_MAX, b"")]]
)
def test_wrong_seqs_are_refused_and_leave_the_log_as_it_was(entries: list[Entry]) -> None:
    store = memory()
    log, _ = opened(store)
    wrote = add(log, b"1", b"2", b"3")
    with pytest.raises(ValueError):
        log.append(entries)
    wrote += add(log, b"4")
    assert held(store) == tuple(wrote)


def test_a_folded_segment_is_dropped_and_the_newest_and_the_fences_stay(store: SegmentStore) -> None:
    log, _ = opened(store)
    for n in range(4):
        add(log, str(n).encode())
    assert log.drop_through(2) == 2
    assert store.names() == [segment_name(n) for n in (1, 4, 5)]
    assert log.drop_through(4) == 1
    assert store.names() == [segment_name(n) for n in (1, 5)]
    assert log.drop_through(4) == 0
    assert log.segment_count == 2
    again, recovery = opened(store, folded_seq=4)
    assert (recovery.entries, recovery.damages, again.next_seq) == ((), (), 5)


def test_segments_go_oldest_first() -> None:
    store = Unreliable(memory())
    log, _ = opened(store)
    for n in range(5):
        add(log, str(n).encode())
    log.drop_through(5)
    assert store.deleted == [segment_name(n) for n in (2, 3, 4, 5)]


def test_fences_are_bounded() -> None:
    store = memory()
    for _ in range(FENCES_KEPT + 5):
        log, _ = opened(store)
    assert log.drop_through(0) == 5
    assert len(store.names()) == FENCES_KEPT
    assert opened(store)[1].damages == ()


def test_a_failed_fsync_acknowledges_nothing_and_the_log_goes_on(tmp_path: Path) -> None:
    broken: list[int] = []

    def fsync(descriptor: int) -> None:
        if broken:
            raise OSError(errno.EIO, "broken")
        os.fsync(descriptor)

    log, _ = opened(DiskSegments(tmp_path, DiskCalls(fsync=fsync)))
    wrote = add(log, b"before")
    broken.append(1)
    for attempt in (lambda: add(log, b"while it is broken"), log.settle, log.settle):
        with pytest.raises(StoreUnavailable):
            attempt()
    broken.clear()
    assert log.settle() == ()
    wrote += add(log, b"after")
    assert held(DiskSegments(tmp_path)) == tuple(wrote)


@pytest.mark.parametrize("step", range(5))
def test_a_process_that_dies_in_an_append_leaves_the_whole_group_or_nothing(tmp_path: Path, step: int) -> None:
    left: list[int] = []  # a step for each call that is still made; empty while all is well

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            if left and left.pop() == 0:
                left.append(0)
                raise KeyboardInterrupt
            return call(*arguments)

        return counted

    calls = DiskCalls(dying(os.write), dying(os.fsync), dying(os.link), dying(os.replace), dying(os.unlink))
    log, _ = opened(DiskSegments(tmp_path, calls))
    wrote = add(log, b"acknowledged")
    left.extend(range(step + 1))
    group_of_two = group(log, b"in", b"doubt")
    with pytest.raises(KeyboardInterrupt):
        log.append(group_of_two)
    entries = list(held(DiskSegments(tmp_path)))
    assert entries == wrote + (group_of_two if step > 2 else [])
