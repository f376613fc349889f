"""What a gateway of the cluster profile is made of: a service that follows the store, and its ways to the writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serve_app.asgi import Answered, AsgiService, Receive, Scope, Send
from serve_app.deployments.place import Place, own_name, placed_apart
from serve_app.deployments.ways import ServeControl, ServeHotShards, ServeWriters

__all__ = ["compose_gateway"]

STORE_S = 60.0
"""What Control has to make the store at the very first start of all."""


def compose_gateway(place: Place, **parts: Any) -> AsgiService:
    """To be called on the loop that the service will run on. Raises InvalidRequest."""
    from serve_app.cluster.lease_file import LeaseFile  # in the replica, not where the application is built
    from serve_app.cluster.relays import Relays
    from serve_app.cluster.upstream import Upstream
    from serve_app.deployments.beside import DECLARED
    from serve_app.service import Service

    settings = place.settings("gateway", own_name("gateway"))
    parts |= DECLARED.parts(placed_apart(settings))
    writers = ServeWriters()
    upstream = Upstream(ServeControl(), writers, LeaseFile(settings.files))
    relays = Relays(lambda: upstream.leases, writers)
    hot_shards = ServeHotShards() if settings.hot.placement == "deployment" else None
    service = Service(settings, upstream=upstream, relay=relays.of, hot_shards=hot_shards, **parts)
    return _Waiting(service, settings, relays, [one for one in (writers, hot_shards) if one is not None])


class _Waiting:
    """A service of a store that Control may still be making."""

    def __init__(
        self, service: AsgiService, settings: Any, relays: Any, ways: Sequence[ServeWriters | ServeHotShards]
    ) -> None:
        self._service, self._settings, self._relays, self._ways = service, settings, relays, ways

    async def start(self) -> None:
        from serve_app.cluster.founding import store_there

        await store_there(self._settings, STORE_S)
        await self._service.start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._service(scope, receive, send)

    def refusal(self, path: bytes) -> Answered | None:
        return self._service.refusal(path)

    async def stop(self) -> None:
        self._relays.close()  # first: so no follower waits for a writer while the service ends
        await self._service.stop()
        for way in self._ways:
            way.close()
