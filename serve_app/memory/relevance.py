"""Documents that a caller sends, put in order for a query, by the configured cross-encoder, or by late interaction.

Waits on the event loop, computes in the pool and in the models' threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from serve_app.errors import MemstrataError, RerankerUnavailable
from serve_app.memory.encoding import Encoding
from serve_app.retrieve.documents import relevance
from serve_app.retrieve.fuse import SCORE_STEPS

T = TypeVar("T")
Scores = NDArray[np.float64]

WAIT_S = 60.0
"""How long a call waits for a model; many calls may be ahead of it."""


DOCUMENTS_AT_ONCE = 64
"""What the cross-encoder is given at a time, so that searches that need it come in between."""


class Model(Protocol):
    """What is asked of a cross-encoder."""

    @property
    def name(self) -> str: ...

    def ask(self, query: str, texts: Sequence[str], deadline: float) -> Future[Scores]:
        """Raises Overloaded, RerankerUnavailable, at once or later; later TimeoutError, too."""
        ...


class Relevances(NamedTuple):
    """Of each document, in the order in which they came, by the model of this name, and the tokens that were read."""

    model: str
    scores: Scores
    tokens: int


class Relevance:
    """`model` gives the cross-encoder in force, if there is one."""

    def __init__(self, encoder: Encoding, model: Callable[[], Model | None], pool: Executor) -> None:
        self._encoder = encoder
        self._model = model
        self._pool = pool

    async def of(self, query: str, documents: Sequence[str], model: str | None) -> Relevances:
        """Raises InvalidRequest for a model that is not here, Overloaded, EncoderUnavailable, RerankerUnavailable."""
        in_force = self._model()
        if in_force is not None and model in (None, in_force.name):
            return await self._by_model(in_force, query, documents)
        if model is not None:
            self._encoder.version(model)  # refuses one that is not here; which of several reads it, its script says
        return await self._by_tokens(query, documents)

    async def _by_model(self, model: Model, query: str, documents: Sequence[str]) -> Relevances:
        tokens = sum(await self._in_pool(self._encoder.counts, (query, *documents)))
        deadline = time.monotonic() + WAIT_S
        parts = [documents[at : at + DOCUMENTS_AT_ONCE] for at in range(0, len(documents), DOCUMENTS_AT_ONCE)]
        scores = np.concatenate([await _asked(model, query, part, deadline) for part in parts])
        return Relevances(model.name, np.rint(scores * SCORE_STEPS) / SCORE_STEPS, tokens)

    async def _by_tokens(self, query: str, documents: Sequence[str]) -> Relevances:
        encoded = await self._encoder.required(query, time.monotonic() + WAIT_S)
        encodings = await self._encoder.encodings(encoded.version, documents)
        scores = await self._in_pool(relevance, query, encoded, documents, encodings)
        tokens = sum(encodings.counts) + sum(await self._in_pool(self._encoder.counts, [query], encoded.version))
        return Relevances(encoded.version, scores, tokens)

    async def _in_pool(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


async def _asked(model: Model, query: str, texts: Sequence[str], deadline: float) -> Scores:
    """Raises Overloaded, RerankerUnavailable."""
    try:
        asked = asyncio.wrap_future(model.ask(query, texts, deadline))
        return await asyncio.wait_for(asked, max(0.0, deadline - time.monotonic()))
    except MemstrataError:
        raise
    except Exception as error:
        raise RerankerUnavailable(f"the reranker gives no scores: {type(error).__name__}") from error
