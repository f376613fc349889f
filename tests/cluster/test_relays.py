"""How the followers of one gateway ask writers together: in few calls, and told in time where nobody answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from serve_app.asgi import Answered, Asked
from serve_app.cluster.messages import Leases, Wanted
from serve_app.cluster.relays import Relays
from serve_app.cluster.rings import Rings
from serve_app.errors import MemstrataError, NotFound, ShardElsewhere, StoreUnavailable
from serve_app.stores.relay import Segment

Found = dict[int, list[Segment] | None]


class Writers:
    """`WriterCalls` to writers that each have rings."""

    def __init__(self, *names: str) -> None:
        self.rings = {name: Rings() for name in names}
        self.calls: list[tuple[str, dict[int, Wanted]]] = []
        self.hangs = False
        self.leaves_out: Callable[[int], bool] = lambda shard: False

    async def ask(self, writer: str, shard: int, asked: Asked, within_s: float) -> Answered:
        raise NotImplementedError

    async def segments(self, writer: str, wanted: Mapping[int, Wanted], wait_s: float) -> Found:
        self.calls.append((writer, dict(wanted)))
        if self.hangs:
            await asyncio.sleep(60)
        if writer not in self.rings:
            raise ShardElsewhere(f"{writer} is not there")
        found = await self.rings[writer].segments(wanted, wait_s)
        return {shard: one for shard, one in found.items() if not self.leaves_out(shard)}

    def open(self, writer: str, *shards: int) -> None:
        for shard in shards:
            self.rings[writer].opened(shard).put(1, b"fence")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


async def asked(relays: Relays, shard: int, after: int = 1, wait_s: float = 0.4) -> list[Segment]:
    return list(await asyncio.to_thread(relays.of(shard).segments, after, wait_s, "me"))


async def refused(relays: Relays, shard: int, error: type[MemstrataError], after: int = 1) -> float:
    began = time.monotonic()
    with pytest.raises(MemstrataError) as raised:
        await asked(relays, shard, after)
    assert type(raised.value) is error
    return time.monotonic() - began


def test_followers_of_one_writers_shards_ask_in_one_call_and_stay_together() -> None:
    async def work() -> None:
        writers = Writers("a", "b")
        writers.open("a", 0, 1, 2)
        writers.open("b", 3)
        relays = Relays(lambda: Leases(1, ("a", "a", "a", "b")), writers)

        async def follower(shard: int) -> None:
            ends = time.monotonic() + 2.0
            await asyncio.sleep(0.1 * shard)  # they begin apart
            while time.monotonic() < ends:
                assert await asked(relays, shard) == []

        await asyncio.gather(*map(follower, range(4)))
        settled = writers.calls[len(writers.calls) // 2 : -4]
        assert {writer for writer, _ in settled} == {"a", "b"}
        together = [set(wanted) == {0, 1, 2} for writer, wanted in settled if writer == "a"]
        assert sum(together) > len(together) / 2
        assert all(one == Wanted("me", 1) for _, wanted in settled for one in wanted.values())
        relays.close()

    run(work())


def test_news_come_at_once_and_go_to_those_who_asked() -> None:
    async def work() -> None:
        writers = Writers("a")
        writers.open("a", 0)
        ring = writers.rings["a"].opened(1)
        ring.put(1, b"fence")
        relays = Relays(lambda: Leases(1, ("a", "a")), writers)
        both = [asyncio.create_task(asked(relays, shard, wait_s=9.0)) for shard in (0, 1)]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        ring.put(2, b"news")
        assert await asyncio.gather(*both) == [[], [Segment(2, b"news")]]
        assert time.monotonic() - began < 2
        relays.close()

    run(work())


def test_who_has_the_shard_now_is_asked() -> None:
    async def work() -> None:
        writers, leases = Writers("a", "b"), [Leases(1, ("a",))]
        writers.open("b", 0)
        relays = Relays(lambda: leases[0], writers)
        await refused(relays, 0, NotFound)
        leases[0] = Leases(2, ("b",))
        assert await asked(relays, 0) == []
        leases[0] = Leases(3, ("",))
        await refused(relays, 0, StoreUnavailable)
        leases[0] = Leases(4, ("nobody-there",))
        await refused(relays, 0, StoreUnavailable)
        relays.close()

    run(work())


def test_a_writer_that_hangs_is_given_up() -> None:
    async def work() -> None:
        writers = Writers("a")
        relays = Relays(lambda: Leases(1, ("a",)), writers)
        writers.hangs = True
        assert 0.7 < await refused(relays, 0, StoreUnavailable) < 5
        relays.close()

    run(work())


def test_what_is_left_out_of_an_answer_is_asked_for_again() -> None:
    async def work() -> None:
        writers = Writers("a")
        writers.open("a", 0, 1)
        left_out = [True, True, False]
        writers.leaves_out = lambda shard: shard == 1 and left_out.pop(0)
        relays = Relays(lambda: Leases(1, ("a", "a")), writers)
        both = await asyncio.gather(asked(relays, 0, 0), asked(relays, 1, 0, 9.0))
        assert both == [[Segment(1, b"fence")]] * 2
        assert [set(wanted) for _, wanted in writers.calls] == [{0, 1}, {1}, {1}]
        relays.close()

    run(work())


def test_when_the_gateway_ends_nobody_waits() -> None:
    async def work() -> None:
        writers = Writers("a")
        writers.open("a", 0)
        relays = Relays(lambda: Leases(1, ("a",)), writers)
        waiting = asyncio.create_task(asked(relays, 0, wait_s=20.0))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        relays.close()
        with pytest.raises(StoreUnavailable):
            await waiting
        await refused(relays, 0, StoreUnavailable)
        assert time.monotonic() - began < 5

    run(work())


def test_when_the_loop_has_ended_a_follower_is_told() -> None:
    async def made() -> Relays:
        return Relays(lambda: Leases(1, ("a",)), Writers("a"))

    relays = asyncio.run(made())
    with pytest.raises(StoreUnavailable):
        relays.of(0).segments(1, 0.1, "me")
