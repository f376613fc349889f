"""Control's replica: who writes which shard. All that it knows stands in the store."""

from __future__ import annotations

import asyncio

from serve_app.cluster.messages import Beat, Leases
from serve_app.deployments.place import Place


class ControlReplica:
    """`cluster.control.Control` as gateways and writers call it."""

    def __init__(self, place: Place) -> None:
        from serve_app.cluster.control import Control  # in the replica, not where the application is built

        place.enter()
        self._control = Control(place.settings("writer", "control"))
        self._starting = asyncio.get_running_loop().create_task(self._control.start())

    async def beat(self, beat: Beat) -> Leases:
        await asyncio.shield(self._starting)
        return await self._control.beat(beat)

    async def leases(self, after: int) -> Leases:
        await asyncio.shield(self._starting)
        return await self._control.leases(after)

    async def check_health(self) -> None:
        """Where the store cannot be opened, or nobody is looked at: raises why, and Serve starts another replica."""
        if self._starting.done():
            self._starting.result()
            self._control.check()

    async def __del__(self) -> None:
        await self._control.stop()
