"""The local engine: the service in one process under uvicorn, without Ray.

For tests, fault checks, notebooks and small installations. The application is the one that the Ray engine serves;
only who calls it differs.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from functools import cache

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from serve_app.asgi import Answered, AsgiService, Compose

STOP_S = 5
"""What requests in flight have to finish after a signal."""

CLIENT_IDLE_S = 75
BACKLOG = 4096

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
    """Uvicorn's protocol, with two bounds more: of a head, and of the requests that are let in.

    Uvicorn's parser holds a head (or trailers) of any length; here an unfinished one has its bound, give or take one
    read of the socket. And where the service has no time for a request (`AsgiService.refusal`), it is answered here,
    once its head is read, without a task: its body is read past.
    """

    _unfinished_bytes = 0
    """Received since the last head, piece of a body or message that was complete."""

    _refused = False
    """Whether the request whose body comes in has its answer already."""

    def data_received(self, data: bytes) -> None:
        self._unfinished_bytes += len(data)
        super().data_received(data)
        if self._unfinished_bytes > HEAD_BYTES_MAX:
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._unfinished_bytes = 0
        refusal = self.config.app.refusal(self.url) if self._idle else None  # type: ignore[union-attr]
        self._refused = refusal is not None
        if refusal is None:
            super().on_headers_complete()
        else:
            self.transport.write(_wire(refusal))

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = 0
        if not self._refused:
            super().on_message_complete()
        elif self.parser.should_keep_alive():
            self.on_response_complete()
        else:
            self.transport.close()

    @property
    def _idle(self) -> bool:
        """Whether no earlier request of this connection waits for its answer: answers go out in order."""
        return self.cycle is None or self.cycle.response_complete


@cache
def _wire(answered: Answered) -> bytes:
    lines = [STATUS_LINE[answered.status], *(b"%b: %b\r\n" % header for header in answered.headers)]
    return b"".join([*lines, b"\r\n", answered.body])


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
