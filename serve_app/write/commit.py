"""The writer of one shard: a thread that turns what is asked into durable records, one group commit after another.

What arrives while a commit is in flight goes into the next one; there is no timer. An operation is
prepared against the state after all earlier ones, its records are appended with those of its
batch, and its future resolves only when they are durable and applied. A batch that cannot be made
durable changes nothing and fails each of its operations. A store that takes nothing again and again is left alone for
a moment: who asks meanwhile is told so at once, and one operation alone tries it again. The futures of one event loop
are resolved together: a batch wakes a loop once, however many of its callers it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import msgspec

from serve_app.breaker import Breaker
from serve_app.core import Receipt, Turn
from serve_app.errors import MemstrataError, Overloaded, StoreLeftAlone, StoreUnavailable
from serve_app.records import DERIVED, Record, TurnGone, TurnPut, decode_record, encode_record
from serve_app.stores.guard import patient_until
from serve_app.stores.log import Entry
from serve_app.write.meter import UNMETERED, Meter
from serve_app.write.shard import Shard

STORE_WAIT_S = 2.0
"""For what an operation has to read of a table while all others wait. What it needs most is in memory: who asks for it
sees to that.
"""


class WriterBounds(msgspec.Struct, frozen=True):
    """How much may wait. A turn or other record weighs 1, a large turn more."""

    queue_weight: int = 20_000
    """For the writer of a shard; beyond it callers are sent away."""

    batch_weight: int = 2_000
    """In one group commit."""

    tail_records: int = 200_000
    """For a fold; beyond it (the tables refuse) callers are sent away."""

    tail_bytes: int = 1 << 30
    """The same of the vectors in it."""

    faults_max: int = 3
    """Batches in a row that the store did not take, after which it is left alone."""

    rest_s: float = 1.0
    """For so long, give or take a quarter: shards do not come back together."""


class Draft:
    """The records of the batch in the making, and the turns that it will have stored or let go."""

    def __init__(self, shard: Shard, now: int) -> None:
        self.shard = shard
        self.now = now
        self.records: list[Record] = []
        self.entries: list[Entry] = []
        self.new_turns: dict[tuple[str, str, str], Turn] = {}
        self.gone_turns: set[int] = set()
        self._next_seq = shard.log.next_seq

    def seq(self) -> int:
        """The next position in the log; each is given once."""
        seq = self._next_seq
        self._next_seq += 1
        return seq

    def add(self, record: Record) -> None:
        """Raises what the codec raises for a value that cannot be stored."""
        if record.seq != self._next_seq - 1:
            raise AssertionError("a record must carry the seq that was drawn for it")
        self.entries.append(Entry(record.seq, encode_record(record)))
        self.records.append(record)
        self._note(record)

    @property
    def derived(self) -> bool:
        """Whether all of it can be computed again."""
        return all(isinstance(record, DERIVED) for record in self.records)

    def cut(self, length: int) -> None:
        """Keep the first `length` records only. Seqs that were drawn stay used."""
        if length == len(self.records):
            return
        del self.records[length:], self.entries[length:]
        self.new_turns, self.gone_turns = {}, set()
        for record in self.records:
            self._note(record)

    def _note(self, record: Record) -> None:
        match record:
            case TurnPut(owner=owner, turn=turn):
                self.new_turns[owner, turn.session, turn.id] = turn
            case TurnGone(owner=owner, session=session, turn_id=turn_id, turn_seq=turn_seq):
                self.new_turns.pop((owner, session, turn_id), None)
                self.gone_turns.add(turn_seq)
            case _:
                pass


class Operation(ABC):
    """One thing asked of the writer. `prepare` runs on the writer's thread and may refuse by raising."""

    owner: str
    weight = 1
    exclusive = True
    """Whether it must see its owner as the batch leaves it, so that it never shares a batch with its owner's others."""

    @abstractmethod
    def prepare(self, draft: Draft) -> Any:
        """Add records to the draft and give the result of the operation; if it raises, what it added is cut off."""


Outcome = tuple[Any, Receipt]
Answer = Future[Outcome] | asyncio.Future[Outcome]
"""Where the outcome goes: to a thread that may block for it, or to a coroutine."""

Asked = tuple[Operation, Answer]


class ShardWriter:
    """Owns the shard's queue and thread. `submit` may be called from any thread."""

    def __init__(
        self,
        shard: Shard,
        clock: Callable[[], int],
        committed: Callable[[Shard, list[Record]], None],
        bounds: WriterBounds | None = None,
        meter: Meter = UNMETERED,
    ) -> None:
        self.shard = shard
        self._meter = meter
        self._bounds = bounds or WriterBounds()
        self._clock = clock
        self._committed = committed
        self._queue: deque[Asked] = deque()
        self._weight = 0
        self._closed = False
        self._wake = threading.Condition()
        rest_s = self._bounds.rest_s * random.uniform(0.75, 1.25)
        self.breaker = Breaker(f"log-{shard.number}", self._bounds.faults_max, rest_s)
        self._thread = threading.Thread(target=self._run, name=f"writer-{shard.number}", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation) -> Future[Outcome]:
        """For a thread. Raises Overloaded when the queue is full; nothing of the operation was taken then."""
        future: Future[Outcome] = Future()
        self._put(operation, future)
        return future

    def ask(self, operation: Operation) -> asyncio.Future[Outcome]:
        """For a coroutine; otherwise like `submit`."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._put(operation, future)
        return future

    def _put(self, operation: Operation, answer: Answer) -> None:
        with self._wake:
            if self._closed:
                raise StoreUnavailable("the writer of this shard has stopped")
            if self._weight and self._weight + operation.weight > self._bounds.queue_weight:
                self._meter.sent_away("queue_weight")
                raise Overloaded("the write queue of this shard is full")
            if self.shard.tail_length() > self._bounds.tail_records:
                self._meter.sent_away("tail_records")
                raise Overloaded("the tables do not take what is written; the log is at its bound")
            if self.shard.tail_bytes > self._bounds.tail_bytes:
                self._meter.sent_away("tail_bytes")
                raise Overloaded("the tables do not take the vectors of what is written; the log is at its bound")
            if not self.breaker.admit():
                raise StoreLeftAlone("the store does not take what is written; nothing of this was")
            self._queue.append((operation, answer))
            self._weight += operation.weight
            self._wake.notify()

    @property
    def waiting(self) -> int:
        return self._weight

    @property
    def store_rests(self) -> bool:
        """Whether the log's store is left alone at the moment."""
        return self.breaker.state == "open"

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Commit what waits, then end."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        batch: list[Asked] = []
        try:
            while batch := self._next_batch():
                self._commit([(operation, answer) for operation, answer in batch if _begun(answer)])
        finally:
            self._stop([answer for _, answer in batch])

    def _next_batch(self) -> list[Asked]:
        """All that waits, up to the bound, and up to an operation that must see its owner's others committed."""
        with self._wake:
            self._wake.wait_for(lambda: self._queue or self._closed)
            batch: list[Asked] = []
            shared: set[str] = set()
            exclusive: set[str] = set()
            weight = 0
            while self._queue and weight < self._bounds.batch_weight:
                operation = self._queue[0][0]
                if operation.owner in exclusive or (operation.exclusive and operation.owner in shared):
                    break
                (exclusive if operation.exclusive else shared).add(operation.owner)
                batch.append(self._queue.popleft())
                weight += operation.weight
            self._weight -= weight
            return batch

    def _commit(self, batch: list[Asked]) -> None:
        """Settle, prepare, append, apply, acknowledge."""
        started = time.perf_counter()
        try:
            self._settle()
        except MemstrataError as error:
            self._judge(error)
            _answer([(answer, error) for _, answer in batch])
            return
        draft = Draft(self.shard, self._clock())
        tried = [(answer, *self._prepare(operation, draft)) for operation, answer in batch]
        try:
            if draft.records:
                self.shard.log.append(draft.entries, derived=draft.derived)
        except MemstrataError as error:
            self._judge(error)
            _answer([(answer, refusal or error) for answer, _, refusal in tried])
            return
        if draft.records:
            self.breaker.succeeded()
            self._meter.committed(len(draft.records), time.perf_counter() - started)
        else:
            self.breaker.released()
        self.shard.take(draft.records)
        receipt = Receipt(self.shard.number, self.shard.applied_seq)
        _answer([(answer, refusal or (result, receipt)) for answer, result, refusal in tried])
        self._committed(self.shard, draft.records)

    def _judge(self, error: MemstrataError) -> None:
        """Only a store that does not answer is left alone: any other answer was one."""
        if isinstance(error, StoreUnavailable):
            self.breaker.failed()
        else:
            self.breaker.released()

    def _settle(self) -> None:
        """Take up a batch whose append failed and that is in the log all the same."""
        records = [decode_record(entry.payload) for entry in self.shard.log.settle()]
        if records:
            self.shard.take(records)
            self._committed(self.shard, records)

    def _prepare(self, operation: Operation, draft: Draft) -> tuple[Any, Exception | None]:
        """The result of the operation, or why it was refused."""
        length = len(draft.records)
        try:
            with patient_until(time.monotonic() + STORE_WAIT_S, probes=False):
                return operation.prepare(draft), None
        except Exception as error:  # noqa: BLE001 - who asked gets it; the writer goes on with the others
            draft.cut(length)
            return None, error

    def _stop(self, begun: Iterable[Answer]) -> None:
        """Nobody waits for ever, not even for a batch that met a defect: of that one nobody knows what is stored."""
        with self._wake:
            self._closed = True
            waiting, self._queue = self._queue, deque()
        unanswered = [answer for answer in begun if not answer.done()]
        unanswered += [answer for _, answer in waiting if _begun(answer)]
        error = StoreUnavailable("the writer of this shard has stopped")
        _answer([(answer, error) for answer in unanswered])


def _begun(answer: Answer) -> bool:
    """False where the caller has gone meanwhile; from here on what it asked for is done all the same."""
    return answer.set_running_or_notify_cancel() if isinstance(answer, Future) else not answer.cancelled()


def _answer(outcomes: Iterable[tuple[Answer, Outcome | Exception]]) -> None:
    """Resolve futures: those of threads here, those of each event loop in one call on it."""
    of_loops: dict[asyncio.AbstractEventLoop, list[tuple[Answer, Outcome | Exception]]] = {}
    for answer, outcome in outcomes:
        if isinstance(answer, Future):
            _resolve(answer, outcome)
        else:
            of_loops.setdefault(answer.get_loop(), []).append((answer, outcome))
    for loop, those in of_loops.items():
        with contextlib.suppress(RuntimeError):  # the loop has ended, and all who waited on it with it
            loop.call_soon_threadsafe(_resolve_all, those)


def _resolve_all(outcomes: Iterable[tuple[Answer, Outcome | Exception]]) -> None:
    for answer, outcome in outcomes:
        if not answer.done():  # gone, or told already that the writer has stopped
            _resolve(answer, outcome)


def _resolve(answer: Answer, outcome: Outcome | Exception) -> None:
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def microseconds() -> int:
    """The service's clock: microseconds since the epoch, UTC."""
    return time.time_ns() // 1000
