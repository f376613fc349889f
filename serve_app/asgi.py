"""The words of ASGI 3 (https://asgi.readthedocs.io), and what an engine asks of the service that it serves.

`Asked` and `Answered` are one request and its answer as values, for those who pass them on between processes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, Protocol

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

    def refusal(self, path: bytes) -> Answered | None:
        """What a request that comes in now is to be answered unread, where there is no time for it; None: let it in.

        For engines that can do so; whatever else comes is refused by the service itself, at a higher cost.
        """
        ...

    async def stop(self) -> None:
        """Finish what is in flight and let go of the data folder."""
        ...


Compose = Callable[[], AsgiService]
"""Builds the service, without starting it, in the process that will run it."""


NOTE_HITS = "NOTE_HITS"
"""In the place of an HTTP method in `Asked`: hits that a gateway has noted. Also the type of its scope, which no HTTP
server gives to anything that comes from outside.
"""


class Asked(NamedTuple):
    """One request, its body read whole."""

    method: str
    path: bytes
    """As it was sent, undecoded."""
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Answered(NamedTuple):
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
