"""Vectors on the event loop: outcomes that other threads bring, in time or not, and what a text costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from serve_app.errors import InvalidRequest
from serve_app.memory.encoding import Arrivals, Encoding
from serve_app.models.encoders import Encoders
from serve_app.models.stub import HashEmbedder
from serve_app.ports import EncodedQuery


class ByHand:
    """Queues whose futures the test settles."""

    def __init__(self) -> None:
        self.asked: dict[str, Future[Any]] = {}

    def query(self, version: str, text: str, *, solo: bool = False, deadline: float | None = None) -> Future[Any]:
        return self.asked.setdefault(text, Future())

    def passages(self, version: str, texts: Sequence[str]) -> Future[Any]:
        raise NotImplementedError

    passages_counted = passages

    def close(self) -> None:
        pass


def encoding(queues: ByHand) -> Encoding:
    return Encoding(Encoders([HashEmbedder()], queues), ThreadPoolExecutor(1))


def soon() -> float:
    return time.monotonic() + 10


def test_a_batch_that_another_thread_ends_reaches_everyone() -> None:
    async def run() -> None:
        queues = ByHand()
        one = encoding(queues)
        waiting = [asyncio.create_task(one.query(str(n), False, soon())) for n in range(40)]
        await asyncio.sleep(0)

        def settle() -> None:
            for name, future in queues.asked.items():
                future.set_result(EncodedQuery("v", np.full(3, int(name), np.float32)))

        await asyncio.to_thread(settle)
        for n, (encoded, reasons) in enumerate(await asyncio.wait_for(asyncio.gather(*waiting), 10)):
            assert encoded is not None
            assert (encoded.vector.tolist(), reasons) == ([n] * 3, ())

    asyncio.run(run())


def test_what_ends_before_the_loop_looks_wakes_it_once() -> None:
    class Counting(asyncio.SelectorEventLoop):
        calls = 0

        def call_soon_threadsafe(self, *args: Any, **more: Any) -> Any:
            self.calls += 1
            return super().call_soon_threadsafe(*args, **more)

    async def run() -> None:
        loop: Any = asyncio.get_running_loop()
        arrivals = Arrivals(loop)
        for _ in range(3):
            landed = [loop.create_future() for _ in range(20)]
            before = loop.calls
            for one in landed:
                arrivals.announce(one, Future())
            assert await asyncio.gather(*landed) == [True] * 20
            assert loop.calls == before + 1

    with asyncio.Runner(loop_factory=Counting) as runner:
        runner.run(run())


def test_late_is_late_and_nobody_waits_on() -> None:
    async def run() -> None:
        queues = ByHand()
        one = encoding(queues)
        assert await one.query("a", False, time.monotonic() + 0.05) == (None, ("dense: deadline",))
        assert queues.asked["a"].cancelled()
        leaving = asyncio.create_task(one.query("b", False, soon()))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert leaving.cancelled()
        assert queues.asked["b"].cancelled()

    asyncio.run(run())


def test_tokens_are_those_of_the_whole_text_however_much_is_read() -> None:
    embedder = HashEmbedder()
    encoders = Encoders([embedder])
    one = Encoding(encoders, ThreadPoolExecutor(1))
    texts = ["one two three", "word " * 1000, ""]
    vectors, tokens = asyncio.run(one.passages(texts, one.version()))
    encoders.close()
    assert tokens == sum(embedder.count(texts)) == 1003
    assert np.allclose(vectors, embedder.embed(texts), atol=1e-6)


def test_a_version_is_named_by_itself_or_by_its_model() -> None:
    encoders = Encoders([HashEmbedder(), HashEmbedder(32)])
    one = Encoding(encoders, ThreadPoolExecutor(1))
    assert [one.version(name).dimension for name in (None, "hash_64", "hash_32", "hash")] == [64, 64, 32, 64]
    with pytest.raises(InvalidRequest, match="active versions are 'hash_64' and 'hash_32'"):
        one.version("another")
    vectors, _ = asyncio.run(one.passages(["a"], one.version("hash_32")))
    assert vectors.shape == (1, 32)
    encoders.close()
