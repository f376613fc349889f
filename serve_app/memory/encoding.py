"""The encoder as requests see it: a vector in time, or the reason why there is none.

Waits on the event loop, computes nothing there. Whatever an encoder throws becomes a reason (search
and context go on without vectors) or EncoderUnavailable (who asked for vectors gets none).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from serve_app.core import EmbeddingVersion
from serve_app.errors import EncoderUnavailable, MemstrataError
from serve_app.ports import Embedder, Vectors

T = TypeVar("T")
Vector = NDArray[np.float32]

_log = logging.getLogger(__name__)

PASSAGES_WAIT_S = 60.0
"""How long a call for vectors waits; many calls may be ahead of it."""


class Queues(Protocol):
    """What is needed of the embedder's thread and its queues."""

    def query(self, text: str, *, solo: bool = False, deadline: float | None = None) -> Future[Vector]: ...

    def passages(self, texts: Sequence[str]) -> Future[Vectors]: ...


class Encoding:
    def __init__(self, queues: Queues, embedder: Embedder, pool: Executor) -> None:
        self._queues = queues
        self._embedder = embedder
        self._pool = pool

    @property
    def version(self) -> EmbeddingVersion:
        return self._embedder.version

    async def query(self, text: str, solo: bool, deadline: float) -> tuple[Vector | None, tuple[str, ...]]:
        """The query's vector by `deadline` (monotonic), or the reason why there is none."""
        try:
            asked = self._queues.query(text, solo=solo, deadline=deadline)
        except MemstrataError as error:
            return None, (f"dense: {error.code}",)
        vector = await _outcome(asked, deadline - time.monotonic())
        return (None, (f"dense: {_reason(vector)}",)) if isinstance(vector, BaseException) else (vector, ())

    async def passages(self, texts: Sequence[str]) -> tuple[Vectors, int]:
        """Vectors, shape (len(texts), dimension), and the tokens of all texts.

        Raises Overloaded, EncoderUnavailable.
        """
        vectors = await _outcome(self._queues.passages(texts), PASSAGES_WAIT_S)
        if isinstance(vectors, MemstrataError):
            raise vectors
        if isinstance(vectors, BaseException):
            raise EncoderUnavailable(f"the encoder gives no vectors: {_reason(vectors)}") from vectors
        tokens = await asyncio.get_running_loop().run_in_executor(self._pool, self._embedder.count, texts)
        return vectors, sum(tokens)


async def _outcome(asked: Future[T], limit_s: float) -> T | BaseException:
    """What came within the limit; after it nobody waits any more."""
    if not asked.done():
        done, _ = await asyncio.wait([asyncio.wrap_future(asked)], timeout=max(0.0, limit_s))
        if not done:
            asked.cancel()
            return TimeoutError()
    return asked.exception() or asked.result()


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "deadline"
    if isinstance(error, MemstrataError):
        return error.code
    _log.warning("the encoder failed: %s", type(error).__name__)  # its text may quote what was to be embedded
    return "encoder_failed"
