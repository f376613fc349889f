"""A tiny service of all kinds of models and a program that serves it: `python model_service.py ENGINE PORT MARKER`.

MODELS in the environment is a folder with a cross-encoder in `pairs` and a language model in `chat`. All of them run in
deployments, two replicas of the encoder, on the Ray engine whatever ENGINE says.

POST /vectors gives for so many new queries (`{"count": …}`) how long each one's vector is, /scores the scores of
`{"texts": […]}`, /summary what the language model says; or why there is nothing.
"""

import asyncio
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from serve_app.deployments import engine
from serve_app.errors import MemstrataError
from serve_app.models.embed import EncoderOptions
from serve_app.models.encoders import Encoders
from serve_app.models.placed import Placed
from serve_app.models.rerank import ModelOptions
from serve_app.models.summarise import CompressOptions, SummariserOptions
from serve_app.ports import SummaryTask

HOST, DEADLINE_S = "127.0.0.1", 20.0
ENCODER = EncoderOptions(model="hash-16", placement="deployment", deployment=Placed(replicas=2))


class ModelService:
    def __init__(self, models: Path, *, encoder: Any, queues: Any, reranker: Any, summarisers: Any) -> None:
        self._models, self._open, self._queues = models, encoder, queues
        self._open_reranker, self._open_summarisers = reranker, summarisers

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        embedder = self._open(ENCODER)
        self._encoders = Encoders([embedder], self._queues([embedder]))
        self._reranker = self._open_reranker(ModelOptions(model=str(self._models / "pairs"), placement="deployment"))
        chat = SummariserOptions(backend="transformers", model=str(self._models / "chat"))
        self._coarse, _ = self._open_summarisers(CompressOptions(chat, chat, placement="deployment"))

    def refusal(self, path: bytes) -> None:
        return None

    async def stop(self) -> None:
        for one in (self._encoders, self._reranker, self._coarse):
            await asyncio.to_thread(one.close)

    async def __call__(self, scope, receive, send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        try:
            said = await self._answer(scope["path"], json.loads(body or b"{}"))
        except (MemstrataError, TimeoutError) as error:
            said = str(error) or type(error).__name__
        answer = json.dumps(said).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, path: str, asked: dict[str, Any]) -> Any:
        within = time.monotonic() + DEADLINE_S
        if path == "/vectors":
            return await asyncio.gather(*(self._length(within) for _ in range(asked["count"])))
        if path == "/scores":
            scores = await asyncio.wrap_future(self._reranker.ask("q", asked["texts"], within))
            return scores.tolist()
        if path == "/summary":
            return [await asyncio.to_thread(self._coarse.summarise, SummaryTask("A long text.", 8), DEADLINE_S)]
        return {"torch": "torch" in sys.modules}

    async def _length(self, within: float) -> Any:
        """Of the vector of a text that nobody asked for before; else why there is none."""
        try:
            encoded = await asyncio.wrap_future(self._encoders.query("hash_16", os.urandom(8).hex(), deadline=within))
        except (MemstrataError, TimeoutError) as error:
            return str(error) or type(error).__name__
        return len(encoded.vector)


def main(_engine: str, port: str, _marker: str) -> int:
    compose = partial(ModelService, Path(os.environ["MODELS"]))
    return engine.serve(compose, HOST, int(port), lambda: None, beside=("encoder", "rerank", "compress"))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
