"""What a process of writers tells followers: at once when there is news, and never more than an answer may hold."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

from serve_app.cluster.messages import Wanted
from serve_app.cluster.rings import ANSWER_BYTES, Rings
from serve_app.stores.relay import Segment


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def wanted(*numbers: int) -> dict[int, Wanted]:
    return {shard: Wanted("one", number) for shard, number in enumerate(numbers)}


def test_news_of_one_shard_ends_the_wait_for_all() -> None:
    async def work() -> None:
        rings = Rings()
        for shard in (0, 1):
            rings.opened(shard).put(1, b"fence")
        ring = rings.opened(2)
        ring.put(5, b"fence")
        began, threads = time.monotonic(), threading.active_count()
        waiting = asyncio.create_task(rings.segments(wanted(1, 1, 5), 9.0))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert threading.active_count() == threads
        making = threading.Thread(target=lambda: ring.put(6, b"news"))
        making.start()
        assert await waiting == {0: [], 1: [], 2: [Segment(6, b"news")]}
        assert time.monotonic() - began < 5
        making.join()

    run(work())


def test_without_news_the_answer_comes_when_it_is_time() -> None:
    async def work() -> None:
        rings = Rings()
        rings.opened(0).put(1, b"fence")
        began = time.monotonic()
        assert await rings.segments(wanted(1), 0.2) == {0: []}
        assert 0.19 < time.monotonic() - began < 5

    run(work())


def test_what_is_not_held_is_said_at_once() -> None:
    async def work() -> None:
        rings = Rings()
        rings.opened(0).put(3, b"fence")
        assert await rings.segments(wanted(3, 0), 9.0) == {0: [], 1: None}
        assert await rings.segments(wanted(1), 9.0) == {0: None}
        rings.closed(0)
        assert await rings.segments(wanted(3), 9.0) == {0: None}
        rings.opened(0)
        assert await rings.segments(wanted(3), 9.0) == {0: None}

    run(work())


def test_a_ring_that_forgets_ends_the_wait() -> None:
    async def work() -> None:
        rings = Rings()
        ring = rings.opened(0)
        ring.put(1, b"fence")
        waiting = asyncio.create_task(rings.segments(wanted(1), 9.0))
        await asyncio.sleep(0.05)
        ring.clear()
        assert await waiting == {0: None}

    run(work())


def test_an_answer_is_bounded() -> None:
    async def work() -> None:
        rings = Rings()
        for shard in range(3):
            ring = rings.opened(shard)
            ring.put(1, b"fence")
            ring.put(2, bytes(ANSWER_BYTES - 1))
        found = await rings.segments(wanted(1, 1, 1), 9.0)
        assert set(found) == {0, 1}
        assert set(await rings.segments({2: Wanted("one", 1)}, 9.0)) == {2}

    run(work())
