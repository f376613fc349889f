"""One thread for all embedding: queries, then passages that a caller waits for, then what is being stored.

Owns the embedder, its three queues and the cache of query vectors. What arrives while a batch is
computed goes into the next one; there is no timer. Promises that nothing is computed after its
deadline, that a full queue says so at once, that a failed batch fails the futures that wait for it and
nothing else, and that a solo vector does not depend on who else asked.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from serve_app.core import EmbeddingVersion
from serve_app.errors import Overloaded
from serve_app.models.pace import Pace
from serve_app.models.waiting import (
    CountedVectors,
    PassageCall,
    PassageQueue,
    Precedence,
    Query,
    QueryKey,
    QueryQueue,
    Vector,
    cost_of,
)
from serve_app.ports import Embedder, Vectors

__all__ = ["EmbedCounters", "EmbedLimits", "EmbedService", "Vector"]

CLOSE_WAIT_S = 10.0
"""How long `close` waits for the batch that is being computed."""


class EmbedLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every bound of the service."""

    queries_waiting_max: int = 1024
    """Distinct query texts in the queue: some seconds of work. Above it the answer is Overloaded."""

    passages_waiting_max: int = 16384
    """Passages in each of the two queues, and so in one call. Above it the answer is Overloaded."""

    query_vectors_max: int = 4096
    """Cached query vectors: 6 MiB at 384 dimensions."""

    batch_tokens_max: int = 4096
    """Tokens of one batch, by estimate, on however fast a device; on a slow one `pace.BATCH_S` is reached before."""

    batches_in_a_row_max: int = 8
    """Batches that may go before those of a queue until it has a turn: queries and callers delay indexing but never
    stop it, nor queries the callers."""


class EmbedCounters(msgspec.Struct, frozen=True):
    """Since the start, but for the two `_waiting`, which are now."""

    batches: int = 0
    texts: int = 0
    tokens: int = 0
    cache_hits: int = 0
    expired: int = 0
    failed_batches: int = 0
    queries_waiting: int = 0
    passages_waiting: int = 0


class EmbedService:
    """Asynchronous front of one `Embedder`. Every method but `close` returns at once; call them from any thread."""

    def __init__(
        self,
        embedder: Embedder,
        limits: EmbedLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._embedder, self._limits, self._clock = embedder, limits or EmbedLimits(), clock
        self._version = embedder.version
        self._changed = threading.Condition()
        self._queries = QueryQueue(self._limits.queries_waiting_max)
        self._awaited = PassageQueue(self._limits.passages_waiting_max)
        self._stored = PassageQueue(self._limits.passages_waiting_max)
        self._precedence: Precedence[QueryQueue | PassageQueue] = Precedence(
            (self._queries, self._awaited, self._stored), self._limits.batches_in_a_row_max
        )
        self._cache: OrderedDict[QueryKey, Vector] = OrderedDict()
        self._counters = EmbedCounters()
        self._pace = Pace(self._limits.batch_tokens_max)
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="embedder", daemon=True)
        self._thread.start()

    @property
    def version(self) -> EmbeddingVersion:
        return self._version

    @property
    def counters(self) -> EmbedCounters:
        with self._changed:
            passages = len(self._awaited) + len(self._stored)
            return msgspec.structs.replace(
                self._counters, queries_waiting=len(self._queries), passages_waiting=passages
            )

    def query(self, text: str, *, solo: bool = False, deadline: float | None = None) -> Future[Vector]:
        """The vector of a query, from the cache where it is known.

        `solo` computes the text in a batch of its own: the same bits again, whatever the load. Once
        `deadline` (on the service's clock) has passed the future gets TimeoutError and nothing is
        computed. Raises Overloaded.
        """
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        key = (self._version.name, digest, solo)
        future: Future[Vector] = Future()
        with self._changed:
            self._refuse_if_closed()
            known = self._cache.get(key)
            if known is None:
                self._queries.join(key, text, cost_of(text, self._version.max_tokens), future, deadline)
                self._changed.notify()
                return future
            self._cache.move_to_end(key)
            self._count(cache_hits=1)
        future.set_result(known)
        return future

    def passages(self, texts: Sequence[str]) -> Future[Vectors]:
        """The vectors of texts to be stored, shape (len(texts), dimension), in order; whatever a caller waits for
        goes before them.

        Raises Overloaded where the queue cannot take them now, ValueError where it never could.
        """
        return self._put(texts, self._stored, counted=False)

    def passages_counted(self, texts: Sequence[str]) -> Future[CountedVectors]:
        """Vectors that a caller waits for, and the tokens of each text; max_tokens or more where that is all that was
        read of it. Raises as `passages` does.
        """
        return self._put(texts, self._awaited, counted=True)

    def _put(self, texts: Sequence[str], queue: PassageQueue, *, counted: bool) -> Future[Any]:
        if len(texts) > self._limits.passages_waiting_max:
            raise ValueError(f"{len(texts)} passages in one call; at most {self._limits.passages_waiting_max}")
        costs = [cost_of(text, self._version.max_tokens) for text in texts]
        call = PassageCall.of(texts, costs, self._version.dimension, counted)
        if not texts:
            call.finish()
            return call.future
        with self._changed:
            self._refuse_if_closed()
            queue.put(call)
            self._changed.notify()
        return call.future

    def close(self) -> None:
        """End the thread after the batch in hand; what still waits fails with Overloaded."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CLOSE_WAIT_S)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Overloaded("the embedder is closed")

    def _work(self) -> None:
        """The worker thread: take a batch, embed it, hand it out."""
        while (queue := self._next()) is not None:
            if isinstance(queue, QueryQueue):
                self._embed_queries()
            else:
                self._embed_passages(queue)
        self._fail_what_waits(Overloaded("the embedder is closed"))

    def _next(self) -> QueryQueue | PassageQueue | None:
        """The queue whose turn it is, as soon as anything waits; None when the service is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._precedence.any_waits())
            return None if self._closed else self._precedence.next()

    def _embed_queries(self) -> None:
        with self._changed:
            batch, late = self._queries.take(self._pace.batch_tokens, self._clock())
            self._count(expired=len(late))
        for future in late:
            _settle(future, TimeoutError("the deadline passed before the query was embedded"))
        if not batch:
            return
        outcome = self._embed([query.text for query in batch], sum(query.cost for query in batch))
        if isinstance(outcome, Exception):
            self._hand_out(batch, [outcome] * len(batch))
        else:
            self._hand_out(batch, [_read_only(vector) for vector in outcome[0]])

    def _hand_out(self, batch: list[Query], outcomes: Sequence[Vector | Exception]) -> None:
        with self._changed:
            self._queries.finish(batch)
            for query, outcome in zip(batch, outcomes, strict=True):
                self._remember(query.key, outcome)
        for query, outcome in zip(batch, outcomes, strict=True):
            for future, _ in query.waiters:
                _settle(future, outcome)

    def _remember(self, key: QueryKey, outcome: Vector | Exception) -> None:
        if isinstance(outcome, Exception):
            return
        self._cache[key] = outcome
        if len(self._cache) > self._limits.query_vectors_max:
            self._cache.popitem(last=False)

    def _embed_passages(self, queue: PassageQueue) -> None:
        with self._changed:
            batch = queue.take(self._pace.batch_tokens)
        if not batch:
            return
        outcome = self._embed([call.texts[at] for call, at in batch], sum(call.costs[at] for call, at in batch))
        if isinstance(outcome, Exception):
            self._fail_calls(queue, [call for call, _ in batch], outcome)
            return
        for vector, tokens, (call, place) in zip(*outcome, batch, strict=True):
            call.fill(place, vector, tokens)

    def _fail_calls(self, queue: PassageQueue, calls: list[PassageCall], error: Exception) -> None:
        for call in {id(call): call for call in calls}.values():
            with self._changed:
                queue.give_up(call)
            call.future.set_exception(error)

    def _embed(self, texts: list[str], cost: int) -> CountedVectors | Exception:
        """The vectors, or why there are none: those who wait raise it, where someone can act on it."""
        began = self._clock()
        try:
            vectors, tokens, _ = self._embedder.encode(texts)
        except Exception as error:  # noqa: BLE001 - handed on whole; the thread must live to serve the next batch
            with self._changed:
                self._count(failed_batches=1)
            return error
        self._pace.learn(cost, self._clock() - began)
        with self._changed:
            self._count(batches=1, texts=len(texts), tokens=sum(tokens))
        return vectors, tokens

    def _count(self, **more: int) -> None:
        counts = {name: getattr(self._counters, name) + number for name, number in more.items()}
        self._counters = msgspec.structs.replace(self._counters, **counts)

    def _fail_what_waits(self, error: Overloaded) -> None:
        with self._changed:
            futures, calls = self._queries.clear(), [*self._awaited.clear(), *self._stored.clear()]
        for future in futures:
            _settle(future, error)
        for call in calls:
            call.future.set_exception(error)


def _read_only(vector: Vector) -> Vector:
    """A copy of its own: a view would keep its whole batch in memory for as long as it is cached."""
    own = vector.copy()
    own.setflags(write=False)
    return own


def _settle(future: Future[Vector], outcome: Vector | Exception) -> None:
    """Give a waiter its vector or its error, unless it has gone."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
