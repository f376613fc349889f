"""New turns on gateways: from the writers' memory and not from the store, over the moves and deaths of writers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.in_process import SETTLED_S, Cluster, Gateway

NEVER: dict[str, Any] = {"poll_s": 60, "look_s": 60, "stale_s": 1.0}
"""Of the store."""

SHARDS = 2


async def shown(cluster: Cluster, gateway: Gateway, user: str, turns: list[str]) -> float:
    """Wait until the gateway has these; seconds it took."""
    began = time.monotonic()
    while await cluster.turns(user, "s", gateway) != turns:
        assert time.monotonic() - began < SETTLED_S
        await asyncio.sleep(0.005)
    return time.monotonic() - began


def played(folder: Path, act: Callable[[Cluster], Awaitable[None]]) -> None:
    async def scene() -> None:
        async with Cluster(folder, SHARDS) as cluster:
            await cluster.add("writer-0", "writer-1")
            await cluster.settled()
            for shard in range(SHARDS):
                await cluster.append(cluster.user_in(shard), "s", "first")
            await act(cluster)

    asyncio.run(scene())


def test_news_come_to_each_gateway_without_a_look_at_the_store(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        gateways = [await cluster.gateway(f"gateway-{number}", **NEVER) for number in range(2)]
        users = [cluster.user_in(shard) for shard in range(SHARDS)]
        took, turns = [], ["first"]
        for number in range(5):
            turns.append(f"turn {number}")
            for user in users:
                await cluster.append(user, "s", turns[-1])
                took += [await shown(cluster, gateway, user, turns) for gateway in gateways]
        print(f"{sorted(took)[len(took) // 2] * 1000:.0f} ms in the middle, {max(took) * 1000:.0f} ms at most")
        assert sorted(took)[len(took) // 2] < 1.0

    played(tmp_path, act)


def test_who_is_idle_asks_each_writer_only_now_and_then(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.remove("writer-1")
        await cluster.settled()
        await cluster.gateway("gateway", **NEVER)
        await asyncio.sleep(2.0)
        before = cluster.pulls
        await asyncio.sleep(2.0)
        assert 2 <= cluster.pulls - before <= 8  # one writer of two shards, and 2.5 calls a second

    played(tmp_path, act)


def test_after_a_move_news_come_from_the_new_owner(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        gateway = await cluster.gateway("gateway", **NEVER)
        await cluster.remove("writer-0")
        await cluster.settled()
        for shard in range(SHARDS):
            user = cluster.user_in(shard)
            await cluster.append(user, "s", "second")
            await shown(cluster, gateway, user, ["first", "second"])

    played(tmp_path, act)


@pytest.mark.parametrize("dies", [False, True])
def test_where_a_writer_does_not_relay_the_store_is_read(tmp_path: Path, dies: bool) -> None:
    async def act(cluster: Cluster) -> None:
        gateway = await cluster.gateway("gateway", poll_s=0.05, stale_s=0.5)
        user, lost = cluster.user_in(0), cluster.upstream.leases.writers[0]
        if dies:
            cluster.drop(lost)
        cluster.mute |= {"writer-0", "writer-1"}
        await cluster.append(user, "s", "second")
        await shown(cluster, gateway, user, ["first", "second"])
        cluster.mute.clear()
        await cluster.append(user, "s", "third")
        await shown(cluster, gateway, user, ["first", "second", "third"])

    played(tmp_path, act)


def test_a_gateway_stops_while_its_writers_hang(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        gateway = await cluster.gateway("gateway", stale_s=30.0)
        for writer in cluster.hosts:
            cluster.ways.pause(writer)
        began = time.monotonic()
        await gateway.stop()
        assert time.monotonic() - began < 10

    played(tmp_path, act)
