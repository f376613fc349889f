"""Work that waits for the embedder: queries that several callers may share, passages, and whose turn it is.

Plain data: no thread, no lock, no clock. `batching.EmbedService` owns the queues and its lock guards them.
Promises batches within a budget of tokens, a bound for each queue, and that nobody waits for ever: not in a queue,
and no queue for another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence, Sized
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from serve_app.errors import Overloaded
from serve_app.models.query_cache import QueryKey
from serve_app.ports import EncodedQuery, Encodings, Tokens, Vectors

__all__ = ["PassageCall", "PassageQueue", "Precedence", "Query", "QueryQueue", "cost_of"]

Q = TypeVar("Q", bound=Sized)

BATCH_TEXTS_MAX = 256
"""Texts of one batch, however short."""

BYTES_PER_TOKEN = 3
"""For estimates: a Chinese character, or a little less than an English token."""

SPECIAL_TOKENS = 2
"""For estimates: what a model puts before and after a text."""


def cost_of(text: str, max_tokens: int) -> int:
    """Tokens that the model will read of `text`, by a cheap estimate."""
    return min(len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN + SPECIAL_TOKENS, max_tokens)


@dataclass
class Query:
    """One text and everyone who waits for it, each until a deadline of his own."""

    key: QueryKey
    text: str
    cost: int
    waiters: list[tuple[Future[EncodedQuery], float | None]] = field(default_factory=list)

    @property
    def solo(self) -> bool:
        return self.key[2]

    def expire(self, now: float) -> list[Future[EncodedQuery]]:
        """Take out whoever no longer waits; gives those whose deadline has passed."""
        late = [future for future, deadline in self.waiters if deadline is not None and deadline <= now]
        self.waiters = [one for one in self.waiters if one[0] not in late and not one[0].cancelled()]
        return late


class QueryQueue:
    """Distinct query texts: those that wait, and those being computed, which a second caller may still join."""

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._waiting: deque[Query] = deque()
        self._open: dict[QueryKey, Query] = {}
        self.tokens = 0
        """Of the texts that wait, by estimate."""

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, key: QueryKey, text: str, cost: int, future: Future[EncodedQuery], deadline: float | None) -> int:
        """Wait for a text, with others if it is already asked for. Gives the tokens that are new. Raises Overloaded."""
        query = self._open.get(key)
        new = query is None
        if query is None:
            if len(self._waiting) >= self._waiting_max:
                raise Overloaded("the embedder's queue of queries is full")
            query = self._open[key] = Query(key, text, cost)
            self._waiting.append(query)
            self.tokens += cost
        query.waiters.append((future, deadline))
        return cost if new else 0

    def take(self, tokens_max: int, now: float) -> tuple[list[Query], list[Future[EncodedQuery]]]:
        """The next batch, and whose deadline had passed: the oldest alone if it is solo, else with what may join it."""
        candidates = [self._waiting[0]]
        if not candidates[0].solo:
            candidates = [query for query in self._waiting if not query.solo]
        taken = list(_within(candidates, tokens_max))
        keys = {query.key for query in taken}
        self._waiting = deque(query for query in self._waiting if query.key not in keys)
        self.tokens -= sum(query.cost for query in taken)
        late = [future for query in taken for future in query.expire(now)]
        self.finish(query for query in taken if not query.waiters)
        return [query for query in taken if query.waiters], late

    def finish(self, batch: Iterable[Query]) -> None:
        """These are computed or given up: whoever asks from now on asks anew."""
        for query in batch:
            del self._open[query.key]

    def clear(self) -> list[Future[EncodedQuery]]:
        """Forget everything; gives everyone who waited."""
        futures = [future for query in self._open.values() for future, _ in query.waiters]
        self._waiting.clear()
        self._open.clear()
        self.tokens = 0
        return futures


def _within(queries: Iterable[Query], tokens_max: int) -> Iterable[Query]:
    """At least one, then as many as fit into a batch."""
    tokens = 0
    for at, query in enumerate(queries):
        tokens += query.cost
        if at and (tokens > tokens_max or at == BATCH_TEXTS_MAX):
            return
        yield query


@dataclass
class PassageCall:
    """The texts of one call and what they are encoded to so far. Short texts go first, so that batches have little
    padding.
    """

    texts: Sequence[str]
    costs: list[int]
    vectors: Vectors
    counts: list[int]
    tokens: list[Tokens | None]
    todo: deque[int]
    missing: int
    future: Future[Encodings] = field(default_factory=Future)

    @classmethod
    def of(cls, texts: Sequence[str], costs: list[int], dimension: int) -> PassageCall:
        order = deque(sorted(range(len(texts)), key=costs.__getitem__))
        vectors = np.empty((len(texts), dimension), np.float32)
        return cls(texts, costs, vectors, [0] * len(texts), [None] * len(texts), order, len(texts))

    def wanted(self) -> bool:
        """Whether anyone still waits. From the first yes on the call can no longer be cancelled."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def fill(self, place: int, vector: NDArray[np.float32], count: int, tokens: Tokens | None) -> None:
        self.vectors[place], self.counts[place], self.tokens[place] = vector, count, tokens
        self.missing -= 1
        if not self.missing:
            self.finish()

    def finish(self) -> None:
        tokens = [own for own in self.tokens if own is not None]
        every = len(tokens) == len(self.texts)
        self.future.set_result(Encodings(self.vectors, self.counts, tokens if every else None))


class PassageQueue:
    """Calls with passages, oldest first. They take turns, text by text: a long one holds no other up."""

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._calls: deque[PassageCall] = deque()
        self._waiting = 0
        self.tokens = 0
        """Of the texts that wait, by estimate."""

    def __len__(self) -> int:
        """Texts that wait, over all calls."""
        return self._waiting

    def put(self, call: PassageCall) -> None:
        """Raises Overloaded where the queue has no room for all texts of the call."""
        if self._waiting + len(call.texts) > self._waiting_max:
            raise Overloaded("the embedder's queue of passages is full")
        self._calls.append(call)
        self._waiting += len(call.texts)
        self.tokens += sum(call.costs)

    def take(self, tokens_max: int) -> list[tuple[PassageCall, int]]:
        """The next texts up to one batch, each as its call and its place in it; cancelled calls are skipped.

        Shorter ones may pass a text that no longer fits, but the foremost begins the next batch.
        """
        batch: list[tuple[PassageCall, int]] = []
        passed: list[PassageCall] = []
        left = tokens_max
        while self._calls and left > 0 and len(batch) < BATCH_TEXTS_MAX:
            call = self._calls.popleft()
            if batch and call.todo and call.costs[call.todo[0]] > left:
                passed.append(call)
            elif not call.todo or not call.wanted():
                self.give_up(call)
            else:
                cost = call.costs[call.todo[0]]
                left -= cost
                batch.append((call, call.todo.popleft()))
                self._waiting -= 1
                self.tokens -= cost
                self._calls.append(call)
        self._calls.extendleft(reversed(passed))
        return batch

    def give_up(self, call: PassageCall) -> None:
        """Nothing more of this call is to be embedded."""
        self._waiting -= len(call.todo)
        self.tokens -= sum(call.costs[at] for at in call.todo)
        call.todo.clear()

    def clear(self) -> list[PassageCall]:
        """Forget everything; gives the calls that were waited for."""
        calls = [call for call in self._calls if call.todo and call.wanted()]
        self._calls.clear()
        self._waiting = self.tokens = 0
        return calls


class Precedence(Generic[Q]):
    """Which of several queues is served next: the first that is not empty, but none is passed over for ever."""

    def __init__(self, queues: Sequence[Q], in_a_row_max: int) -> None:
        """`in_a_row_max`: batches of the queues before it, after which a queue has its turn."""
        self._queues = queues
        self._in_a_row_max = in_a_row_max
        self._passed = [0] * len(queues)

    def any_waits(self) -> bool:
        return any(map(len, self._queues))

    def next(self) -> Q:
        """To be called when something waits, once a batch."""
        waiting = [at for at, queue in enumerate(self._queues) if len(queue)]
        due = [at for at in waiting if self._passed[at] >= self._in_a_row_max]
        served = (due or waiting)[0]
        self._passed[served] = 0
        for behind in range(served + 1, len(self._queues)):
            self._passed[behind] += 1
        return self._queues[served]
