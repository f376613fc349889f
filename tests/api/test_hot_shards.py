"""A gateway that asks hot shards answers as one that asks none, whatever these say, or do not say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from serve_app.errors import HotShardUnavailable, InvalidRequest, MemstrataError, NotFound, Overloaded
from serve_app.memory.hot_shards import ASKED_MAX, FAULTS_MAX, HotShards
from serve_app.memory.memory import MemoryOptions
from serve_app.ports import EncodedQuery, HotProducts, Vectors
from serve_app.stores.hot_indexes import HotOptions
from tests.api.clustered import SHARDS, Clustered
from tests.api.running import Running, hash_settings

WORDS = ("river", "harbour", "lamp", "ticket", "garden")
HOT = HotOptions(device="host", memory_mib=1, placement="deployment", wait_s=2.0)
Bends = Callable[[HotProducts], HotProducts]


class Way:
    """`HotShardCalls` to a service of this process, over which answers may be lost, late or changed."""

    def __init__(self, hot: Running) -> None:
        self._hot = hot
        self.numbers: list[tuple[int, int]] = []
        self.error: MemstrataError | None = None
        self.takes_s = 0.0
        self.bend: Bends = lambda found: found

    def heal(self) -> None:
        self.error, self.takes_s = None, 0.0
        self.bend = lambda found: found

    async def products(self, number: int, shard: int, owner: str, version: str, query: Vectors) -> HotProducts | None:
        self.numbers.append((number, shard))
        if self.error is not None:
            raise self.error
        await asyncio.sleep(self.takes_s)
        asked = self._hot.service.hot_products(shard, owner, version, query)
        found = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._hot.loop))
        return None if found is None else self.bend(found)


class Both:
    """A gateway that asks a hot shard, and one of the same store that does not."""

    def __init__(self, folder: Path, hot: HotOptions = HOT) -> None:
        self.cluster = Clustered(folder)
        self.users = [self.cluster.user_in(shard) for shard in range(SHARDS)]
        self.plain = self.cluster.start()
        self.way = Way(self.cluster.start_hot_shard(device="host", memory_mib=1))
        self.asking = self.cluster.start(self.way, hot=hot, memory=MemoryOptions(rest_s=0.05))

    def write(self) -> None:
        for user in self.users:
            turns = [{"id": str(n), "role": "user", "content": f"{user} {WORDS[n % 5]} number {n}"} for n in range(60)]
            self.receipt = self.plain.append(user, "s", *turns, wait="indexed")["receipt"]
            self.plain.ok("DELETE", "/v1/turns/7", params={"user_id": user, "session_id": "s"})
        self.settle()

    def settle(self) -> None:
        """Until every process has seen what the writers have, vectors included."""
        shards = [self.cluster.writers[number].service._writers[number].shard for number in range(SHARDS)]
        followers = [*self.cluster.gateways, *self.cluster.hot_shards]
        ends = time.monotonic() + 20
        while any(shard.pending for shard in shards) or any(
            one.service._writers[shard.number].shard.applied_seq < shard.applied_seq
            for one in followers
            for shard in shards
        ):
            assert time.monotonic() < ends
            time.sleep(0.01)

    def told(self, gateway: Running, *users: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for user in users or self.users:
            for word in WORDS:
                results = gateway.search(user, f"{word} number", mode="dense", k=20)["results"]
                found[f"{user} {word}"] = [(one["id"], one["score"]) for one in results]
            found[user] = gateway.context(user, "the harbour", now="2030-01-01T00:00:00Z")["messages"]
        return found

    def same(self, *users: str) -> bool:
        return self.told(self.asking, *users) == self.told(self.plain, *users)

    def figure(self, outcome: str) -> float:
        text = self.asking.call("GET", "/metrics").text
        return float(text.split(f"\nmemstrata_hot_shard_{outcome} ")[1].split()[0])

    def troubles(self) -> list[str]:
        told = self.asking.ok("GET", "/readyz")["degraded"]
        return [one["detail"] for one in told if one["what"] == "hot"]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    made = Both(tmp_path_factory.mktemp("hot"))
    made.write()
    made.same()  # the first questions find nobody in memory over there
    yield made
    made.cluster.stop()


@pytest.fixture
def both(started: Both) -> Iterator[Both]:
    """With a hot shard that is well, and known to be."""
    yield started
    started.way.heal()
    time.sleep(0.06)
    started.same()


def test_what_a_hot_shard_says_is_used_and_changes_no_answer(both: Both) -> None:
    assert both.figure("absent") > 0
    before = both.figure("given")
    assert both.same()
    assert both.figure("given") - before == len(both.told(both.plain))
    assert both.troubles() == []
    assert set(both.way.numbers) == {(0, shard) for shard in range(SHARDS)}
    both.way.bend = lambda found: found._replace(scores=-found.scores)
    assert not both.same()  # so what it says does count


@pytest.mark.parametrize(
    "bend",
    [
        lambda found: found._replace(newest=found.newest + 1, scores=-found.scores),
        lambda found: found._replace(newest=0, scores=-found.scores),
        lambda found: HotProducts(found.rows[:-1], -found.scores[:-1], found.newest),
        lambda found: HotProducts(found.rows[:0], found.scores[:0], found.newest),
        lambda found: found._replace(rows=found.rows + 4096, scores=-found.scores),
        lambda found: found._replace(rows=np.repeat(found.rows[:1], len(found.rows)), scores=-found.scores),
        lambda found: found._replace(scores=-found.scores[:5]),
        lambda found: found._replace(scores=np.full_like(found.scores, np.nan)),
        lambda found: found._replace(scores=-found.scores.astype(np.float64)),
    ],
    ids=["ahead", "behind", "lacks_one", "lacks_all", "others", "one_again", "too_few", "no_numbers", "other_numbers"],
)
def test_what_is_not_of_the_very_same_vectors_is_not_used(both: Both, bend: Bends) -> None:
    both.way.bend = bend
    assert both.same()


def test_one_that_is_behind_is_not_used_until_it_has_caught_up(both: Both) -> None:
    """It says what it said before the last write, under the seq it had then, and under that which the others have."""
    user = both.users[0]
    old: dict[int, HotProducts] = {}
    both.way.bend = lambda found: old.setdefault(len(found.rows), found)
    both.told(both.asking, user)
    (stale,) = old.values()
    both.plain.append(user, "s", {"id": "60", "role": "user", "content": f"{user} river number 60"}, wait="indexed")
    both.settle()
    both.way.bend = lambda found: stale._replace(scores=-stale.scores)
    assert both.same(user)
    both.way.bend = lambda found: HotProducts(stale.rows, -stale.scores, found.newest)
    assert both.same(user)
    both.way.heal()
    before = both.figure("given")
    assert both.same(user)
    assert both.figure("given") > before


def test_one_that_is_gone_is_told_and_left_alone(both: Both) -> None:
    both.way.error = HotShardUnavailable("gone")
    before, alone = both.figure("failed"), both.figure("left_alone")
    assert both.same()
    assert both.figure("failed") - before >= FAULTS_MAX
    assert both.figure("left_alone") > alone
    assert both.troubles() == ["hot shard 0: it gives nothing; its users are searched on the CPU here"]
    both.way.heal()
    time.sleep(0.06)
    assert both.same()
    assert both.troubles() == []


def test_one_that_is_late_takes_no_more_than_a_share_of_the_deadline(both: Both) -> None:
    both.way.takes_s = 30.0
    before = both.figure("late")
    asked = {"mode": "dense", "k": 20, "deadline_ms": 1000}
    began = time.monotonic()
    found = both.asking.search(both.users[1], "lamp number", **asked)
    assert time.monotonic() - began < 1.0
    assert found["degradation"]["reasons"] == []
    assert found["results"] == both.plain.search(both.users[1], "lamp number", **asked)["results"]
    assert both.figure("late") == before + 1
    assert both.troubles() == []  # it had less than its time


def test_words_alone_ask_nobody(both: Both) -> None:
    asked = len(both.way.numbers)
    both.asking.search(both.users[0], "lamp", mode="lexical")
    assert len(both.way.numbers) == asked


def test_a_hot_shard_that_is_asked_for_what_it_has_not_says_so(both: Both) -> None:
    hot = both.cluster.hot_shards[0]
    query = np.zeros(3, np.float32)
    with pytest.raises(NotFound):
        hot.run(hot.service.hot_products(SHARDS, "owner", "version", query))
    assert hot.service.devices_lost == []


# ---- which of them, and how many questions


class Slow:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.go = asyncio.Event()

    async def products(self, number: int, shard: int, owner: str, version: str, query: Vectors) -> HotProducts | None:
        self.numbers.append(number)
        await self.go.wait()
        raise Overloaded("busy")


ENCODED = EncodedQuery("v", np.zeros(3, np.float32))


def test_each_shard_has_one_hot_shard_by_its_number_or_as_declared() -> None:
    assert [HotOptions(shards=3).holder(shard) for shard in range(5)] == [0, 1, 2, 0, 1]
    declared = msgspec.convert({"declared": [[3], [0, 4]], "shards": 9}, HotOptions)
    assert [declared.holder(shard) for shard in range(5)] == [1, None, None, 0, 1]
    with pytest.raises(msgspec.ValidationError, match="one hot shard"):
        msgspec.convert({"declared": [[1], [0, 1]]}, HotOptions)


def test_a_shard_that_no_hot_shard_has_is_asked_of_none() -> None:
    way = Slow()
    asking = HotShards(way, HotOptions(declared=((1,),)), 1.0)
    assert asyncio.run(asking.given(0, "o", ENCODED, time.monotonic() + 5)) is ENCODED
    assert way.numbers == []


def test_no_more_are_asked_at_once_than_the_bound() -> None:
    async def work() -> None:
        way = Slow()
        asking = HotShards(way, HotOptions(wait_s=10), 1.0)
        ends = time.monotonic() + 10
        reads = [asyncio.create_task(asking.given(0, "o", ENCODED, ends)) for _ in range(ASKED_MAX)]
        await asyncio.sleep(0)
        assert await asking.given(0, "o", ENCODED, ends) is ENCODED
        assert len(way.numbers) == ASKED_MAX
        way.go.set()
        assert all(one is ENCODED for one in await asyncio.gather(*reads))
        counts = {name: value for name, _, value in asking.figures()}
        assert counts["memstrata_hot_shard_crowded"] == ASKED_MAX + 1
        assert asking.troubles() == []  # one that is busy is not in trouble

    asyncio.run(work())


def test_without_a_way_to_hot_shards_there_is_no_service(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match='placement = "deployment" is for clusters'):
        Running(hash_settings(tmp_path, hot=HOT))
