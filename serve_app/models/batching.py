"""One thread for all embedding: queries, then passages that a caller waits for, then what is being stored.

Owns the embedder, its three queues and the cache of encoded queries. What arrives while a batch is
computed goes into the next one; there is no timer. Promises that nothing is computed after its
deadline, that a full queue says so at once, that a failed batch fails the futures that wait for it and
nothing else, and that a solo vector does not depend on who else asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext

import msgspec

from serve_app.core import EmbeddingVersion
from serve_app.errors import Overloaded
from serve_app.models.fair_lock import FairLock
from serve_app.models.pace import Pace
from serve_app.models.query_cache import QueryCache, owned, query_key
from serve_app.models.waiting import PassageCall, PassageQueue, Precedence, Query, QueryQueue, cost_of
from serve_app.ports import Embedder, EncodedQuery, Encodings, Tokens

__all__ = ["EmbedCounters", "EmbedLimits", "EmbedLoad", "EmbedService"]

CLOSE_WAIT_S = 10.0
"""How long `close` waits for the batch that is being computed."""


class EmbedLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every bound of the service."""

    queries_waiting_max: int = 1024
    """Distinct query texts in the queue: some seconds of work. Above it the answer is Overloaded."""

    passages_waiting_max: int = 16384
    """Passages in each of the two queues, and so in one call. Above it the answer is Overloaded."""

    query_vectors_max: int = 4096
    """Cached queries."""

    query_bytes_max: int = 12 << 20
    """Of their vectors: a query of a dozen tokens takes 2.4 KiB at 384 dimensions."""

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


class EmbedLoad(msgspec.Struct, frozen=True):
    """Tokens, by estimate: for who decides how many services of this kind there are."""

    waiting: int
    came: int
    """Since the start; what the cache answered is not among them."""
    a_second: float
    """Computed while at work; 0 before anything was."""


class EmbedService:
    """Asynchronous front of one `Embedder`. Every method but `close` returns at once; call them from any thread."""

    def __init__(
        self,
        embedder: Embedder,
        limits: EmbedLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        passes: FairLock | None = None,
        spent: Callable[[float, int], None] = lambda seconds, tokens: None,
    ) -> None:
        """Services with the same `passes` have one at a time between them. `spent` is told of each: seconds, tokens."""
        self._spent = spent
        self._passes = passes or FairLock()
        self._loaded = False
        self._embedder, self._limits, self._clock = embedder, limits or EmbedLimits(), clock
        self._version = embedder.version
        self._changed = threading.Condition()
        self._queries = QueryQueue(self._limits.queries_waiting_max)
        self._awaited = PassageQueue(self._limits.passages_waiting_max)
        self._stored = PassageQueue(self._limits.passages_waiting_max)
        self._precedence: Precedence[QueryQueue | PassageQueue] = Precedence(
            (self._queries, self._awaited, self._stored), self._limits.batches_in_a_row_max
        )
        self._cache = QueryCache(self._limits.query_vectors_max, self._limits.query_bytes_max)
        self._counters = EmbedCounters()
        self._came = 0
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

    @property
    def load(self) -> EmbedLoad:
        with self._changed:
            waiting = self._queries.tokens + self._awaited.tokens + self._stored.tokens
            return EmbedLoad(waiting, self._came, self._pace.tokens_s)

    def query(self, text: str, *, solo: bool = False, deadline: float | None = None) -> Future[EncodedQuery]:
        """The vectors of a query and of its tokens, from the cache where they are known.

        `solo` computes the text in a batch of its own: the same bits again, whatever the load. Once
        `deadline` (on the service's clock) has passed the future gets TimeoutError and nothing is
        computed: one that comes so late is answered from the cache or not at all. Raises Overloaded.
        """
        key = query_key(self._version.name, text, solo)
        future: Future[EncodedQuery] = Future()
        with self._changed:
            self._refuse_if_closed()
            known = self._cache.get(key)
            if known is None and deadline is not None and deadline <= self._clock():
                self._count(expired=1)
                future.set_exception(TimeoutError("the deadline passed before the query came"))
                return future
            if known is None:
                cost = cost_of(text, self._version.max_tokens)
                self._came += self._queries.join(key, text, cost, future, deadline)
                self._changed.notify()
                return future
            self._count(cache_hits=1)
        future.set_result(known)
        return future

    def passages(self, texts: Sequence[str]) -> Future[Encodings]:
        """Texts to be stored, with the vectors of their tokens; whatever a caller waits for goes before them.

        Raises Overloaded where the queue cannot take them now, ValueError where it never could.
        """
        return self._put(texts, self._stored)

    def passages_counted(self, texts: Sequence[str]) -> Future[Encodings]:
        """Vectors that a caller waits for, and the tokens of each text, but not these tokens' vectors. Raises as
        `passages` does.
        """
        return self._put(texts, self._awaited)

    def _put(self, texts: Sequence[str], queue: PassageQueue) -> Future[Encodings]:
        if len(texts) > self._limits.passages_waiting_max:
            raise ValueError(f"{len(texts)} passages in one call; at most {self._limits.passages_waiting_max}")
        costs = [cost_of(text, self._version.max_tokens) for text in texts]
        call = PassageCall.of(texts, costs, self._version.dimension)
        if not texts:
            call.finish()
            return call.future
        with self._changed:
            self._refuse_if_closed()
            queue.put(call)
            self._came += sum(costs)
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
        outcome = self._queries_encoded(batch)
        self._hand_out(batch, [outcome] * len(batch) if isinstance(outcome, Exception) else outcome)

    def _queries_encoded(self, batch: list[Query]) -> list[EncodedQuery] | Exception:
        texts = [query.text for query in batch]
        encodings = self._encode(texts, sum(query.cost for query in batch), tokens=True)
        if isinstance(encodings, Exception):
            return encodings
        tokens: Sequence[Tokens | None] = encodings.tokens or [None] * len(texts)
        try:
            spans = [
                None if of_it is None else self._embedder.spans(text) for text, of_it in zip(texts, tokens, strict=True)
            ]
        except Exception as error:  # noqa: BLE001 - as in `_encode`
            return error
        parts = zip(encodings.vectors, tokens, spans, strict=True)
        return [owned(EncodedQuery(self._version.name, *own)) for own in parts]

    def _hand_out(self, batch: list[Query], outcomes: Sequence[EncodedQuery | Exception]) -> None:
        with self._changed:
            self._queries.finish(batch)
            for query, outcome in zip(batch, outcomes, strict=True):
                if not isinstance(outcome, Exception):
                    self._cache.put(query.key, outcome)
        for query, outcome in zip(batch, outcomes, strict=True):
            for future, _ in query.waiters:
                _settle(future, outcome)

    def _embed_passages(self, queue: PassageQueue) -> None:
        with self._changed:
            batch = queue.take(self._pace.batch_tokens)
        if not batch:
            return
        texts, cost = [call.texts[at] for call, at in batch], sum(call.costs[at] for call, at in batch)
        outcome = self._encode(texts, cost, tokens=queue is self._stored)
        if isinstance(outcome, Exception):
            self._fail_calls(queue, [call for call, _ in batch], outcome)
            return
        tokens: Sequence[Tokens | None] = outcome.tokens or [None] * len(batch)
        for vector, count, of_it, (call, place) in zip(outcome.vectors, outcome.counts, tokens, batch, strict=True):
            call.fill(place, vector, count, of_it)

    def _fail_calls(self, queue: PassageQueue, calls: list[PassageCall], error: Exception) -> None:
        for call in {id(call): call for call in calls}.values():
            with self._changed:
                queue.give_up(call)
            call.future.set_exception(error)

    def _encode(self, texts: list[str], cost: int, *, tokens: bool) -> Encodings | Exception:
        """The encodings, or why there are none: those who wait raise it, where someone can act on it."""
        try:
            # the first batch loads the weights, which is to keep nobody else from the processor
            with self._passes.turn() if self._loaded else nullcontext():
                began = self._clock()
                encodings = self._embedder.encode(texts, tokens=tokens)
                took = self._clock() - began
            self._loaded = True
        except Exception as error:  # noqa: BLE001 - handed on whole; the thread must live to serve the next batch
            with self._changed:
                self._count(failed_batches=1)
            return error
        self._pace.learn(cost, took)
        self._spent(took, sum(encodings.counts))
        with self._changed:
            self._count(batches=1, texts=len(texts), tokens=sum(encodings.counts))
        return encodings

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


def _settle(future: Future[EncodedQuery], outcome: EncodedQuery | Exception) -> None:
    """Give a waiter its vectors or its error, unless it has gone."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
