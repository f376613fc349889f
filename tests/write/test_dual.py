"""While a migration runs each new turn gets the vectors of both sides, and neither side waits for the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from serve_app.models.encoders import Encoders
from serve_app.models.stub import HashEmbedder
from serve_app.ports import Vectors
from serve_app.records import Record, VectorsPut
from serve_app.routing import Routing
from serve_app.write.dual import DualWrite
from serve_app.write.erasing import EraseUser
from serve_app.write.indexer import Indexer
from serve_app.write.operations import DeleteTurn, EditTurn
from serve_app.write.shard import Shard
from tests.write.shards import ANN, BOB, EMBEDDER, OneShard, wait_until
from tests.write.test_indexer import LONG, Counting, Moody

OTHER, NEW = HashEmbedder(48), HashEmbedder(32)
BASE, SECOND, TARGET = (one.version.name for one in (EMBEDDER, OTHER, NEW))
TO_NEW = Routing(BASE, BASE), Routing(TARGET, TARGET)


class Migrating:
    """One shard with both indexers, put together as the service does it."""

    def __init__(
        self,
        opened: Callable[..., OneShard],
        base: Sequence[Moody],
        new: Moody,
        routings: tuple[Routing, Routing] = TO_NEW,
        **options: Any,
    ) -> None:
        self.routings, self.new, self.options = routings, new, options
        self.base = base
        self.ready = False
        self.store = opened(committed=self.committed, embedders=tuple(one.embedder for one in base))
        self.after = self.store.shard.applied_seq
        self.run()

    @property
    def shard(self) -> Shard:
        return self.store.shard

    def run(self) -> None:
        self.encoders = Encoders(self.base)
        if self.new not in self.base:
            self.encoders.add(self.new)
            self.store.shard.hold(self.new.version)
        self.indexer = Indexer(self.encoders, 0.01)
        self.dual = DualWrite(self.encoders, 0.01, **self.options)
        self.ready = True
        self.indexer.start([self.store.writer])

    def committed(self, shard: Shard, records: list[Record]) -> None:
        if self.ready:
            self.indexer.committed(shard, records)
            self.dual.committed(shard, records)

    def begin(self, after: int | None = None) -> None:
        after = self.after if after is None else after
        self.dual.begin([self.store.writer], *self.routings, self.new.version.name, [after])

    def settled(self) -> bool:
        return not self.shard.pending and not self.dual.waiting

    def shapes(self, owner: str = ANN) -> dict[int, set[str]]:
        vectors = self.store.block(owner).vectors
        return {seq: set(vectors.shape(seq)) for seq in sorted(vectors.came)}

    def stop(self) -> None:
        self.ready = False
        self.encoders.close()
        self.dual.close()
        self.indexer.close()

    def restart(self) -> None:
        self.stop()
        self.store.restart()
        self.run()


@pytest.fixture
def migrating(opened: Callable[..., OneShard]) -> Iterator[Callable[..., Migrating]]:
    made: list[Migrating] = []

    def make(base: Sequence[Moody] | None = None, new: Moody | None = None, **options: Any) -> Migrating:
        made.append(Migrating(opened, base or [Moody()], new or Moody(embedder=NEW), **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_what_is_written_from_then_on_gets_the_vectors_of_both(migrating: Callable[..., Migrating]) -> None:
    one = migrating()
    one.store.say(ANN, "a", "amber")
    wait_until(lambda: not one.shard.pending)
    one.begin(one.shard.applied_seq)
    one.store.say(ANN, "a", "birch", LONG)
    wait_until(one.settled)
    first, second, third = one.store.block(ANN).turns
    assert one.shapes() == {first: {BASE}, second: {BASE, TARGET}, third: {BASE, TARGET}}
    beside = [record for record in one.shard.tail() if isinstance(record, VectorsPut) and record.beside]
    assert {made.version for record in beside for made in record.versions} == {TARGET}


def test_an_edit_of_an_earlier_turn_is_written_twice_too(migrating: Callable[..., Migrating]) -> None:
    one = migrating()
    one.store.say_as(ANN, "a", "1", "amber")
    wait_until(lambda: not one.shard.pending)
    one.begin(one.shard.applied_seq)
    one.store.do(EditTurn(ANN, "a", "1", "other words", None))
    wait_until(one.settled)
    assert one.shapes() == {1: {BASE, TARGET}}


def test_what_was_written_before_it_runs_is_found_in_the_tail(migrating: Callable[..., Migrating]) -> None:
    one = migrating()
    one.store.say(ANN, "a", "amber", "birch")
    wait_until(lambda: not one.shard.pending)
    one.begin(1)
    wait_until(one.settled)
    assert one.shapes() == {1: {BASE}, 2: {BASE, TARGET}}


@pytest.mark.parametrize("new", ["fails", "hangs"])
def test_a_new_encoder_that_fails_or_hangs_delays_no_vector_of_the_base(
    migrating: Callable[..., Migrating], new: str
) -> None:
    class Hanging(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.embedder, self.version = NEW, NEW.version

    broken = Moody(embedder=NEW) if new == "fails" else Hanging()
    broken.healthy.clear()
    one = migrating(new=broken)
    one.begin()
    for n in range(20):
        one.store.say(ANN, "a", f"amber {n}")
    wait_until(lambda: not one.shard.pending)
    one.indexer.admit(ANN)
    assert one.indexer.failures == 0
    assert one.dual.waiting == 20
    assert set.union(*one.shapes().values()) == {BASE}
    if new == "fails":
        wait_until(lambda: one.dual.failures > 2)
    broken.healthy.set()
    if isinstance(broken, Hanging):
        broken.gate.release(1_000)
    wait_until(one.settled)
    assert all(found == {BASE, TARGET} for found in one.shapes().values())


@pytest.mark.parametrize("bounds", [{"most": 8}, {"most": 8, "noted": 10}, {"most": 100, "noted": 10}])
@pytest.mark.parametrize("folded", [False, True])
def test_of_what_has_no_room_nothing_is_lost(
    migrating: Callable[..., Migrating], bounds: dict[str, int], folded: bool
) -> None:
    broken = Moody(embedder=NEW)
    broken.healthy.clear()
    one = migrating(new=broken, **bounds)
    one.begin()
    one.store.say(ANN, "a", *(f"amber {n}" for n in range(30)))
    one.store.say(BOB, "a", *(f"birch {n}" for n in range(30)))
    wait_until(lambda: not one.shard.pending)
    one.store.do(EraseUser(BOB, "acme"))
    if folded:
        one.store.fold()
    assert one.dual.waiting == min(30, bounds.get("noted", 30) + 1)
    broken.healthy.set()
    wait_until(one.settled)
    assert len(one.shapes()) == 30
    assert all(found == {BASE, TARGET} for found in one.shapes().values())


def test_a_turn_that_wants_nothing_of_the_target_is_settled_at_once(migrating: Callable[..., Migrating]) -> None:
    """Latin goes from the first version to the second, which other scripts have already."""
    first, second = Moody(), Moody(embedder=OTHER)
    second.healthy.clear()
    one = migrating(base=[first, second], new=second, routings=(Routing(BASE, SECOND), Routing(SECOND, SECOND)))
    one.begin()
    one.store.say(ANN, "a", "琥珀", "上海")
    one.store.say(BOB, "a", "amber")
    wait_until(lambda: one.dual.waiting == 1)
    wait_until(lambda: len(one.shard.pending) == 2)
    second.healthy.set()
    wait_until(one.settled)
    assert set(map(frozenset, one.shapes().values())) == {frozenset({SECOND})}
    assert list(one.shapes(BOB).values()) == [{BASE, SECOND}]


def test_after_a_restart_it_takes_up_what_it_left(migrating: Callable[..., Migrating]) -> None:
    broken = Moody(embedder=NEW)
    broken.healthy.clear()
    one = migrating(new=broken)
    one.begin()
    one.store.say_as(ANN, "a", "1", "folded")
    one.store.say_as(ANN, "a", "2", "erased")
    wait_until(lambda: not one.shard.pending)
    one.store.fold()
    one.store.do(DeleteTurn(ANN, "a", "2"))
    one.store.say_as(ANN, "a", "3", "in the tail")
    wait_until(lambda: not one.shard.pending)
    one.restart()
    one.begin()
    assert one.dual.waiting == 2
    broken.healthy.set()
    wait_until(one.settled)
    assert all(found == {BASE, TARGET} for found in one.shapes().values())
    assert len(one.shapes()) == 2


def test_once_it_has_ended_nothing_is_made_any_more(migrating: Callable[..., Migrating]) -> None:
    one = migrating()
    one.begin()
    one.store.say(ANN, "a", "amber")
    wait_until(one.settled)
    one.dual.end()
    assert one.shard.apart is None
    read = len(one.new.read)
    one.store.say(ANN, "a", "birch")
    wait_until(one.settled)
    time.sleep(0.05)
    assert len(one.new.read) == read
    assert one.dual.alive
    one.begin(one.shard.applied_seq)
    one.store.say(ANN, "a", "cedar")
    wait_until(one.settled)
    assert list(one.shapes().values()) == [{BASE, TARGET}, {BASE}, {BASE, TARGET}]


def test_what_is_still_to_come_goes_over_to_the_new_base(migrating: Callable[..., Migrating]) -> None:
    broken = Moody(embedder=NEW)
    broken.healthy.clear()
    one = migrating(new=broken)
    one.begin()
    one.store.say(ANN, "a", "amber", "birch")
    wait_until(lambda: not one.shard.pending)
    one.encoders.base = one.routings[1]
    one.dual.hand_over(one.indexer)
    assert one.shard.pending.keys() == {1, 2}
    one.store.say(ANN, "a", "cedar")
    broken.healthy.set()
    wait_until(one.settled)
    one.shard.release(BASE)
    assert set(map(frozenset, one.shapes().values())) == {frozenset({TARGET})}
    assert len(one.shapes()) == 3


def test_vectors_that_came_apart_settle_nothing_of_the_base(migrating: Callable[..., Migrating]) -> None:
    class Shut(Moody):
        def embed(self, texts: Sequence[str]) -> Vectors:
            assert self.healthy.wait(20)
            return super().embed(texts)

    base = Shut()
    base.healthy.clear()
    one = migrating(base=[base])
    one.begin()
    one.store.say(ANN, "a", "amber")
    wait_until(lambda: not one.dual.waiting)
    assert one.shard.pending.keys() == {1}
    assert one.shapes() == {1: {TARGET}}
    base.healthy.set()
    wait_until(one.settled)
    assert one.shapes() == {1: {BASE, TARGET}}
