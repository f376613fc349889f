"""A way to an S3 server that throttles, is slow, or loses answers, as a store does under too much load."""

from __future__ import annotations

import http.client
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"

PASSED_ON = {"host", "connection", "transfer-encoding", "content-length"}


class Weather(NamedTuple):
    """What happens to a request: shares of all requests, and seconds that each takes longer."""

    throttled: float = 0.0
    """Answered 503 SlowDown, and not passed on."""

    lost: float = 0.0
    """Passed on, and answered 503 all the same."""

    delay_s: float = 0.0


FAIR = Weather()


class Throttled:
    """Listens on a port of loopback from `__init__` on, before the server at `host:port`."""

    def __init__(self, host: str, port: int, seed: int = 0) -> None:
        self.weather = FAIR
        self.requests = 0
        self._random = random.Random(seed)
        way = self

        class Request(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = self.rfile.read(length) if length else None
                status, headers, answer = way._answered(self.command, self.path, dict(self.headers), body)
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in PASSED_ON:
                        self.send_header(name, value)
                stated = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(answer))
                self.send_header("content-length", stated)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                """A client that went away."""

        self._target = (host, port)
        self._ways = threading.local()
        self._server = Server(("127.0.0.1", 0), Request)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.weather = FAIR
        self._server.shutdown()
        self._server.server_close()

    def _answered(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        self.requests += 1
        weather, drawn = self.weather, self._random.random()
        time.sleep(weather.delay_s)
        if drawn < weather.throttled:
            return 503, [("content-type", "application/xml")], SLOW_DOWN
        found = self._passed_on(method, path, headers, body)
        if drawn < weather.throttled + weather.lost:
            return 503, [("content-type", "application/xml")], SLOW_DOWN
        return found

    def _passed_on(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        kept = {name: value for name, value in headers.items() if name.lower() not in PASSED_ON}
        connection: http.client.HTTPConnection | None = getattr(self._ways, "connection", None)
        for fresh in (False, True):  # the server may have closed a connection that was kept
            if connection is None or fresh:
                connection = self._ways.connection = http.client.HTTPConnection(*self._target, timeout=30)
            try:
                connection.request(method, path, body, kept)
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except (http.client.HTTPException, OSError):
                if fresh:
                    raise
        raise AssertionError
