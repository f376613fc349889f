"""What the machine could give: one process that does the least a search needs, as fast as Python can.

`python -m benchmarks.ceiling …` serves MiniLM on one torch thread with
natural batching, exact inner products per user, BM25, and their fusion, all in memory: no durability, no
authentication, no limits, no other routes. `/torch` runs the encoder alone, no server in between.

The vectors of the stored turns are drawn at random: what a search costs does not depend on what they say, and
embedding the whole corpus twice would take longer than all the rest. Queries are embedded in earnest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import uvicorn
from transformers import AutoModel, AutoTokenizer

NUMBER_FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BATCH_TEXTS = 32
TOKENS_MAX = 256
DIMENSION = 384
SEED = 7
DENSE_SHARE, LEXICAL_SHARE = 0.6, 0.4
BM25_K1, BM25_B = 1.2, 0.75
WORD = re.compile(r"\w+")

Vectors = Any


class Encoder:
    def __init__(self, folder: Path, number_format: str) -> None:
        torch.set_num_threads(1)
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model = AutoModel.from_pretrained(folder, dtype=NUMBER_FORMATS[number_format], local_files_only=True)
        self._model.eval()

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> Vectors:
        tokens = self._tokenizer(list(texts), padding=True, truncation=True, max_length=TOKENS_MAX, return_tensors="pt")
        hidden = self._model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(2).to(hidden.dtype)
        pooled = ((hidden * mask).sum(1) / mask.sum(1)).float()
        return torch.nn.functional.normalize(pooled, dim=1).numpy()

    def rate(self, texts: list[str], seconds: float) -> float:
        """Texts a second, in batches of texts of one length, which are taken from all over the range of lengths."""
        ordered = sorted(texts, key=len)
        batches = [ordered[at : at + BATCH_TEXTS] for at in range(0, len(ordered), BATCH_TEXTS)]
        np.random.default_rng(SEED).shuffle(batches)
        self(batches[0][:1])
        done, started = 0, time.perf_counter()
        while (took := time.perf_counter() - started) < seconds:
            batch = batches[done // BATCH_TEXTS % len(batches)]
            self(batch)
            done += BATCH_TEXTS
        return done / took


class User:
    """The turns of one user: vectors, and for each word the turns that hold it with their BM25 weights."""

    def __init__(self, texts: list[str], source: np.random.Generator) -> None:
        self.texts = texts
        vectors = source.normal(size=(len(texts), DIMENSION)).astype(np.float32)
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        self.postings = _postings(texts)

    def best(self, query: str, vector: Vectors, count: int) -> list[dict[str, Any]]:
        dense, lexical = self.vectors @ vector, np.zeros(len(self.texts), np.float32)
        for word in set(WORD.findall(query.lower())):
            if (found := self.postings.get(word)) is not None:
                lexical[found[0]] += found[1]
        scores = DENSE_SHARE * _scaled(dense) + LEXICAL_SHARE * _scaled(lexical)
        count = min(count, len(scores))
        top = np.argpartition(-scores, count - 1)[:count]
        top = top[np.argsort(-scores[top])]
        return [{"id": int(at), "content": self.texts[at], "score": float(scores[at])} for at in top]


def _postings(texts: list[str]) -> dict[str, tuple[Any, Any]]:
    counts = [Counter(WORD.findall(text.lower())) for text in texts]
    lengths = np.array([count.total() for count in counts], np.float32)
    held: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, count in enumerate(counts):
        for word, times in count.items():
            held[word].append((at, times))
    relative = lengths / max(1.0, float(lengths.mean()))
    postings = {}
    for word, places in held.items():
        at, times = np.array([place for place, _ in places]), np.array([count for _, count in places], np.float32)
        rarity = math.log(1 + (len(texts) - len(at) + 0.5) / (len(at) + 0.5))
        damped = times + BM25_K1 * (1 - BM25_B + BM25_B * relative[at])
        postings[word] = (at, rarity * times * (BM25_K1 + 1) / damped)
    return postings


def _scaled(scores: Any) -> Any:
    least = scores.min()
    return (scores - least) / ((scores.max() - least) or 1.0)


class App:
    """ASGI. A query waits for the batch in hand and joins the next; there is no timer."""

    def __init__(self, encoder: Encoder, users: dict[str, User], texts: dict[str, list[str]]) -> None:
        self._encoder, self._users, self._texts = encoder, users, texts
        self._waiting: list[tuple[str, asyncio.Future[Vectors]]] = []
        self._thread = ThreadPoolExecutor(1)
        self._batching: asyncio.Task[None] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message.get("body", b"")
        asked = msgspec.json.decode(body + message.get("body", b"") or b"{}")
        answer = await self._answer(scope["path"], asked)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        if path == "/search":
            vector = await self._vector(asked["query"])
            found = self._users[asked["user_id"]].best(asked["query"], vector, asked["k"])
            return msgspec.json.encode({"results": found})
        if path == "/torch":
            run = (self._encoder.rate, self._texts[asked["texts"]], asked["seconds"])
            return msgspec.json.encode({"rate": await asyncio.get_running_loop().run_in_executor(self._thread, *run)})
        return b"{}"

    async def _vector(self, text: str) -> Vectors:
        future: asyncio.Future[Vectors] = asyncio.get_running_loop().create_future()
        self._waiting.append((text, future))
        if self._batching is None:
            self._batching = asyncio.create_task(self._run_batches())
        return await future

    async def _run_batches(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH_TEXTS], self._waiting[BATCH_TEXTS:]
            texts = [text for text, _ in batch]
            vectors = await asyncio.get_running_loop().run_in_executor(self._thread, self._encoder, texts)
            for (_, future), vector in zip(batch, vectors, strict=True):
                future.set_result(vector)
        self._batching = None


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--model", type=Path, required=True)
    words.add_argument("--turns", type=Path, required=True)
    words.add_argument("--port", type=int, required=True)
    words.add_argument("--number-format", choices=NUMBER_FORMATS, required=True)
    args = words.parse_args()
    given = json.loads(args.turns.read_text())
    source = np.random.default_rng(SEED)
    by_user: dict[str, list[str]] = defaultdict(list)
    for user, text in given["turns"]:
        by_user[user].append(text)
    users = {user: User(texts, source) for user, texts in by_user.items()}
    lengths = {"turns": [text for _, text in given["turns"]], "short": given["short"]}
    app = App(Encoder(args.model, args.number_format), users, lengths)
    uvicorn.run(app, host="127.0.0.1", port=args.port, lifespan="off", access_log=False, log_level="error")


if __name__ == "__main__":
    main()
