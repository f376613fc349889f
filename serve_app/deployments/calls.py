"""The calls of one version's deployment, made on the gateway's loop for any thread that asks.

Each version has its own: what is known of its deployment, the calls under way and the queries whose vectors came. So a
deployment that is gone or slow costs the vectors of its version and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from serve_app.errors import EncoderUnavailable, MemstrataError, Overloaded
from serve_app.models.batching import EmbedLimits
from serve_app.models.query_cache import QueryCache, QueryKey, owned, query_key
from serve_app.ports import EncodedQuery, Encodings

__all__ = ["CALLS_MAX", "VersionCalls"]

T = TypeVar("T")
Remote = Callable[[Any], Any]
"""One call by the deployment's handle."""

CALLS_MAX = 2048
"""Calls to one deployment under way; above it the answer is Overloaded."""

CALL_S = 120.0
"""The longest that a call is left waiting, whatever happened to it: the first one waits for the weights."""

START_S = 120.0
"""What the first replica has to come up."""

BEAT_S = 0.25
"""Between two looks at whether the encoder answers."""

BEAT_LIMIT_S = 1.5
"""An encoder that does not answer for so long is gone, or no better than gone."""


class VersionCalls:
    """What an `EmbedService` is to a service. Its methods may be called from any thread."""

    def __init__(self, version: str, open_handle: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        """`open_handle` gives the handle of the deployment's `EmbedderReplica`; it is called on the loop, once."""
        self._version, self._loop = version, loop
        self._open_handle, self._handle = open_handle, None
        self._lock = threading.Lock()
        self._cache = QueryCache(EmbedLimits().query_vectors_max, EmbedLimits().query_bytes_max)
        self._under_way = 0
        self._gone = False
        self._closed = False
        self._loss: asyncio.Future[None] | None = None
        self._end: asyncio.Future[None] | None = None
        self._beating = asyncio.run_coroutine_threadsafe(self._beat(), loop)

    def query(self, text: str, *, solo: bool = False, deadline: float | None = None) -> Future[EncodedQuery]:
        """Raises Overloaded, EncoderUnavailable."""
        key = query_key(self._version, text, solo)
        with self._lock:
            known = self._cache.get(key)
        found: Future[EncodedQuery] = Future()
        if known is not None:
            found.set_result(known)
            return found
        if deadline is not None and deadline <= time.monotonic():
            found.set_exception(TimeoutError("the deadline passed before the query came"))
            return found
        return self._call(self._query(key, text, deadline), refuse=self._gone and deadline is not None)

    def passages(self, texts: Sequence[str]) -> Future[Encodings]:
        """Raises Overloaded, EncoderUnavailable."""
        asked = self._answer(lambda remote: remote.passages.remote(list(texts)))
        return self._call(asked, refuse=self._gone)

    def passages_counted(self, texts: Sequence[str]) -> Future[Encodings]:
        """Raises Overloaded, EncoderUnavailable."""
        asked = self._answer(lambda remote: remote.passages_counted.remote(list(texts)))
        return self._call(asked, refuse=self._gone)

    def close(self) -> None:
        """What still waits fails with EncoderUnavailable, and so does whatever is asked from now on."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._beating.cancel()
        if not self._ending().done():
            self._ending().set_result(None)

    def _call(self, work: Coroutine[Any, Any, T], *, refuse: bool) -> Future[T]:
        with self._lock:
            crowded = self._under_way >= CALLS_MAX
            self._under_way += not (crowded or refuse or self._closed)
        if crowded or refuse or self._closed:
            work.close()
            raise Overloaded("too many calls of the encoder wait") if crowded else self._unavailable()
        call = asyncio.run_coroutine_threadsafe(work, self._loop)
        call.add_done_callback(self._forget)
        return call

    def _forget(self, _call: Future[Any]) -> None:
        with self._lock:
            self._under_way -= 1

    async def _query(self, key: QueryKey, text: str, deadline: float | None) -> EncodedQuery:
        _, _, solo = key
        within_s = None if deadline is None else deadline - time.monotonic()
        patient = deadline is None  # the first query of all, which waits for the weights
        came: EncodedQuery = await self._answer(
            lambda remote: remote.query.remote(text, solo, within_s), patient=patient
        )
        own = owned(came)  # Ray may share what it hands out
        with self._lock:
            self._cache.put(key, own)
        return own

    async def _answer(self, call: Remote, *, patient: bool = False) -> Any:
        """What the deployment answers. Raises EncoderUnavailable as soon as it is gone, unless `patient`."""
        asked = asyncio.ensure_future(self._asked(call, CALL_S))
        awaited = [asked, self._ending()] if patient else [asked, self._ending(), self._lost()]
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise self._unavailable()
            return asked.result()
        finally:
            asked.cancel()

    async def _asked(self, call: Remote, limit_s: float) -> Any:
        """Whatever Ray throws becomes EncoderUnavailable; what the encoder itself throws stays what it is."""
        try:
            if self._handle is None:
                self._handle = self._open_handle()
            return await asyncio.wait_for(call(self._handle), limit_s)
        except Exception as error:
            cause = getattr(error, "cause", error)  # Ray wraps what was raised over there
            if cause is not error and isinstance(cause, MemstrataError | TimeoutError):
                raise cause from None
            raise self._unavailable() from error

    def _lost(self) -> asyncio.Future[None]:
        """Done while the encoder is gone."""
        if self._loss is None:
            self._loss = self._loop.create_future()
        return self._loss

    def _ending(self) -> asyncio.Future[None]:
        """Done from `close` on."""
        if self._end is None:
            self._end = self._loop.create_future()
        return self._end

    async def _beat(self) -> None:
        """Keep `_gone` true to the facts: a call to a deployment without a replica would just wait."""
        limit_s = START_S
        while True:
            try:
                await self._asked(lambda remote: remote.alive.remote(), limit_s)
                self._gone = False
            except MemstrataError:
                self._gone = True
            if self._gone and not self._lost().done():
                self._lost().set_result(None)
            elif not self._gone and self._lost().done():
                self._loss = None
            limit_s = BEAT_LIMIT_S
            await asyncio.sleep(BEAT_S)

    def _unavailable(self) -> EncoderUnavailable:
        return EncoderUnavailable(f"the deployment of {self._version} does not answer")
