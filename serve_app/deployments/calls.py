"""The calls of one version's deployment, made on the gateway's loop for any thread that asks.

Each version has its own: what is known of its deployment, the calls under way and the queries whose vectors came. So a
deployment that is gone or slow costs the vectors of its version and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from serve_app.deployments.standing import CALLS_MAX, Standing
from serve_app.errors import EncoderUnavailable
from serve_app.models.batching import EmbedLimits
from serve_app.models.query_cache import QueryCache, QueryKey, owned, query_key
from serve_app.ports import EncodedQuery, Encodings

__all__ = ["CALLS_MAX", "VersionCalls"]


class VersionCalls:
    """What an `EmbedService` is to a service. Its methods may be called from any thread."""

    def __init__(
        self, version: str, open_handle: Callable[[], Any], loop: asyncio.AbstractEventLoop, *, several: bool = False
    ) -> None:
        """`open_handle` gives the handle of the deployment's `EmbedderReplica`, of which there may be `several`."""
        self._version = version
        self._deployment = Standing(version, open_handle, loop, EncoderUnavailable, several=several)
        self._lock = threading.Lock()
        self._cache = QueryCache(EmbedLimits().query_vectors_max, EmbedLimits().query_bytes_max)

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
        return self._deployment.begin(self._query(key, text, deadline), refuse_if_gone=deadline is not None)

    def passages(self, texts: Sequence[str]) -> Future[Encodings]:
        """Raises Overloaded, EncoderUnavailable."""
        return self._deployment.begin(self._deployment.answer(lambda remote: remote.passages.remote(list(texts))))

    def passages_counted(self, texts: Sequence[str]) -> Future[Encodings]:
        """Raises Overloaded, EncoderUnavailable."""
        asked = self._deployment.answer(lambda remote: remote.passages_counted.remote(list(texts)))
        return self._deployment.begin(asked)

    def close(self) -> None:
        """What still waits fails with EncoderUnavailable, and so does whatever is asked from now on."""
        self._deployment.close()

    async def _query(self, key: QueryKey, text: str, deadline: float | None) -> EncodedQuery:
        _, _, solo = key
        within_s = None if deadline is None else deadline - time.monotonic()
        patient = deadline is None  # the first query of all, which waits for the weights
        came: EncodedQuery = await self._deployment.answer(
            lambda remote: remote.query.remote(text, solo, within_s), patient=patient
        )
        own = owned(came)  # Ray may share what it hands out
        with self._lock:
            self._cache.put(key, own)
        return own
