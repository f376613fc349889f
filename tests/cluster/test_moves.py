"""Shards that move between hosts under load: nothing acknowledged is lost or there twice, and every read is right."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serve_app.cluster.lease_file import LeaseFile
from serve_app.stores.documents_disk import DiskDocuments
from tests.cluster.in_process import Cluster
from tests.cluster.load import Load

WHILE_S = 0.3
"""Of load between two changes."""


def played(folder: Path, act: Callable[[Cluster, Load], Awaitable[None]], hosts: int = 2) -> Load:
    """Two or more hosts under load; `act` changes them, then everything is looked at."""

    async def scene() -> Load:
        async with Cluster(folder) as cluster:
            await cluster.add(*(f"writer-{number}" for number in range(hosts)))
            await cluster.settled()
            async with Load(cluster) as load:
                await asyncio.sleep(WHILE_S)
                await act(cluster, load)
                await cluster.settled()
                await asyncio.sleep(WHILE_S)
            await load.check()
            print(f"{load.acknowledged} acknowledged, {len(load.unknown)} unknown, longest {load.longest_s:.2f} s")
            assert load.errors == []
            return load

    return asyncio.run(scene())


def test_hosts_that_come_and_go_cost_time_and_no_error(tmp_path: Path) -> None:
    async def act(cluster: Cluster, load: Load) -> None:
        await cluster.add("writer-2")
        await cluster.settled()
        await cluster.remove("writer-0")
        await cluster.settled()

    load = played(tmp_path, act)
    assert load.unknown == load.refused == []


def test_a_host_that_is_lost_and_lives_on_is_fenced_off(tmp_path: Path) -> None:
    async def act(cluster: Cluster, load: Load) -> None:
        cluster.drop("writer-0")
        await cluster.settled()

    load = played(tmp_path, act)
    assert load.refused == []
    named = {user.name for user in load.users if user.named}
    assert [turn for turn in load.unknown if turn.partition(" ")[0] in named] == []


def test_of_two_hosts_that_believe_in_one_shard_the_fence_chooses_one(tmp_path: Path) -> None:
    async def act(cluster: Cluster, load: Load) -> None:
        paused = cluster.hosts.pop("writer-0")
        cluster.ways.pause("writer-0")
        await cluster.settled()
        assert paused.open, "it still believes in its shards"
        cluster.hosts["writer-0"] = paused
        cluster.ways.wake("writer-0")
        await cluster.settled()

    load = played(tmp_path, act)
    assert load.refused == []


def test_a_restart_of_control_goes_unnoticed(tmp_path: Path) -> None:
    async def act(cluster: Cluster, load: Load) -> None:
        before = LeaseFile(DiskDocuments(tmp_path / "store")).read()
        await cluster.stop_control()
        await asyncio.sleep(6 * WHILE_S)  # longer than a writer may be silent
        await cluster.start_control()
        await asyncio.sleep(2 * WHILE_S)
        assert LeaseFile(DiskDocuments(tmp_path / "store")).read() == before

    load = played(tmp_path, act)
    assert load.unknown == load.refused == []


def test_a_host_that_is_lost_while_control_is_away_is_missed_when_it_is_back(tmp_path: Path) -> None:
    async def act(cluster: Cluster, load: Load) -> None:
        await cluster.stop_control()
        cluster.drop("writer-0")
        await asyncio.sleep(WHILE_S)
        await cluster.start_control()
        await cluster.settled()

    assert played(tmp_path, act, hosts=3).refused == []


def test_answers_that_get_lost_leave_nothing_done_twice(tmp_path: Path) -> None:
    async def act(cluster: Cluster, load: Load) -> None:
        counted = itertools.count()
        cluster.ways.lose = lambda: next(counted) % 7 == 0
        await asyncio.sleep(WHILE_S)
        cluster.ways.lose = lambda: False

    load = played(tmp_path, act)
    assert load.unknown, "those without ids cannot be sent again"


@pytest.mark.slow
def test_many_changes_one_after_the_other(tmp_path: Path) -> None:
    async def act(cluster: Cluster, load: Load) -> None:
        for number in range(12):
            name = f"writer-{number % 3}"
            match number % 4:
                case 0:
                    cluster.drop(name)
                    await cluster.settled()
                    cluster.ways.cut.discard(name)
                    await cluster.add(name)
                case 1:
                    await cluster.remove(name)
                    await cluster.add(name)
                case 2:
                    await cluster.stop_control()
                    await cluster.start_control()
                case _:
                    cluster.ways.pause(name)
                    await asyncio.sleep(1.0)
                    cluster.ways.wake(name)
            await cluster.settled()

    assert played(tmp_path, act, hosts=3).refused == []
