"""A small chat server on loopback that says what a test tells it to, in the shape of OpenAI's API."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Asked = dict[str, Any]
Answer = Callable[[Asked, Callable[[], bool]], Asked]
"""Of what is asked; the second argument says whether whoever asked has gone."""


class ChatServer:
    """Answers with `content`, after `delay_s`, with `status`; keeps what it was asked and with which key.

    `answer` makes a whole answer of what is asked, in place of `content`. `drips`: blanks without end, one every so
    many seconds. `resets`: it breaks the connection off.
    """

    def __init__(self, answer: Answer | None = None, port: int = 0) -> None:
        self.content: str | None = "{}"
        self.contents: list[str] = []
        """Said first, one after the other."""
        self.finish = "stop"
        self.status = 200
        self.delay_s = 0.0
        self.raw: bytes | None = None
        """In place of a well-formed answer."""
        self.drips: float | None = None
        self.resets = False
        self.headers: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.keys: list[str | None] = []
        self._answer = answer or self._as_told
        self._closed = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                owner.asked.append(asked)
                owner.keys.append(self.headers.get("authorization"))
                owner._closed.wait(owner.delay_s)
                if owner.resets:
                    self._reset()
                elif owner.drips is not None:
                    self._drip(owner.drips)
                else:
                    raw = owner.raw
                    self._say(json.dumps(owner._answer(asked, self._gone)).encode() if raw is None else raw)

            def _say(self, said: bytes) -> None:
                self.send_response(owner.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(said)))
                for name, value in owner.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said)

            def _gone(self) -> bool:
                readable, _, _ = select.select([self.connection], [], [], 0)
                return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

            def _drip(self, pause_s: float) -> None:
                self.send_response(owner.status)
                self.end_headers()
                try:
                    while not owner._closed.wait(pause_s):
                        self.wfile.write(b" ")
                except OSError:
                    pass  # nobody listens any more

            def _reset(self) -> None:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

        self._server = _QuietServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def says(self, rewritten: str, keywords: list[str] | None = None, window: Any = None) -> None:
        self.content = json.dumps({"rewritten": rewritten, "keywords": keywords or [], "time_window": window})

    @property
    def question(self) -> dict[str, Any]:
        """What it was asked last, beside its instruction."""
        found: dict[str, Any] = json.loads(self.asked[-1]["messages"][1]["content"])
        return found

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def _as_told(self, asked: Asked, gone: Callable[[], bool]) -> Asked:
        content = self.contents.pop(0) if self.contents else self.content
        message = {"role": "assistant", "content": content}
        return {"choices": [{"index": 0, "message": message, "finish_reason": self.finish}]}


class _QuietServer(ThreadingHTTPServer):
    request_queue_size = 64
    """With the default of 5, callers who come at once wait a second for another try."""

    def handle_error(self, *_: Any) -> None:
        """Whoever breaks off is no news."""
