"""Shards that move between hosts, with a client that notices nothing but time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cluster.in_process import Cluster


def test_two_hosts_share_the_shards_and_answer_for_them(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.add("writer-0", "writer-1")
            await cluster.settled()
            assert sorted(len(host.open) for host in cluster.hosts.values()) == [2, 2]
            for shard in range(4):
                user = cluster.user_in(shard)
                assert (await cluster.append(user, "s", f"hello {shard}")).status == 201
                assert await cluster.turns(user, "s") == [f"hello {shard}"]
            await cluster.remove("writer-0")
            await cluster.settled()
            for shard in range(4):
                assert await cluster.turns(cluster.user_in(shard), "s") == [f"hello {shard}"]

    asyncio.run(scene())
