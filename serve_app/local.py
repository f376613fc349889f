"""The local engine: the service in one process under uvicorn, without Ray.

For tests, fault checks, notebooks and small installations. The application is the one that the Ray engine serves;
only who calls it differs.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serve_app.asgi import AsgiService, Compose

STOP_S = 5
"""What requests in flight have to finish after a signal."""

CLIENT_IDLE_S = 75
BACKLOG = 2048

HEAD_BYTES_MAX = 64 << 10
"""What a client may send before a head is complete, or between two pieces of a body; then it is cut off."""


def serve(compose: Compose, host: str, port: int, on_start: Callable[[], None]) -> int:
    """Serve on `host:port` until SIGINT or SIGTERM; gives the exit status. `on_start` is called first.

    Raises MemstrataError if the service cannot start, OSError if the address is taken.
    """
    on_start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(compose(), host, port))
    return 0


class BoundedHeads(HttpToolsProtocol):
    """Uvicorn's protocol, whose parser holds a head (or trailers) of any length: this one holds a bounded part.

    The bound is that of an unfinished head, give or take one read of the socket.
    """

    _unfinished_bytes = 0
    """Received since the last head, piece of a body or message that was complete."""

    def data_received(self, data: bytes) -> None:
        self._unfinished_bytes += len(data)
        super().data_received(data)
        if self._unfinished_bytes > HEAD_BYTES_MAX:
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._unfinished_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = 0
        super().on_message_complete()


async def _serve(service: AsgiService, host: str, port: int) -> None:
    _leave_signals_to_uvicorn()
    server = uvicorn.Server(_options(service))
    with _bound(host, port) as address:
        # The service starts while it is served: it says itself that it lives and is not ready yet.
        serving = asyncio.create_task(server.serve(sockets=[address]))
        try:
            await service.start()
        except BaseException:
            server.should_exit = True
            await serving
            raise
        await serving
        await service.stop()


def _leave_signals_to_uvicorn() -> None:
    """It ends on SIGINT and SIGTERM, and then raises them again for whoever was there before: nobody must die of it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)


def _bound(host: str, port: int) -> socket.socket:
    address = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        address.bind((host, port))
    except OSError:
        address.close()
        raise
    return address


def _options(service: AsgiService) -> uvicorn.Config:
    return uvicorn.Config(
        service,
        interface="asgi3",
        http=BoundedHeads,
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=CLIENT_IDLE_S,
        timeout_graceful_shutdown=STOP_S,
    )
