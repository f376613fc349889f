"""A tiny service and a program that serves it: `python echo_service.py ENGINE PORT MARKER [PROXY]`.

Answers what it was asked; writes what happened to it into the file MARKER. FAIL in the environment makes it fail to
start.
"""

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path

from serve_app.asgi import Answered
from serve_app.errors import StoreUnavailable

HOST = "127.0.0.1"


class EchoService:
    def __init__(self, marker: Path) -> None:
        self._marker = marker

    async def start(self) -> None:
        if "FAIL" in os.environ:
            raise StoreUnavailable("the data folder is held by another service")
        self._write("started")
        print("a word from the service", file=sys.stderr, flush=True)

    def refusal(self, path: bytes) -> Answered | None:
        headers = ((b"content-length", b"4"), (b"retry-after", b"7"))
        return Answered(429, headers, b"full") if path == b"/crowded" else None

    async def stop(self) -> None:
        self._write("stopped")

    async def __call__(self, scope, receive, send) -> None:
        size = 0
        if scope["path"] == "/slow":
            await asyncio.sleep(0.2)
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        headers = dict(scope["headers"])
        echo = {
            "raw_path": scope["raw_path"].decode(),
            "path": scope["path"],
            "bytes": size,
            "authorization": headers.get(b"authorization", b"").decode(),
        }
        body = json.dumps(echo).encode()
        status = 413 if scope["path"] == "/too-large" else 200
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body})

    def _write(self, word: str) -> None:
        with self._marker.open("a") as file:
            file.write(f"{word} ray={'ray' in sys.modules}\n")


def main(engine: str, port: str, marker: str, proxy: str | None = None) -> int:
    compose = partial(EchoService, Path(marker))
    if engine == "local":
        from serve_app import local

        return local.serve(compose, HOST, int(port), lambda: None)
    from serve_app.deployments import engine as ray_engine

    return ray_engine.serve(compose, HOST, int(port), lambda: None, proxy=proxy)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
