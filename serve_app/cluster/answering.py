"""One request that came as a value, answered by a service of this process, and what its answer says of a move."""

from __future__ import annotations

import asyncio
from typing import Protocol
from urllib.parse import unquote_to_bytes

import msgspec

from serve_app.asgi import NOTE_HITS, Answered, Asked, Message, Receive, Scope, Send
from serve_app.errors import Overloaded

__all__ = ["ANSWER_BYTES_MAX", "answered", "not_done_here"]

ANSWER_BYTES_MAX = 64 << 20
"""Of one answer: the long ones (exports) are not for this way."""

NOT_DONE = frozenset({"shard_elsewhere", "writer_fenced", "not_ready"})
"""Codes of answers that say: nothing was done, and another process, or this one in a moment, can do it."""


class Application(Protocol):
    """An ASGI application, as far as it answers requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class _Said(msgspec.Struct):
    code: str = ""
    detail: str = ""


_said = msgspec.json.Decoder(_Said)


class _Answer:
    """What the service sends, put together."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: tuple[tuple[bytes, bytes], ...] = ()
        self.pieces: list[bytes] = []
        self._bytes = 0

    async def send(self, message: Message) -> None:
        """Raises Overloaded where it gets too long, out of the service that sends it."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], tuple((name, value) for name, value in message["headers"])
            return
        piece: bytes = message.get("body", b"")
        self._bytes += len(piece)
        if self._bytes > ANSWER_BYTES_MAX:
            raise Overloaded(f"an answer of more than {ANSWER_BYTES_MAX} bytes; ask for less at a time")
        self.pieces.append(piece)


async def answered(service: Application, asked: Asked) -> Answered:
    """Have it answer. Raises Overloaded for an answer that is too long."""
    answer = _Answer()
    await service(_scope(asked), _body(asked.body), answer.send)
    return Answered(answer.status, answer.headers, b"".join(answer.pieces))


def not_done_here(answer: Answered) -> str | None:
    """Why this answer may be asked for again elsewhere, whatever was asked; None for every other answer."""
    if answer.status != 503:
        return None
    try:
        said = _said.decode(answer.body)
    except msgspec.DecodeError:
        return None
    return said.detail if said.code in NOT_DONE else None


def _scope(asked: Asked) -> Scope:
    return {
        "type": NOTE_HITS if asked.method == NOTE_HITS else "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": asked.method,
        "path": unquote_to_bytes(asked.path).decode("utf-8", "replace"),
        "raw_path": asked.path,
        "query_string": asked.query,
        "root_path": "",
        "headers": list(asked.headers),
        "client": None,
        "server": None,
    }


def _body(body: bytes) -> Receive:
    """The body once; after it the caller is there for as long as anybody waits."""
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            await asyncio.get_running_loop().create_future()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
