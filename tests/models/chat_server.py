"""A small chat server on loopback that says what a test tells it to, in the shape of OpenAI's API."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer:
    """Answers with `content`, after `delay_s`, with `status`; keeps what it was asked and with which key."""

    def __init__(self) -> None:
        self.content = "{}"
        self.status = 200
        self.delay_s = 0.0
        self.raw: bytes | None = None
        """In place of a well-formed answer."""
        self.headers: dict[str, str] = {}
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                owner.asked.append(json.loads(body))
                owner.keys.append(self.headers.get("authorization"))
                time.sleep(owner.delay_s)
                answer = {"choices": [{"message": {"role": "assistant", "content": owner.content}}]}
                said = json.dumps(answer).encode() if owner.raw is None else owner.raw
                self.send_response(owner.status)
                self.send_header("content-length", str(len(said)))
                for name, value in owner.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
        self._server.shutdown()
        self._server.server_close()
