"""A writer's replica: the host of the one-shard services whose leases it has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from serve_app.asgi import Answered, Asked
from serve_app.cluster.messages import Wanted
from serve_app.deployments.place import Place, placed_apart
from serve_app.deployments.ways import WATCH_S, ServeControl
from serve_app.stores.relay import Segment


class WriterReplica:
    """`cluster.host.Host` as gateways call it. It is on its way as soon as it is there, and takes leases when it is."""

    def __init__(self, place: Place) -> None:
        from serve_app.cluster.host import Host  # in the replica, not where the application is built
        from serve_app.deployments.beside import DECLARED

        place.enter()
        settings = place.settings("writer", place.writer)
        self._host = Host(place.writer, settings, ServeControl(), **DECLARED.parts(placed_apart(settings)))
        self._starting = asyncio.get_running_loop().create_task(self._host.start())

    async def ask(self, shard: int, asked: Asked, within_s: float) -> Answered:
        """Raises ShardElsewhere, StoreUnavailable."""
        await asyncio.wait({self._starting})  # one that could not start holds nothing, and says so
        return await self._host.ask(shard, asked, within_s)

    async def segments(self, wanted: Mapping[int, Wanted], wait_s: float) -> dict[int, list[Segment] | None]:
        return await self._host.segments(wanted, wait_s)

    async def watch(self, hold_s: float) -> None:
        """A call that stands while this process lives."""
        await asyncio.sleep(min(hold_s, WATCH_S))

    async def check_health(self) -> None:
        """A host that could not start, or beats no more, is no good: raises why, and Serve starts another replica."""
        if self._starting.done():
            self._starting.result()
            self._host.check()

    async def __del__(self) -> None:
        """Serve calls it when nothing is asked any more: the shards go to other writers."""
        await self._host.stop()
