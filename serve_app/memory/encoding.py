"""The encoder as requests see it: a vector in time, or the reason why there is none.

Waits on the event loop, computes nothing there. Whatever an encoder throws becomes a reason (search
and context go on without vectors) or EncoderUnavailable (who asked for vectors gets none).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Protocol, TypeVar

from serve_app.breaker import Breaker
from serve_app.core import EmbeddingVersion
from serve_app.errors import EncoderUnavailable, InvalidRequest, MemstrataError, Overloaded
from serve_app.ports import EncodedQuery, Encodings, Vectors
from serve_app.routing import Routing

T = TypeVar("T")

_log = logging.getLogger(__name__)

FAULTS_MAX, REST_S = 3, 2.0
"""An encoder that gave nothing so often in a row is left alone for so long, unless told otherwise; then one query
tries it.
"""

SLOW_S = 0.1
"""Who waited for less than that learns nothing about the encoder."""

PAST = float("-inf")
"""A deadline by which nothing can be computed any more."""

PASSAGES_WAIT_S = 60.0
"""How long a call for vectors waits; many calls may be ahead of it."""


class Encoders(Protocol):
    """What requests need of the encoders."""

    @property
    def versions(self) -> tuple[EmbeddingVersion, ...]: ...

    def of_query(self, text: str) -> str: ...

    def query(
        self, version: str, text: str, *, solo: bool = False, deadline: float | None = None
    ) -> Future[EncodedQuery]: ...

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]: ...

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]: ...

    def count(self, version: str, texts: Sequence[str]) -> list[int]: ...


class Encoding:
    def __init__(self, encoders: Encoders, pool: Executor, rest_s: float = REST_S) -> None:
        self._encoders = encoders
        self._pool = pool
        self._arrivals: Arrivals | None = None
        self._rest_s = rest_s
        self._breakers: dict[str, Breaker] = {}

    @property
    def breakers(self) -> Mapping[str, Breaker]:
        """By version, of those that are held."""
        return {version.name: self._breaker(version.name) for version in self._encoders.versions}

    def _breaker(self, version: str) -> Breaker:
        """Of a version that may have come while the service runs."""
        found = self._breakers.get(version)
        return found or self._breakers.setdefault(version, Breaker(f"encoder-{version}", FAULTS_MAX, self._rest_s))

    def version(self, named: str | None = None) -> EmbeddingVersion:
        """The active version of this name, or of the model of this name; the primary one without a name.

        Raises InvalidRequest.
        """
        versions = self._encoders.versions
        found = [version for version in versions if named in (None, version.name, version.model)]
        if not found:
            active = "version is" if len(versions) == 1 else "versions are"
            raise InvalidRequest(f"model: the active {active} {' and '.join(repr(one.name) for one in versions)}")
        return found[0]

    async def query(
        self, text: str, solo: bool, deadline: float, routing: Routing | None = None
    ) -> tuple[EncodedQuery | None, tuple[str, ...]]:
        """The query's vector by `deadline` (monotonic), or the reason why there is none.

        `routing`: that which serves who asks; without it the base one.
        """
        version = (routing or self._encoders).of_query(text)
        breaker = self._breaker(version)
        if not breaker.admit():
            known = self._known(version, text, solo)
            return (None, ("dense: left_alone",)) if known is None else (known, ())
        limit_s = deadline - time.monotonic()
        try:
            asked = self._encoders.query(version, text, solo=solo, deadline=deadline)
        except MemstrataError as error:
            breaker.released()
            return None, (f"dense: {error.code}",)
        at_once = asked.done()  # from a cache: that says nothing about the encoder
        try:
            encoded = await self._outcome(asked, limit_s)
        except asyncio.CancelledError:
            breaker.released()
            raise
        if at_once:
            breaker.released()
        else:
            _note(breaker, encoded, limit_s)
        return (None, (f"dense: {_reason(encoded)}",)) if isinstance(encoded, BaseException) else (encoded, ())

    def _known(self, version: str, text: str, solo: bool) -> EncodedQuery | None:
        """The query's vector where it need not be computed."""
        try:
            asked = self._encoders.query(version, text, solo=solo, deadline=PAST)
        except MemstrataError:
            return None
        return asked.result() if asked.done() and asked.exception() is None else None

    async def required(self, text: str, deadline: float) -> EncodedQuery:
        """The same for who cannot do without. Raises EncoderUnavailable."""
        encoded, reasons = await self.query(text, False, deadline)
        if encoded is None:
            raise EncoderUnavailable(f"the encoder gives no vector: {', '.join(reasons)}")
        return encoded

    async def encodings(self, version: str, texts: Sequence[str]) -> Encodings:
        """What that version makes of the texts, their tokens included. Raises Overloaded, EncoderUnavailable."""
        outcome = await self._outcome(self._encoders.passages(version, texts), PASSAGES_WAIT_S)
        return _given(outcome)

    def counts(self, texts: Sequence[str], version: str | None = None) -> list[int]:
        """Tokens of each text. Blocking."""
        return self._encoders.count(self.version(version).name, texts)

    async def passages(self, texts: Sequence[str], version: EmbeddingVersion) -> tuple[Vectors, int]:
        """Vectors, shape (len(texts), dimension), and the tokens of all texts.

        Raises Overloaded, EncoderUnavailable.
        """
        asked = self._encoders.passages_counted(version.name, texts)
        outcome = await self._outcome(asked, PASSAGES_WAIT_S)
        encodings = _given(outcome)
        return encodings.vectors, await self._all_tokens(texts, encodings.counts, version)

    async def _all_tokens(self, texts: Sequence[str], read: Sequence[int], version: EmbeddingVersion) -> int:
        """The sum over texts of which so many tokens were read; where that may not be all, the rest is counted too."""
        cut = [text for text, tokens in zip(texts, read, strict=True) if tokens >= version.max_tokens]
        whole = sum(tokens for tokens in read if tokens < version.max_tokens)
        if not cut:
            return whole
        counting = asyncio.get_running_loop().run_in_executor(self._pool, self._encoders.count, version.name, cut)
        return whole + sum(await counting)

    async def _outcome(self, asked: Future[T], limit_s: float) -> T | BaseException:
        """What came within the limit; after it nobody waits any more."""
        if not asked.done() and not await self._landed(asked, limit_s):
            return TimeoutError()
        return asked.exception() or asked.result()

    async def _landed(self, asked: Future[Any], limit_s: float) -> bool:
        loop = asyncio.get_running_loop()
        if self._arrivals is None or self._arrivals.loop is not loop:
            self._arrivals = Arrivals(loop)
        landed: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(max(0.0, limit_s), _tell, landed, False)
        asked.add_done_callback(partial(self._arrivals.announce, landed))
        try:
            return await landed
        finally:
            timer.cancel()
            asked.cancel()  # nothing, unless the time is over or whoever waited has gone


class Arrivals:
    """The way of what other threads finish to one event loop: whatever is finished before it looks, by one wake-up.

    Each wake-up writes to a pipe and asks for the interpreter's lock; an encoder's batch ends dozens of waits at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[asyncio.Future[bool]] = deque()
        self._called = False

    def announce(self, landed: asyncio.Future[bool], _: Future[Any]) -> None:
        """From any thread."""
        self._arrived.append(landed)
        if not self._called and not self.loop.is_closed():
            self._called = True
            self.loop.call_soon_threadsafe(self._tell_all)

    def _tell_all(self) -> None:
        self._called = False  # first: what is appended from here on calls again, or is told below
        while self._arrived:
            _tell(self._arrived.popleft(), True)


def _tell(landed: asyncio.Future[bool], came: bool) -> None:
    if not landed.done():
        landed.set_result(came)


def _note(breaker: Breaker, outcome: EncodedQuery | BaseException, waited_s: float) -> None:
    """What an outcome says about the encoder."""
    if not isinstance(outcome, BaseException):
        breaker.succeeded()
    elif isinstance(outcome, Overloaded) or (isinstance(outcome, TimeoutError) and waited_s < SLOW_S):
        breaker.released()
    else:
        breaker.failed()


def _given(outcome: Encodings | BaseException) -> Encodings:
    """Raises Overloaded, EncoderUnavailable."""
    if isinstance(outcome, MemstrataError):
        raise outcome
    if isinstance(outcome, BaseException):
        raise EncoderUnavailable(f"the encoder gives no vectors: {_reason(outcome)}") from outcome
    return outcome


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "deadline"
    if isinstance(error, MemstrataError):
        return error.code
    _log.warning("the encoder failed: %s", type(error).__name__)  # its text may quote what was to be embedded
    return "encoder_failed"
