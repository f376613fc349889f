"""A tiny service of encoders and a program that serves it: `python version_service.py ENGINE PORT MARKER`.

It begins with the models that MODELS in the environment names, on the Ray engine whatever ENGINE says.

POST /add and /remove name a model as `{"model": "hash-16"}`; /vectors gives how long its vector of `{"text": …}` is, or
why there is none.
"""

import asyncio
import json
import os
import sys
from functools import partial
from typing import Any

from serve_app.deployments import engine
from serve_app.errors import MemstrataError
from serve_app.models.embed import EncoderOptions
from serve_app.models.encoders import Encoders

HOST = "127.0.0.1"
DEADLINE_S = 5.0


class VersionService:
    def __init__(self, models: list[str], *, encoder: Any, queues: Any) -> None:
        self._models, self._open, self._queues = models, encoder, queues

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        embedders = [self._open(EncoderOptions(model=model)) for model in self._models]
        self._encoders = Encoders(embedders, self._queues(embedders))

    def refusal(self, path: bytes) -> None:
        return None

    async def stop(self) -> None:
        await asyncio.to_thread(self._encoders.close)

    async def __call__(self, scope, receive, send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer = json.dumps(await self._answer(scope["path"], json.loads(body or b"{}"))).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, path: str, asked: dict[str, str]) -> Any:
        if path == "/":
            return {"gateway": os.getpid(), "torch": "torch" in sys.modules}
        version = asked["model"].replace("-", "_")
        if path == "/add":
            return await asyncio.to_thread(self._encoders.add, self._open(EncoderOptions(model=asked["model"])))
        if path == "/remove":
            return await asyncio.to_thread(self._encoders.remove, version)
        try:
            within = asyncio.get_running_loop().time() + DEADLINE_S
            encoded = await asyncio.wrap_future(self._encoders.query(version, asked["text"], deadline=within))
        except (MemstrataError, TimeoutError) as error:
            return str(error) or type(error).__name__
        return len(encoded.vector)


def main(_engine: str, port: str, _marker: str) -> int:
    compose = partial(VersionService, os.environ["MODELS"].split())
    return engine.serve(compose, HOST, int(port), lambda: None, beside=("encoder",))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
