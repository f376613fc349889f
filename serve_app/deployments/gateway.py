"""The ingress deployment: the service as a raw ASGI application on the replica's own event loop.

Serve starts an ASGI application by the lifespan protocol before a replica counts as ready, and ends it by the same:
the service is composed, recovered and stopped there, and nowhere else in a replica.
"""

from __future__ import annotations

import os

import ray

from serve_app.asgi import AsgiService, Compose, Receive, Scope, Send
from serve_app.deployments.place import Place
from serve_app.errors import MemstrataError


class Gateway:
    """Adapts a service to a Serve replica: lifespan to compose, start and stop it, everything else passed through."""

    def __init__(self, compose: Compose, place: Place) -> None:
        place.enter()  # else a killed service's replica would hold the data folder's lock for a while
        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address  # for the jobs that the service starts
        self._compose = compose
        self._service: AsgiService

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._service(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        try:
            self._service = self._compose()
            await self._service.start()
        except MemstrataError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})  # Serve logs it and gives up
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        await self._service.stop()
        await send({"type": "lifespan.shutdown.complete"})
