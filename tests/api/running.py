"""A whole service on an event loop of its own thread, asked through ASGI or, once it listens, through TCP."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec
import uvicorn
import uvloop

from serve_app.config import Settings, StoreOptions
from serve_app.models.embed import EncoderOptions
from serve_app.service import Service

T = TypeVar("T")

CALL_S = 60
WORD_LETTERS = "bcdfghklmnprstvz"


def hash_settings(data: Path, **sections: Any) -> Settings:
    """Settings of a small service that needs no model."""
    chosen = {"store": StoreOptions(shards=2), "encoder": EncoderOptions(model="hash")} | sections
    return Settings(data=str(data), **chosen)


class Running:
    """Started by `__init__`. Calls are made as the operator of tenant default, or with another `key`."""

    def __init__(self, settings: Settings, **injected: Any) -> None:
        self.settings = settings
        self.data = Path(settings.data)
        self.loop = uvloop.new_event_loop()  # as the engines do
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.service = Service(settings, **injected)
        try:
            self.run(self.service.start())
        except BaseException:
            self._end_loop()
            raise
        transport = httpx.ASGITransport(self.service, client=("127.0.0.1", 1))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://memstrata", timeout=CALL_S)
        self._server: uvicorn.Server | None = None

    @property
    def key(self) -> str:
        kept = self.data / "admin.key"
        found = None if kept.exists() else self.settings.files.read("admin.key")
        return (kept.read_bytes() if found is None else found.data or b"").decode().strip()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_S)

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
            self._serving.result(CALL_S)
        self.run(self._client.aclose())
        self.run(self.service.stop())
        self._end_loop()

    def again(self, **injected: Any) -> Running:
        """Stop, and start on the same data."""
        self.stop()
        return Running(self.settings, **injected)

    def listen(self) -> str:
        """Serve on a free port of loopback until `stop`; gives the address."""
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        options = uvicorn.Config(
            self.service, interface="asgi3", http="httptools", ws="none", lifespan="off", log_level="critical"
        )
        self._server = uvicorn.Server(options)
        self._serving = asyncio.run_coroutine_threadsafe(self._server._serve([listening]), self.loop)
        while not self._server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    # ---- calls

    def call(self, method: str, path: str, *, key: str | None = "", **arguments: Any) -> httpx.Response:
        """`key`: "" for the operator's, None for none."""
        return self.run(self.ask(method, path, key=key, **arguments))

    async def ask(self, method: str, path: str, *, key: str | None = "", **arguments: Any) -> httpx.Response:
        headers = dict(arguments.pop("headers", {}))
        if key is not None:
            headers["authorization"] = f"Bearer {key or self.key}"
        if "json" in arguments:
            arguments["content"] = msgspec.json.encode(arguments.pop("json"))
        return await self._client.request(method, path, headers=headers, **arguments)

    def ok(self, method: str, path: str, **arguments: Any) -> Any:
        answer = self.call(method, path, **arguments)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def make_key(self, **wanted: Any) -> str:
        return self.ok("POST", "/v1/admin/keys", json={"role": "app", **wanted})["key"]

    def append(self, user: str, session: str, *turns: Mapping[str, Any] | str, key: str = "", **more: Any) -> Any:
        body = {"user_id": user, "turns": [said(turn) for turn in turns], **more}
        return self.ok("POST", f"/v1/sessions/{quoted(session)}/turns", json=body, key=key)

    def turns(self, user: str, session: str, **query: Any) -> list[dict[str, Any]]:
        asked = {"user_id": user, "limit": 1000, **query}
        return self.ok("GET", f"/v1/sessions/{quoted(session)}/turns", params=asked)["turns"]

    def search(self, user: str, query: str = "", **more: Any) -> Any:
        return self.ok("POST", "/v1/search", json={"user_id": user, "query": query, **more})

    def found(self, user: str, query: str = "", **more: Any) -> list[str]:
        return [result["content"] for result in self.search(user, query, **more)["results"]]

    def context(self, user: str, query: str = "And now?", budget: int = 2000, **more: Any) -> Any:
        return self.ok("POST", "/v1/context", json={"user_id": user, "query": query, "budget_tokens": budget, **more})

    def fold(self) -> None:
        self.ok("POST", "/v1/admin/maintenance", json={"action": "fold"})

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CALL_S)
        self.loop.close()


def said(turn: Mapping[str, Any] | str) -> dict[str, Any]:
    return {"role": "user", "content": turn} if isinstance(turn, str) else dict(turn)


def quoted(identifier: str) -> str:
    """As a segment of a path; httpx would take dots for a way up."""
    return quote(identifier, safe="").replace(".", "%2E")


def word(number: int) -> str:
    """A word for each number, of letters that no stemmer takes for an ending."""
    letters = ""
    for _ in range(6):
        number, rest = divmod(number, len(WORD_LETTERS))
        letters += WORD_LETTERS[rest] + "aou"[rest % 3]
    return letters


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem+json of a refusal, checked."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "code", "detail"}
    assert (problem["status"], problem["code"]) == (status, code), problem
    assert problem["type"] == f"urn:memstrata:error:{code}"
    assert problem["title"]
    assert problem["detail"]
    assert len(answer.content) < 2_000
    return problem
