"""A follower whose writer hands it new segments: at once, and never anything but what the store holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from serve_app.errors import MemstrataError, NameTaken, NotFound, StoreUnavailable
from serve_app.stores.relay import STORE_LOOK_S, RelayingSegments, Segment, SegmentRing
from serve_app.stores.segment import segment_name
from serve_app.stores.segments_object import ObjectSegments
from serve_app.write.follow import FollowOptions
from tests.stores.logs import add, memory, opened
from tests.write.followers import QUICK, Followed
from tests.write.shards import ANN, OneShard, told, wait_until


class Way:
    """To the writer's ring; `state` says how it fails."""

    def __init__(self, ring: SegmentRing) -> None:
        self.ring = ring
        self.state = ""
        self.asked = 0
        self.told: Callable[[int], None] = lambda after: None

    def segments(self, after: int, wait_s: float, follower: str = "") -> Sequence[Segment]:
        self.asked += 1
        self.told(after)
        if self.state == "dead":
            raise StoreUnavailable("nobody answers")
        if self.state == "defect":
            raise RuntimeError("a defect")
        if self.state in ("behind", "hangs"):
            time.sleep(wait_s if self.state == "behind" else 4 * wait_s)
            return []
        if self.state == "lies":
            return [Segment(after + 1, b"no segment")]
        return self.ring.segments(after, wait_s, follower)


class CountedReads(ObjectSegments):
    count = 0

    def read(self, name: str) -> bytes:
        self.count += 1
        return super().read(name)


class World:
    """A shard whose log is in a bucket, its writer's ring, and followers of it."""

    def __init__(self, folder: Path, ring: SegmentRing | None = None) -> None:
        self.folder, self.bucket, self.ring = folder, MemoryStore(), ring or SegmentRing()
        self.reader = CountedReads(self.bucket)
        self.way = Way(self.ring)
        self.begun: list[Any] = []
        self.store = self.owner(self.ring)

    def owner(self, ring: SegmentRing) -> OneShard:
        self.begun.append(OneShard(self.folder, segments=lambda _: RelayingSegments(ObjectSegments(self.bucket), ring)))
        return self.begun[-1]

    def close(self) -> None:
        for begun in reversed(self.begun):
            begun.close()

    def follow(self, options: FollowOptions = QUICK) -> Followed:
        self.begun.append(Followed(self.store, options, lambda _: self.reader, relay=self.way))
        return self.begun[-1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    one = World(tmp_path)
    yield one
    one.close()


def shown(one: Followed, store: OneShard) -> Callable[[], bool]:
    return lambda: one.shard.applied_seq == store.shard.applied_seq and not one.shard.doubts


def test_what_is_new_comes_at_once_and_the_store_is_hardly_asked(world: World) -> None:
    one = world.follow(FollowOptions(poll_s=0.01, look_s=60, stale_s=0.4))
    wait_until(lambda: world.way.asked > 1)
    began, reads = time.monotonic(), world.reader.count
    for number in range(40):
        world.store.say(ANN, "s", f"turn {number}")
        wait_until(shown(one, world.store))
    looks = (time.monotonic() - began) / STORE_LOOK_S + 2
    assert world.reader.count - reads <= looks
    assert told(one.block(ANN)) == told(world.store.block(ANN))


def test_who_sleeps_is_woken(world: World) -> None:
    one = world.follow(FollowOptions(poll_s=60, look_s=60, stale_s=1))
    wait_until(lambda: world.way.asked > 1)
    began = time.monotonic()
    for number in range(5):
        world.store.say(ANN, "s", f"turn {number}")
        wait_until(lambda: one.shard.applied_seq == world.store.shard.applied_seq)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("state", ["dead", "defect", "behind", "hangs", "lies"])
def test_whatever_becomes_of_the_relay_all_is_shown(world: World, state: str) -> None:
    one = world.follow(FollowOptions(poll_s=0.01, look_s=0.2, stale_s=0.2))
    world.store.say(ANN, "s", "before")
    wait_until(shown(one, world.store))
    world.way.state = state
    began = time.monotonic()
    world.store.say(ANN, "s", "during")
    wait_until(lambda: one.contents(ANN, "s") == ["before", "during"])
    if state in ("dead", "defect"):
        assert time.monotonic() - began < 5
    world.way.state = ""
    world.store.say(ANN, "s", "after")
    wait_until(lambda: one.contents(ANN, "s") == ["before", "during", "after"])
    wait_until(shown(one, world.store))


def test_catching_up_asks_the_store_whatever_the_writer_says(world: World) -> None:
    one = world.follow(FollowOptions(poll_s=0.01, look_s=60, stale_s=0.4))
    wait_until(lambda: world.way.asked > 1)
    for number in range(3):
        world.way.state = "behind"
        time.sleep(0.3)
        world.store.say(ANN, "s", f"turn {number}")
        one.follower.catch_up()
        assert one.shard.applied_seq == world.store.shard.applied_seq


def test_who_comes_too_late_for_the_ring_reads_the_store(tmp_path: Path) -> None:
    world = World(tmp_path, SegmentRing(bytes_max=1))
    one = world.follow()
    world.way.state = "dead"
    for number in range(30):
        world.store.say(ANN, "s", f"turn {number}")
        world.way.state = "" if number > 20 else "dead"
    wait_until(shown(one, world.store))
    assert one.contents(ANN, "s") == [f"turn {number}" for number in range(30)]
    world.close()


def test_of_a_writer_that_does_not_know_yet_that_it_was_replaced_the_new_ones_turns_are_shown_soon(
    world: World,
) -> None:
    one = world.follow(FollowOptions(poll_s=0.01, look_s=60, stale_s=0.2))
    world.store.say(ANN, "s", "of the first")
    wait_until(shown(one, world.store))
    new = world.owner(SegmentRing())
    new.say(ANN, "s", "of the second")
    began = time.monotonic()
    wait_until(lambda: one.contents(ANN, "s") == ["of the first", "of the second"])
    assert time.monotonic() - began < STORE_LOOK_S + 5
    with pytest.raises(MemstrataError):
        world.store.say(ANN, "s", "of one who is fenced")
    time.sleep(0.1)
    assert one.contents(ANN, "s") == ["of the first", "of the second"]


def test_a_ring_holds_what_surely_is_stored_and_nothing_else() -> None:
    class Unsure(ObjectSegments):
        fails = False

        def create(self, name: str, data: bytes) -> None:
            super().create(name, data)
            if self.fails:
                raise StoreUnavailable("the answer was lost")

    bucket, ring = MemoryStore(), SegmentRing()
    inner = Unsure(bucket)
    store = RelayingSegments(inner, ring)
    for number in (1, 2, 3):
        store.create(segment_name(number), b"%d" % number)
    assert ring.segments(1, 0) == [Segment(2, b"2"), Segment(3, b"3")]
    assert ring.segments(3, 0) == []
    for after in (4, 9):
        with pytest.raises(NotFound):
            ring.segments(after, 0)
    with pytest.raises(NameTaken):
        store.create(segment_name(3), b"other")
    with pytest.raises(NotFound):
        ring.segments(3, 0)
    inner.fails = True
    with pytest.raises(StoreUnavailable):
        store.create(segment_name(4), b"4")
    inner.fails = False
    store.create(segment_name(5), b"5")
    assert ring.segments(4, 0) == [Segment(5, b"5")]
    with pytest.raises(NotFound):
        ring.segments(3, 0)


def test_a_ring_is_bounded_and_wakes_who_waits() -> None:
    ring = SegmentRing(bytes_max=10)
    for number in range(1, 8):
        ring.put(number, b"1234")
    assert [one.number for one in ring.segments(5, 0)] == [6, 7]
    with pytest.raises(NotFound):
        ring.segments(4, 0)
    found: list[Sequence[Segment]] = []
    waiting = threading.Thread(target=lambda: found.append(ring.segments(7, 10)))
    waiting.start()
    ring.put(8, b"new")
    waiting.join(timeout=10)
    assert found == [[Segment(8, b"new")]]


def test_a_shard_that_is_taken_over_can_be_relayed_from_its_fence_on() -> None:
    store, ring = memory(), SegmentRing()
    add(opened(store)[0], b"one")
    log, _ = opened(RelayingSegments(store, ring), writer_id="second")
    [fence] = ring.segments(2, 0)
    assert fence.number == 3
    add(log, b"two")
    assert [one.number for one in ring.segments(2, 0)] == [3, 4]


def test_who_asks_shows_all_up_to_what_it_asks_for(world: World) -> None:
    """So that a writer does not take what was merely fetched for what is shown."""
    one = world.follow(FollowOptions(poll_s=60, look_s=60, stale_s=1))
    asked: list[tuple[int, int]] = []
    world.way.told = lambda after: asked.append((after, one.shard.applied_seq))
    applied_at: dict[int, int] = {}
    for number in range(30):
        world.store.say(ANN, "s", f"turn {number}")
        applied_at[world.ring.newest] = world.store.shard.applied_seq
    wait_until(lambda: asked[-1][0] == world.ring.newest)
    assert all(applied >= applied_at.get(after, 0) for after, applied in asked)
    wait_until(lambda: world.ring.readers.all_at(world.ring.newest))
    world.way.state = "behind"
    world.store.say(ANN, "s", "not heard of yet")
    assert not world.ring.readers.all_at(world.ring.newest)
