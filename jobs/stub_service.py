"""The service's side of a backfill as small as it can be: fences, ranges, and what came. For measurements and tests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from serve_app.core import EmbeddingVersion
from serve_app.migrate.intervals import Intervals, added, missing
from serve_app.migrate.units import Claim, Item, ShardLeft, Taken, Units


class StubService:
    """Serves on a free port until `close`."""

    def __init__(
        self, version: EmbeddingVersion, options: dict[str, Any], through: Sequence[int], *, keep: bool = True
    ) -> None:
        """`keep`: what comes; else it is counted alone."""
        self._keep, self.written = keep, 0
        self.version, self.options, self.through = version, options, tuple(through)
        self.fence = 0
        self.done: list[Intervals] = [()] * len(self.through)
        self.items: list[Item] = []
        self.calls: list[Units] = []
        self.rest_s = 0.0
        self.refusals: list[tuple[int, str]] = []
        """Status and code of the next answers, before anything else."""
        self.lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self._answer(service._claim)

            def do_PUT(self) -> None:
                self._answer(service._put)

            def _answer(self, handle: Any) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                with service.lock:
                    status, answer = handle(body)
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def units(self) -> list[Units]:
        """The calls that brought something."""
        return [one for one in self.calls if one.items or one.done]

    @property
    def left(self) -> tuple[ShardLeft, ...]:
        return tuple(ShardLeft(at, self.through[at], done) for at, done in enumerate(self.done))

    def _claim(self, body: bytes) -> tuple[int, bytes]:
        if self.refusals:
            return self._refusal()
        self.fence += 1
        return 200, msgspec.msgpack.encode(Claim(self.fence, self.version, self.options, self.left))

    def _put(self, body: bytes) -> tuple[int, bytes]:
        units = msgspec.msgpack.decode(body, type=Units)
        if self._keep:
            self.calls.append(units)
        if (units.items or units.done) and self.refusals:
            return self._refusal()
        if units.fence != self.fence:
            return 409, msgspec.json.encode({"code": "migration_fenced", "detail": "another job"})
        self.written += len(units.items)
        if self._keep:
            self.items += units.items
        if units.done is not None:
            self.done[units.shard] = added(self.done[units.shard], units.done)
        complete = not any(missing(one.done, one.through) for one in self.left)
        taken = Taken(len(units.items), rest_s=self.rest_s, complete=complete, shards=self.left)
        return 200, msgspec.msgpack.encode(taken)

    def _refusal(self) -> tuple[int, bytes]:
        status, code = self.refusals.pop(0)
        return status, msgspec.json.encode({"code": code, "detail": "told to refuse"})
