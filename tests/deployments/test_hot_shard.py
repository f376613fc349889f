"""The way to hot shards on Ray Serve, by handles of this process; and a cluster whose gateway asks one."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from ray.exceptions import ActorUnavailableError
from ray.serve.exceptions import BackPressureError

from serve_app.deployments.ways import ServeHotShards
from serve_app.errors import HotShardUnavailable, MemstrataError, NotFound, Overloaded
from serve_app.ports import HotProducts
from tests.deployments.cluster import ServedCluster
from tests.deployments.served import wait_until

FOUND = HotProducts(np.array([1, 2]), np.zeros(2, np.float32), 7)
QUERY = np.zeros(3, np.float32)


class Thrown(Exception):
    """As Ray wraps what was raised over there."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


class Method:
    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer

    async def remote(self, *given: Any) -> Any:
        return await self._answer(*given)


class Replicas:
    """As a handle of Serve's: of replicas that answer, fail, or just wait."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.fails: list[Exception] = []
        self.well = asyncio.Event()
        self.well.set()
        self.products, self.alive = Method(self._products), Method(self._alive)

    async def _products(self, *given: Any) -> HotProducts:
        self.asked.append(given)
        await self._alive()
        if self.fails:
            raise self.fails.pop(0)
        return FOUND

    async def _alive(self) -> None:
        await self.well.wait()


def run(work: Callable[[ServeHotShards, Replicas, list[tuple[str, str]]], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        replicas, opens = Replicas(), list[tuple[str, str]]()

        def open_handle(*names: str) -> Replicas:
            opens.append(names)  # type: ignore[arg-type]
            return replicas

        ways = ServeHotShards(open_handle)
        try:
            await work(ways, replicas, opens)
        finally:
            ways.close()

    asyncio.run(asyncio.wait_for(whole(), 30))


def ask(ways: ServeHotShards, number: int = 0) -> Coroutine[Any, Any, HotProducts | None]:
    return ways.products(number, 3, "owner", "v", QUERY)


def test_each_is_found_by_its_name_and_answers() -> None:
    async def work(ways: ServeHotShards, replicas: Replicas, opens: list[tuple[str, str]]) -> None:
        assert [await ask(ways, 2), await ask(ways, 2), await ask(ways)] == [FOUND] * 3
        assert opens == [("HotShard-2", "memstrata-hot-2"), ("HotShard-0", "memstrata-hot-0")]
        assert replicas.asked == [(3, "owner", "v", QUERY)] * 3

    run(work)


def test_of_several_replicas_one_that_dies_costs_no_answer() -> None:
    async def work(ways: ServeHotShards, replicas: Replicas, opens: list[tuple[str, str]]) -> None:
        replicas.fails = [ActorUnavailableError("gone", b"1" * 16)]
        assert await ask(ways) is FOUND

    run(work)


@pytest.mark.parametrize(
    ("thrown", "error"),
    [
        (Thrown(NotFound("no such shard")), NotFound),
        (Thrown(Overloaded("much")), Overloaded),
        (ValueError("whatever"), HotShardUnavailable),
        (BackPressureError(1, 1), HotShardUnavailable),
    ],
)
def test_whatever_goes_wrong_is_an_error_of_ours(thrown: Exception, error: type[MemstrataError]) -> None:
    async def work(ways: ServeHotShards, replicas: Replicas, opens: list[tuple[str, str]]) -> None:
        replicas.fails = [thrown] * 3
        with pytest.raises(MemstrataError) as raised:
            await ask(ways)
        assert type(raised.value) is error

    run(work)


def test_one_that_does_not_answer_is_refused_at_once_until_it_does() -> None:
    async def work(ways: ServeHotShards, replicas: Replicas, opens: list[tuple[str, str]]) -> None:
        assert await ask(ways) is FOUND
        await asyncio.sleep(0.1)
        replicas.well.clear()
        with pytest.raises(HotShardUnavailable):
            await ask(ways)
        began, asked = time.monotonic(), len(replicas.asked)
        with pytest.raises(HotShardUnavailable):
            await ask(ways)
        assert time.monotonic() - began < 0.2
        assert len(replicas.asked) == asked
        replicas.well.set()
        while True:
            try:
                assert await ask(ways) is FOUND
                return
            except HotShardUnavailable:
                await asyncio.sleep(0.05)

    run(work)


def settled(condition: Callable[[], bool]) -> bool:
    return wait_until(condition, 120)


@pytest.mark.ray
@pytest.mark.slow
def test_a_gateway_of_a_cluster_asks_its_hot_shard_and_needs_none() -> None:
    with tempfile.TemporaryDirectory(prefix="d", ignore_cleanup_errors=True) as name:
        nodes = {"head": {"head": 100, "gateways": 100, "writers": 100}}
        served = ServedCluster(Path(name), gateways=1, writers=1, shards=2, hot_shards=1, nodes=nodes)
        try:
            asked_of_a_cluster(served.ready())
        finally:
            served.end()


def asked_of_a_cluster(served: ServedCluster) -> None:
    client = httpx.Client(
        base_url=served.url, headers={"Authorization": f"Bearer {served.key}"}, trust_env=False, timeout=30
    )

    def found() -> list[tuple[str, float]]:
        asked = {"user_id": "ada", "query": "river number", "mode": "dense", "k": 20, "min_receipt": receipt}
        answer = client.post("/v1/search", json=asked)
        assert answer.status_code == 200, answer.text
        return [(one["id"], one["score"]) for one in answer.json()["results"]]

    def figure(outcome: str) -> float:
        return float(client.get("/metrics").text.split(f"\nmemstrata_hot_shard_{outcome} ")[1].split()[0])

    def more(outcome: str) -> bool:
        """Whether one more search has this outcome, and finds what the ones before it found."""
        before = figure(outcome)
        assert found() == first
        return figure(outcome) > before

    turns = [{"id": str(n), "role": "user", "content": f"river lamp number {n}"} for n in range(40)]
    answer = client.post("/v1/sessions/s/turns", json={"user_id": "ada", "turns": turns, "wait": "indexed"})
    assert answer.status_code == 201, answer.text
    receipt = answer.json()["receipt"]
    assert settled(lambda: len(found()) == 20)
    first = found()
    assert settled(lambda: more("given")), served.told()
    [hot] = served.replicas("HotShard-0")
    os.kill(hot.process, signal.SIGKILL)
    assert settled(lambda: more("failed") or more("left_alone") or more("late"))
    assert settled(lambda: more("given")), served.told()
    assert [one.replica for one in served.replicas("HotShard-0") if one.state == "RUNNING"] != [hot.replica]
