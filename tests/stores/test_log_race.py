"""Many writers of one shard, in random order, over a store that loses requests, answers and time, or is full."""

from __future__ import annotations

import contextlib
import random

import pytest

from serve_app.errors import Fenced, NameTaken, StorageFull, StorageTrouble, StoreUnavailable
from serve_app.ports import SegmentStore
from serve_app.stores.log import Entry, Recovery, ShardLog
from tests.stores.logs import add, memory, opened
from tests.stores.unreliable import Unreliable


class Race:
    """Writers that take a shard from each other while its store loses requests, answers and time, and is full at times.

    Rivals act between a writer's decision and its create; requests whose answer was lost may land much later;
    now and then an owner folds and drops segments.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = memory()
        self.writers: list[ShardLog] = []
        self.acknowledged: list[Entry] = []
        self.tables: dict[int, bytes] = {}
        self.folded_seq = 0
        self.late: list[tuple[str, bytes]] = []
        self.written = 0
        self.busy: list[ShardLog] = []
        self.calm = False

    def act(self) -> None:
        self.chance.choices([self.take_over, self.write, self.land_late], [2, 8, 2])[0]()

    def take_over(self) -> None:
        folded_seq = self.folded_seq
        try:
            log, recovery = ShardLog.open(
                Unreliable(self.store, [self.create] * 40), folded_seq=folded_seq, writer_id="same name for all"
            )
        except StoreUnavailable:
            return
        if self.folded_seq > folded_seq:  # folded and dropped meanwhile: an owner would read the watermark again
            return
        assert recovery.damages == ()
        self.writers.append(log)
        if log.writable and self.chance.random() < 0.5:  # one that waits for room folds nothing
            self.fold(log, recovery)

    def fold(self, log: ShardLog, recovery: Recovery) -> None:
        for entry in recovery.entries:
            assert self.tables.setdefault(entry.seq, entry.payload) == entry.payload
        self.folded_seq = max(self.folded_seq, recovery.last_seq)
        log.drop_through(recovery.last_seq)

    def write(self) -> None:
        idle = [log for log in self.writers if log not in self.busy]
        if not idle:
            return
        log = self.chance.choice(idle)
        self.busy.append(log)
        try:
            self.acknowledged += log.settle()
            self.written += 2
            self.acknowledged += add(log, str(self.written).encode(), str(self.written + 1).encode())
        except StorageTrouble:
            pass
        self.busy.remove(log)

    def land_late(self) -> None:
        if self.late:
            name, data = self.late.pop(self.chance.randrange(len(self.late)))
            with contextlib.suppress(NameTaken):
                self.store.create(name, data)

    def create(self, target: SegmentStore, name: str, data: bytes) -> None:
        if not self.calm and self.chance.random() < 0.3:
            self.act()
        if not self.calm and self.chance.random() < 0.1:
            raise StorageFull("no room")
        luck = 1.0 if self.calm else self.chance.random()
        if luck < 0.1:
            self.late.append((name, data))
        if luck >= 0.2:
            target.create(name, data)
        if luck < 0.3:
            raise StoreUnavailable("lost")

    def survivors(self) -> int:
        """Writers that can still write, now that the network is well again."""
        self.calm = True
        count = 0
        for log in self.writers:
            try:
                self.acknowledged += log.settle()
                self.acknowledged += add(log, b"last")
                count += 1
            except Fenced:
                continue
        return count


@pytest.mark.parametrize("seed", range(200))
def test_whatever_the_interleaving_each_acknowledged_entry_is_there_once(seed: int) -> None:
    race = Race(seed)
    for _ in range(40):
        race.act()
    assert race.survivors() <= 1
    while race.late:
        race.land_late()
    entries = opened(race.store, race.folded_seq)[1].entries
    seqs = [entry.seq for entry in entries]
    assert seqs == sorted(set(seqs))
    there = list(race.tables.items()) + list(entries)
    assert len({seq for seq, _ in there}) == len(there)
    missing = set(race.acknowledged) - {Entry(*pair) for pair in there}
    assert not missing
    assert len(set(race.acknowledged)) == len(race.acknowledged)
