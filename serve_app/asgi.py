"""The words of ASGI 3 (https://asgi.readthedocs.io), and what an engine asks of the service that it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class AsgiService(Protocol):
    """An HTTP application with a beginning and an end. One event loop runs all three."""

    async def start(self) -> None:
        """Recover and load; raises MemstrataError if the service cannot be."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; `scope["type"]` is always "http"."""
        ...

    async def stop(self) -> None:
        """Finish what is in flight and let go of the data folder."""
        ...


Compose = Callable[[], AsgiService]
"""Builds the service, without starting it, in the process that will run it."""
