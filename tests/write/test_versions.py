"""Versions come and go while a shard is read and written."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from serve_app.core import Turn
from serve_app.models.stub import HashEmbedder
from serve_app.records import VersionVectors
from serve_app.stores.hot_indexes import HotIndexes
from serve_app.write.backfill import BackfillItem, put_backfill
from serve_app.write.derived import PutVectors
from tests.write.shards import ANN, BOB, EMBEDDER, VERSION, OneShard, vectors_of, wait_until

TARGET = HashEmbedder(32)
BASE, NAME = VERSION.name, TARGET.version.name


def turns_of(shard: OneShard, owner: str = ANN) -> list[Turn]:
    return list(shard.block(owner).turns.values())


def fill(shard: OneShard, owner: str = ANN) -> None:
    items = [BackfillItem(owner, vectors_of(turn, 1, TARGET)) for turn in turns_of(shard, owner)]
    assert put_backfill(shard.writer, NAME, items).written == len(items)


def found(shard: OneShard, embedder: HashEmbedder, text: str, as_of: int | None = None) -> list[float]:
    block = shard.block(ANN)
    seqs = block.columns.seqs
    return block.dense(embedder.version.name, embedder.embed([text])[0], len(seqs), as_of).tolist()


@pytest.mark.parametrize("folded", [False, True])
def test_a_version_that_is_held_is_found_by_and_one_that_is_released_is_not(shard: OneShard, folded: bool) -> None:
    shard.say(ANN, "a", "amber", "birch")
    shard.embed(ANN, *turns_of(shard))
    for _ in range(2):
        shard.shard.hold(TARGET.version)
    fill(shard)
    if folded:
        shard.fold()
    assert found(shard, TARGET, "birch") == pytest.approx([0, 1], abs=0.3)
    for _ in range(2):
        shard.shard.release(NAME)
    assert np.isnan(found(shard, TARGET, "birch")).all()
    assert NAME not in shard.hot
    assert found(shard, EMBEDDER, "birch")[1] == pytest.approx(1, abs=1e-3)
    shard.shard.hold(TARGET.version)
    assert shard.hot[NAME].count(ANN) in (0, 2)
    shard.restart()
    assert shard.block(ANN).vectors.shape(1).keys() == {BASE}


def test_as_of_an_earlier_moment_each_version_shows_what_it_had_then(shard: OneShard) -> None:
    shard.say(ANN, "a", "amber")
    shard.embed(ANN, *turns_of(shard))
    before = shard.shard.applied_seq
    shard.shard.hold(TARGET.version)
    fill(shard)
    for again in (shard.shard.applied_seq, None):
        assert found(shard, EMBEDDER, "amber", before) == found(shard, EMBEDDER, "amber", again)
        assert found(shard, TARGET, "amber", again) == pytest.approx([1], abs=1e-3)
    assert np.isnan(found(shard, TARGET, "amber", before)).all()
    tokens, _ = shard.block(ANN).tokens(BASE, [1], before)
    assert len(tokens)
    assert not len(shard.block(ANN).tokens(NAME, [1], before)[0])


def test_vectors_of_one_version_replace_those_of_no_other(shard: OneShard) -> None:
    shard.say(ANN, "a", "amber")
    turns = turns_of(shard)
    shard.embed(ANN, *turns, parts=3)
    shard.shard.hold(TARGET.version)
    fill(shard)
    put_backfill(shard.writer, NAME, [BackfillItem(ANN, vectors_of(turns[0], 3, TARGET))])
    put_backfill(shard.writer, NAME, [BackfillItem(ANN, vectors_of(turns[0], 2, TARGET))])
    assert {name: parts for name, (parts, _) in shard.block(ANN).vectors.shape(1).items()} == {BASE: 3, NAME: 2}
    assert shard.hot[NAME].count(ANN) == 2
    assert shard.block(ANN).vectors.count() == shard.block(ANN).vectors.count([1]) == 5


def test_vectors_of_a_version_that_is_not_held_are_left_out(shard: OneShard) -> None:
    shard.say(ANN, "a", "amber")
    [turn] = turns_of(shard)
    assert shard.do(PutVectors(ANN, [VersionVectors(NAME, (vectors_of(turn, 1, TARGET),))])) == 0
    assert shard.do(PutVectors(ANN, [VersionVectors(BASE, (vectors_of(turn),))], beside=True)) == 0
    assert shard.shard.pending.keys() == {1}


def test_versions_come_and_go_beside_appends_reads_folds_and_loads(opened: Callable[..., OneShard]) -> None:
    shard = opened(turns_resident=30)  # so that blocks come and go all the while
    ending = threading.Event()
    failed: list[BaseException] = []

    def keep(act: Callable[[int], None]) -> threading.Thread:
        def run() -> None:
            n = 0
            try:
                while not ending.is_set():
                    act(n := n + 1)
            except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                failed.append(error)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return threads[-1]

    threads: list[threading.Thread] = []
    owners = [ANN, BOB, *(f"acme\x1fu{n}" for n in range(4))]

    def write(n: int) -> None:
        owner = owners[n % len(owners)]
        shard.say(owner, "a", f"amber {n}")
        shard.embed(owner, *turns_of(shard, owner)[-2:])

    def read(n: int) -> None:
        block = shard.block(owners[-n % len(owners)])
        with block.lock:
            for one in (EMBEDDER, TARGET):
                block.dense(one.version.name, one.embed(["amber"])[0], len(block.columns.seqs), None)

    def tend(n: int) -> None:
        shard.fold()
        shard.shard.evict()

    keep(write)
    keep(read)
    keep(tend)
    for _ in range(5):
        shard.shard.hold(TARGET.version)
        for owner in owners[:2]:
            wait_until(lambda owner=owner: bool(turns_of(shard, owner)) or bool(failed))
            fill(shard, owner)
        shard.shard.release(NAME)
    ending.set()
    for one in threads:
        one.join()
    assert failed == []
    shard.shard.hold(TARGET.version)
    for owner in owners:
        fill(shard, owner)
        block = shard.block(owner)
        assert block.vectors.came_by(NAME).keys() == block.turns.keys()
        assert shard.hot[NAME].count(owner) == len(block.turns)


def test_an_index_goes_with_its_last_holder() -> None:
    indexes = HotIndexes()
    first, second = indexes.hold(VERSION, 0), indexes.hold(VERSION, 1)
    assert first is second is indexes[BASE]
    indexes.release(BASE, 0)
    indexes.release(BASE, 0)
    assert list(indexes) == [BASE]
    indexes.release(BASE, 1)
    indexes.release(BASE, 1)
    assert len(indexes) == 0
