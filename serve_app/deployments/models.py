"""The encoders in a deployment of their own: the class that serves them, and what the gateway has in their place.

One deployment serves all active versions. The gateway keeps the tokenizers, for cutting long texts, and the cache of
encoded queries, and never imports torch. A deployment that is gone costs vectors and nothing else: its calls fail with
EncoderUnavailable until Serve has started it anew.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from ray import serve
from ray.serve.handle import DeploymentHandle

from serve_app.asgi import AsgiService
from serve_app.deployments.console import write_to_console
from serve_app.deployments.lifeline import die_with_parent
from serve_app.errors import EncoderUnavailable, MemstrataError, Overloaded
from serve_app.models.batching import EmbedLimits
from serve_app.models.encoders import EmbedServices
from serve_app.models.query_cache import QueryCache, QueryKey, owned, query_key
from serve_app.ports import Embedder, EncodedQuery, Encodings

__all__ = ["EMBEDDER", "EmbedderCalls", "EmbedderReplica", "compose_beside"]

T = TypeVar("T")
Remote = Callable[[DeploymentHandle[Any]], Any]
"""One call by the deployment's handle."""

EMBEDDER = "Embedder"
"""The deployment's name."""

CALLS_MAX = 2048
"""Calls to the deployment under way; above it the answer is Overloaded."""

CALL_S = 120.0
"""The longest that a call is left waiting, whatever happened to it: the first one waits for the weights."""

START_S = 120.0
"""What the first replica has to come up."""

BEAT_S = 0.25
"""Between two looks at whether the encoder answers."""

BEAT_LIMIT_S = 1.5
"""An encoder that does not answer for so long is gone, or no better than gone."""


class EmbedderReplica:
    """`EmbedServices` as other processes call them; vectors are computed in their threads, never on the replica's
    loop.
    """

    def __init__(self, open_encoders: Callable[[], Sequence[Embedder]], console: Path) -> None:
        die_with_parent()
        write_to_console(console)
        self._services = EmbedServices(open_encoders())

    async def query(self, version: str, text: str, solo: bool, within_s: float | None) -> EncodedQuery:
        deadline = None if within_s is None else time.monotonic() + within_s
        return await asyncio.wrap_future(self._services.query(version, text, solo=solo, deadline=deadline))

    async def passages(self, version: str, texts: list[str]) -> Encodings:
        return await asyncio.wrap_future(self._services.passages(version, texts))

    async def passages_counted(self, version: str, texts: list[str]) -> Encodings:
        return await asyncio.wrap_future(self._services.passages_counted(version, texts))

    async def alive(self) -> bool:
        return True


class EmbedderCalls:
    """What `EmbedServices` are to a service, by calls to the deployment on the gateway's loop.

    Its methods may be called from any thread.
    """

    def __init__(self, application: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._application = application
        self._handle: DeploymentHandle[Any] | None = None
        self._lock = threading.Lock()
        self._cache = QueryCache(EmbedLimits().query_vectors_max, EmbedLimits().query_bytes_max)
        self._gone = False
        self._loss: asyncio.Future[None] | None = None
        self._calls: set[Future[Any]] = set()
        self._beating = asyncio.run_coroutine_threadsafe(self._beat(), loop)

    def query(
        self, version: str, text: str, *, solo: bool = False, deadline: float | None = None
    ) -> Future[EncodedQuery]:
        key = query_key(version, text, solo)
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

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        asked = self._answer(lambda remote: remote.passages.remote(version, list(texts)))
        return self._call(asked, refuse=self._gone)

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        asked = self._answer(lambda remote: remote.passages_counted.remote(version, list(texts)))
        return self._call(asked, refuse=self._gone)

    def close(self) -> None:
        """What still waits is cancelled."""
        self._beating.cancel()
        with self._lock:
            calls, self._calls = self._calls, set()
        for call in calls:
            call.cancel()

    def _call(self, work: Coroutine[Any, Any, T], *, refuse: bool) -> Future[T]:
        with self._lock:
            crowded = len(self._calls) >= CALLS_MAX
        if crowded or refuse:
            work.close()
            raise Overloaded("too many calls of the encoder wait") if crowded else _unavailable()
        call = asyncio.run_coroutine_threadsafe(work, self._loop)
        with self._lock:
            self._calls.add(call)
        call.add_done_callback(self._forget)
        return call

    def _forget(self, call: Future[Any]) -> None:
        with self._lock:
            self._calls.discard(call)

    async def _query(self, key: QueryKey, text: str, deadline: float | None) -> EncodedQuery:
        version, _, solo = key
        within_s = None if deadline is None else deadline - time.monotonic()
        patient = deadline is None  # the first query of all, which waits for the weights
        came: EncodedQuery = await self._answer(
            lambda remote: remote.query.remote(version, text, solo, within_s), patient=patient
        )
        own = owned(came)  # Ray may share what it hands out
        with self._lock:
            self._cache.put(key, own)
        return own

    async def _answer(self, call: Remote, *, patient: bool = False) -> Any:
        """What the deployment answers. Raises EncoderUnavailable as soon as it is gone, unless `patient`."""
        asked = asyncio.ensure_future(self._asked(call, CALL_S))
        lost = self._lost()
        try:
            await asyncio.wait([asked] if patient else [asked, lost], return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise _unavailable()
            return asked.result()
        finally:
            asked.cancel()

    async def _asked(self, call: Remote, limit_s: float) -> Any:
        """Whatever Ray throws becomes EncoderUnavailable; what the encoder itself throws stays what it is."""
        try:
            if self._handle is None:
                self._handle = serve.get_deployment_handle(EMBEDDER, self._application)
            return await asyncio.wait_for(call(self._handle), limit_s)
        except Exception as error:
            cause = getattr(error, "cause", error)  # Ray wraps what was raised over there
            if cause is not error and isinstance(cause, MemstrataError | TimeoutError):
                raise cause from None
            raise _unavailable() from error

    def _lost(self) -> asyncio.Future[None]:
        """Done while the encoder is gone."""
        if self._loss is None:
            self._loss = self._loop.create_future()
        return self._loss

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


def compose_beside(compose: Callable[..., AsgiService], application: str) -> AsgiService:
    """The service, its encoders in the deployment beside it. To be called on the loop that the service will run on."""
    loop = asyncio.get_running_loop()
    return compose(queues=lambda: EmbedderCalls(application, loop))


def _unavailable() -> EncoderUnavailable:
    return EncoderUnavailable("the encoder's deployment does not answer")
