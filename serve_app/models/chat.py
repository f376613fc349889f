"""One way to ask a chat model behind an OpenAI-compatible server. It answers in time or is left out.

One try within a deadline, a bounded number at once, a bounded answer; after some faults in a row the server is left
alone for a while, then one call tries it again. Nothing that is asked or answered is logged, the key appears in no
message, and no setting of the environment redirects a call.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import httpx
import msgspec
from msgspec import Meta

from serve_app.breaker import Breaker
from serve_app.errors import InvalidRequest, MemstrataError
from serve_app.models.plain import Said

__all__ = ["ANSWER_BYTES_MAX", "AT_ONCE_MAX", "FAULTS_MAX", "TELLING_SHARE", "ChatClient", "ChatOptions"]

AT_ONCE_MAX: Final = 16
"""Calls in flight; beyond it doing without is quicker than waiting."""

FAULTS_MAX: Final = 3
"""Faults in a row after which the server is left alone for `rest_s`; then one call tries it again."""

ANSWER_BYTES_MAX: Final = 64 << 10

TELLING_SHARE: Final = 0.5
"""A caller who gave less than so much of the server's own time has learned nothing about it when that was too short."""

T = TypeVar("T")
OF_NO_USE = (msgspec.MsgspecError, ValueError, LookupError, TypeError, OverflowError, RecursionError)


class ChatOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that has `/chat/completions` below `url`, and one of its models.

    The key comes from the environment variable or the file that is named, or there is none.
    """

    url: str = ""
    model: str = ""
    key_env: str = ""
    key_file: str = ""
    deadline_ms: Annotated[int, Meta(ge=1, le=60_000)] = 800
    rest_s: Annotated[float, Meta(ge=0, le=3_600)] = 30.0

    @property
    def whole(self) -> bool:
        """Whether a server is named."""
        return self.url.startswith(("http://", "https://")) and bool(self.model)

    def key(self, section: str) -> str:
        """Raises InvalidRequest where the named place holds none; `section` is of the configuration."""
        try:
            found = Path(self.key_file).read_text("utf-8") if self.key_file else os.environ.get(self.key_env, "")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{section}.key_file: {self.key_file}: {type(error).__name__}") from error
        if (self.key_file or self.key_env) and not found.strip():
            raise InvalidRequest(f"{section}: there is no key in {self.key_file or self.key_env}")
        return found.strip()


class ChatClient:
    """Owned by one event loop."""

    def __init__(
        self,
        options: ChatOptions,
        section: str,
        failed: Callable[[str], MemstrataError],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`failed` is what every fault becomes. Raises InvalidRequest where the key is missing."""
        self._options = options
        self._key = options.key(section)
        self._failed = failed
        self._http: httpx.AsyncClient | None = None
        self._at_once = 0
        self.breaker = Breaker(section, FAULTS_MAX, options.rest_s, clock)

    async def ask(self, question: Mapping[str, Any], deadline_s: float | None, read: Callable[[Said], T]) -> T:
        """What `read` makes of the answer; it raises ValueError and the like for one of no use.

        Raises what `failed` makes, within the server's own deadline or the given one, whichever is earlier.
        """
        if self._at_once >= AT_ONCE_MAX:
            raise self._failed("too many at once")
        if not self.breaker.admit():
            raise self._failed("left alone after faults")
        self._at_once += 1
        try:
            return await self._judged(question, deadline_s, read)
        finally:
            self._at_once -= 1

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def _judged(self, question: Mapping[str, Any], deadline_s: float | None, read: Callable[[Said], T]) -> T:
        """As `_tried`, and the breaker is told what became of it."""
        own_s = self._options.deadline_ms / 1e3
        within_s = own_s if deadline_s is None else min(own_s, max(deadline_s, 0.0))
        try:
            found = await self._tried(question, within_s, read)
        except MemstrataError as error:
            hurried = isinstance(error.__cause__, TimeoutError) and within_s < own_s * TELLING_SHARE
            (self.breaker.released if hurried else self.breaker.failed)()
            raise
        except BaseException:  # given up by the caller
            self.breaker.released()
            raise
        self.breaker.succeeded()
        return found

    async def _tried(self, question: Mapping[str, Any], within_s: float, read: Callable[[Said], T]) -> T:
        try:
            async with asyncio.timeout(within_s):
                return read(_said(await self._body(question)))
        except TimeoutError as error:
            raise self._failed("deadline") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._failed("server unreachable") from error
        except OF_NO_USE as error:
            raise self._failed("answer of no use") from error

    async def _body(self, question: Mapping[str, Any]) -> bytes:
        """Of the answer. Raises what `failed` makes for a status, httpx.HTTPError, ValueError."""
        address = f"{self._options.url.rstrip('/')}/chat/completions"
        asked = {"model": self._options.model, "temperature": 0, **question}
        async with self._connected().stream("POST", address, json=asked) as answer:
            if answer.status_code != httpx.codes.OK:
                raise self._failed(f"status {answer.status_code}")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise ValueError("a few bytes may unfold to gigabytes")
            body = bytearray()
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise ValueError("no answer is so long")
            return bytes(body)

    def _connected(self) -> httpx.AsyncClient:
        if self._http is None:
            headers = {"accept-encoding": "identity"} | ({"authorization": f"Bearer {self._key}"} if self._key else {})
            limits = httpx.Limits(max_connections=AT_ONCE_MAX, max_keepalive_connections=AT_ONCE_MAX)
            self._http = httpx.AsyncClient(headers=headers, limits=limits, timeout=None, trust_env=False)  # noqa: S113
        return self._http


def _said(body: bytes) -> Said:
    """Raises msgspec.MsgspecError, LookupError and the like for what is no answer of a chat server."""
    choice = msgspec.json.decode(body)["choices"][0]
    content = choice["message"]["content"]
    if not isinstance(content, str | None):
        raise TypeError("what it said is no text")
    return Said(content or "", whole=choice.get("finish_reason") in (None, "stop"))
