"""A hot shard: a replica of the store whose vectors lie on its device, and that gives the products of one user's.

It follows the log of every shard as a gateway does, and loads a user from the tables when first asked. A device that is
lost is the business of the index below, which goes on from the host's copies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ray import serve

from serve_app.deployments.beside import DECLARED
from serve_app.deployments.place import Place, own_name, placed_apart
from serve_app.ports import HotProducts, Vectors

__all__ = ["HotShardReplica", "hot_shard", "hot_shard_deployment"]

ONGOING_MAX, QUEUED_MAX = 256, 1_024
"""Calls at work at once, and those of one gateway that wait; over it the gateway searches by itself."""

STOP_S = 20.0


def hot_shard_deployment(number: int) -> tuple[str, str]:
    """The names of a hot shard's deployment and application."""
    return f"HotShard-{number}", f"memstrata-hot-{number}"


class HotShardReplica:
    """`Service` in role `replica`, as gateways call it."""

    def __init__(self, place: Place) -> None:
        from serve_app.service import Service  # in the replica, not where the application is built

        place.enter()
        settings = place.settings("replica", own_name("hot"))
        self._service = Service(settings, **DECLARED.parts(placed_apart(settings)))
        self._starting = asyncio.get_running_loop().create_task(self._service.start())

    async def products(self, shard: int, owner: str, version: str, query: Vectors) -> HotProducts:
        """Raises StorageTrouble, NotFound."""
        await asyncio.shield(self._starting)
        return await self._service.hot_products(shard, owner, version, query)

    async def check_health(self) -> None:
        """One that could not start raises why, and Serve starts another."""
        if self._starting.done():
            self._starting.result()

    async def __del__(self) -> None:
        await self._service.stop()


def hot_shard(args: Mapping[str, str], number: int = 0, gpus: float = 1.0) -> serve.Application:
    """As the other builders of the cluster profile: `args` are those of `Place`, whose file has the `[hot]` section."""
    deployed = serve.deployment(
        name=hot_shard_deployment(number)[0],
        ray_actor_options={"num_cpus": 0, "num_gpus": gpus},
        num_replicas=1,
        max_ongoing_requests=ONGOING_MAX,
        max_queued_requests=QUEUED_MAX,
        graceful_shutdown_timeout_s=STOP_S,
    )
    application: serve.Application = deployed(HotShardReplica).bind(Place.of(args))
    return application
