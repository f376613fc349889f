"""A follower shows what the writer made durable, whatever the writer does, and says where it cannot."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import ReadOnlyReplica, StoreUnavailable
from serve_app.ports import WatchedSegments
from serve_app.stores.segment import Entry
from serve_app.write.erasing import EraseUser
from serve_app.write.facts import PutFact
from serve_app.write.follow import RETRY_S, FollowOptions
from serve_app.write.operations import DeleteSession, DeleteTurn, EditTurn
from tests.write.followers import Followed
from tests.write.shards import ANN, BOB, CAT, OneShard, told, wait_until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OneShard]:
    one = OneShard(tmp_path)
    yield one
    one.close()


@pytest.fixture
def follow(store: OneShard) -> Iterator[Callable[..., Followed]]:
    begun: list[Followed] = []

    def begin(*arguments: Any, **more: Any) -> Followed:
        begun.append(Followed(store, *arguments, **more))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


def caught_up(one: Followed, store: OneShard) -> None:
    wait_until(lambda: one.shard.applied_seq == store.shard.applied_seq and not one.shard.doubts)


def same(one: Followed, store: OneShard, *owners: str) -> None:
    for owner in owners:
        assert told(one.block(owner)) == told(store.block(owner))


def everything(store: OneShard) -> None:
    """One of each thing that a writer does."""
    store.say(ANN, "s", *[f"turn {n}" for n in range(6)])
    store.say(BOB, "t", "gone soon")
    store.say(CAT, "u", "erased soon")
    first, second, third = [
        next(iter(store.shard.turns(ANN, [seq]))) for seq in store.block(ANN).sessions["s"].seqs[:3]
    ]
    store.embed(ANN, first, second, parts=2)
    store.do(EditTurn(ANN, "s", second.id, "edited", None))
    store.do(DeleteTurn(ANN, "s", third.id))
    store.do(PutFact(ANN, "colour", "blue", None, None))
    store.do(DeleteSession(BOB, "t"))
    store.do(EraseUser(CAT, "zeta"))


@pytest.mark.parametrize("folds", ["never", "before", "between", "after"])
def test_it_shows_all_that_the_writer_did(store: OneShard, follow: Callable[..., Followed], folds: str) -> None:
    """Its blocks loaded before, or after; from the log, the table, or both."""
    if folds == "before":
        everything(store)
        store.fold()
    one = follow()
    one.block(ANN)
    everything(store)
    if folds == "between":
        store.fold()
    store.say(ANN, "s", "and more")
    if folds == "after":
        store.fold()
    caught_up(one, store)
    same(one, store, ANN, BOB, CAT)
    wait_until(lambda: one.shard.folded_seq == store.shard.folded_seq)
    assert one.shard.tail() == store.shard.tail()
    assert one.shard.erasures == store.shard.erasures
    assert one.shard.pending == store.shard.pending


def test_it_takes_no_writes_and_leaves_every_file_as_it_is(store: OneShard, follow: Callable[..., Followed]) -> None:
    everything(store)
    store.fold()
    leftover = store.folder / "log" / ".00000000000000000099.seg.x.tmp"
    leftover.write_bytes(b"of a write in flight")

    def files() -> dict[str, tuple[int, int]]:
        found = (Path(folder, name) for folder, _, names in os.walk(store.folder) for name in names)
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}

    before = files()
    one = follow()
    one.contents(ANN, "s")
    for refused in (lambda: one.log.append([]), one.log.settle):
        with pytest.raises(ReadOnlyReplica):
            refused()
    assert one.log.drop_through(10**9) == 0
    one.close()
    assert files() == before


def test_it_is_behind_by_less_than_its_bound(store: OneShard, follow: Callable[..., Followed]) -> None:
    """With the settings that a service has by default."""
    one = follow(FollowOptions())
    late = []
    for number in range(20):
        store.say(ANN, "s", f"turn {number}")
        began, seq = time.monotonic(), store.shard.applied_seq
        wait_until(lambda seq=seq: one.shard.applied_seq >= seq)
        late.append(time.monotonic() - began)
    assert sorted(late)[len(late) // 2] < 0.2
    behind = one.follower.behind_s
    assert behind is not None
    assert behind < 0.2 or one.shard.doubts


def test_one_that_comes_too_late_for_the_segments_starts_over_from_the_table(
    store: OneShard, follow: Callable[..., Followed]
) -> None:
    """Erased meanwhile, and folded, so that no record tells of it."""
    store.say(ANN, "s", "old")
    store.say(CAT, "u", "erased while nobody looked")
    asleep = Asleep()
    one = follow(segments=asleep.over)
    assert one.contents(CAT, "u") == ["erased while nobody looked"]
    asleep.now = True
    wait_until(lambda: one.follower.trouble is not None)
    store.do(EraseUser(CAT, "zeta"))
    store.say(ANN, "s", "new")
    store.fold()
    store.shard.log.drop_through(store.shard.folded_seq)
    store.say(ANN, "s", "newest")
    asleep.now = False
    caught_up(one, store)
    assert one.contents(CAT, "u") == []
    assert one.contents(ANN, "s") == ["old", "new", "newest"]
    same(one, store, ANN, CAT)


class Asleep:
    """A store that does not answer while it sleeps."""

    def __init__(self) -> None:
        self.now = False
        self.inner: WatchedSegments

    def over(self, inner: WatchedSegments) -> WatchedSegments:
        self.inner = inner
        return self

    def _awake(self) -> WatchedSegments:
        if self.now:
            raise StoreUnavailable("asleep")
        return self.inner

    def read(self, name: str) -> bytes:
        return self._awake().read(name)

    def names(self) -> list[str]:
        return self._awake().names()

    def stamp(self, name: str) -> Hashable:
        return self._awake().stamp(name)


def test_where_the_store_does_not_answer_it_goes_on_from_what_it_has_and_says_so(
    store: OneShard, follow: Callable[..., Followed]
) -> None:
    store.say(ANN, "s", "known")
    asleep = Asleep()
    one = follow(segments=asleep.over)
    assert one.shard.doubts == ()
    asleep.now = True
    store.say(ANN, "s", "not seen yet")
    wait_until(lambda: one.shard.doubts != ())
    assert one.shard.doubts[0].startswith("replica: ")
    assert "asleep" in str(one.follower.trouble)
    assert one.contents(ANN, "s") == ["known"]
    asleep.now = False
    caught_up(one, store)
    assert one.contents(ANN, "s") == ["known", "not seen yet"]
    wait_until(lambda: one.follower.trouble is None)


def test_what_was_read_before_the_store_failed_is_shown(store: OneShard, follow: Callable[..., Followed]) -> None:
    class Nodding(Asleep):
        """Once awake it reads two segments, and fails once at the third."""

        def read(self, name: str) -> bytes:
            data = super().read(name)
            self.reads += 1
            if self.reads == 3:
                raise StoreUnavailable("it nodded")
            return data

        reads = -1000

    nodding = Nodding()
    one = follow(segments=nodding.over)
    nodding.now = True
    for number in range(4):
        store.say(ANN, "s", f"turn {number}")
    nodding.reads, nodding.now = 0, False
    caught_up(one, store)
    assert nodding.reads > 3
    assert one.contents(ANN, "s") == [f"turn {number}" for number in range(4)]


def test_a_new_owner_is_followed(store: OneShard, follow: Callable[..., Followed]) -> None:
    store.say(ANN, "s", "by the old one")
    one = follow()
    one.block(ANN)
    store.restart()
    store.say(ANN, "s", "by the new one")
    caught_up(one, store)
    assert one.contents(ANN, "s") == ["by the old one", "by the new one"]
    assert one.log.epoch == store.shard.log.epoch


def test_what_a_new_owner_cut_is_forgotten(store: OneShard, follow: Callable[..., Followed]) -> None:
    """The follower read the segment whole; a power cut tore it, and the next owner went on without it."""
    store.say(ANN, "s", "kept")
    store.say(ANN, "s", "lost in the power cut")
    one = follow()
    assert one.contents(ANN, "s") == ["kept", "lost in the power cut"]
    store.close()
    newest = sorted((store.folder / "log").glob("*.seg"))[-1]
    newest.write_bytes(newest.read_bytes()[:-3])
    store.open("torn_tail")
    store.say(ANN, "s", "after it")
    caught_up(one, store)
    assert one.contents(ANN, "s") == ["kept", "after it"]


def test_a_segment_that_its_writer_took_back_is_forgotten(store: OneShard, follow: Callable[..., Followed]) -> None:
    """Linked, seen, and withdrawn because the folder could not be synced: the same number holds something else then."""
    store.say(ANN, "s", "kept")
    newest = sorted((store.folder / "log").glob("*.seg"))[-1]
    number = int(newest.stem) + 1
    ghost = store.folder / "log" / f"{number:020d}.seg"
    one = follow()
    store.say(ANN, "s", "taken back")
    caught_up(one, store)
    assert one.contents(ANN, "s") == ["kept", "taken back"]
    store.close()
    ghost.unlink()
    store.open()
    store.say(ANN, "s", "in its place")
    caught_up(one, store)
    assert one.contents(ANN, "s") == ["kept", "in its place"]


@pytest.mark.parametrize("how", ["cut", "missing"])
def test_a_damaged_segment_is_reported_and_what_was_read_stays(
    store: OneShard, follow: Callable[..., Followed], how: str
) -> None:
    store.say(ANN, "s", "before")
    asleep = Asleep()
    one = follow(segments=asleep.over)
    one.block(ANN)
    asleep.now = True
    wait_until(lambda: one.follower.trouble is not None)
    store.say(ANN, "s", "damaged")
    damaged = sorted((store.folder / "log").glob("*.seg"))[-1]
    sound = damaged.read_bytes()
    store.say(ANN, "s", "behind it")
    if how == "cut":
        damaged.write_bytes(sound[: len(sound) // 2])
    else:
        damaged.unlink()
    asleep.now = False
    wait_until(lambda: one.log.damage is not None)
    assert one.log.damage is not None
    assert (one.log.damage.kind, one.log.damage.segment) == ("hole", damaged.name)
    assert damaged.name in one.shard.doubts[0]
    assert one.contents(ANN, "s") == ["before"]
    damaged.write_bytes(sound)
    wait_until(lambda: one.log.damage is None)
    caught_up(one, store)
    assert one.contents(ANN, "s") == ["before", "damaged", "behind it"]


def test_tables_that_cannot_be_read_are_reported_and_the_log_is_followed_all_the_same(
    store: OneShard, follow: Callable[..., Followed]
) -> None:
    store.say(ANN, "s", "in memory")
    one = follow()
    one.block(ANN)
    tables, aside = store.folder / "tables", store.folder / "aside"
    tables.rename(aside)
    wait_until(lambda: one.follower.table_trouble is not None)
    store.say(ANN, "s", "and more")
    caught_up(one, store)
    assert one.contents(ANN, "s") == ["in memory", "and more"]
    aside.rename(tables)
    wait_until(lambda: one.follower.table_trouble is None)


def test_without_a_store_it_does_not_start(store: OneShard, tmp_path: Path) -> None:
    store.folder = tmp_path / "elsewhere"
    with pytest.raises(StoreUnavailable, match="no table"):
        Followed(store)
    store.folder = tmp_path


def test_reading_goes_on_while_the_writer_folds_purges_and_drops(
    store: OneShard, follow: Callable[..., Followed]
) -> None:
    """Old turns lie in the table only; each read is of one state: turns never come twice, and none is skipped."""
    one = follow(owner_turns_resident=8)
    keeper = store.housekeeper()
    wrong: list[list[str]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            contents = one.contents(ANN, "s")
            if contents != [f"turn {n}" for n in range(len(contents))]:
                wrong.append(contents)

    readers = [threading.Thread(target=read) for _ in range(2)]
    store.say(ANN, "s", "turn 0")
    caught_up(one, store)
    for reader in readers:
        reader.start()
    for number in range(1, 60):
        store.say(ANN, "s", f"turn {number}")
        if number % 6 == 0:
            store.say(BOB, "t", "x")
            store.do(DeleteSession(BOB, "t"))
            keeper.purge_now(0)
    caught_up(one, store)
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert one.contents(ANN, "s") == [f"turn {n}" for n in range(60)]


def test_what_it_does_not_know_is_not_passed_over(store: OneShard, follow: Callable[..., Followed]) -> None:
    """A record of a later release: nothing behind it is shown as if it were not there, and the follower says so."""
    store.say(ANN, "s", "before")
    one = follow()
    caught_up(one, store)
    unknown = store.shard.log.next_seq
    store.shard.log.append([Entry(unknown, b"\x81\xa4type\xa7unknown")])
    store.say(ANN, "s", "behind it")
    wait_until(lambda: one.follower.trouble is not None)
    time.sleep(2.5 * RETRY_S)  # two further rounds
    assert one.shard.applied_seq < unknown
    assert one.contents(ANN, "s") == ["before"]
    assert one.shard.doubts
