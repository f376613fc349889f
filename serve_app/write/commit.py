"""The writer of one shard: a thread that turns what is asked into durable records, one group commit after another.

What arrives while a commit is in flight goes into the next one; there is no timer. An operation is
prepared against the state after all earlier ones, its records are appended with those of its
batch, and its future resolves only when they are durable and applied. A batch that cannot be made
durable changes nothing and fails each of its operations.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import msgspec

from serve_app.core import Receipt, Turn
from serve_app.errors import MemstrataError, Overloaded, StoreUnavailable
from serve_app.records import DERIVED, Record, TurnGone, TurnPut, decode_record, encode_record
from serve_app.stores.log import Entry
from serve_app.write.shard import Shard


class WriterBounds(msgspec.Struct, frozen=True):
    """How much may wait. A turn or other record weighs 1, a large turn more."""

    queue_weight: int = 20_000
    """For the writer of a shard; beyond it callers are sent away."""

    batch_weight: int = 2_000
    """In one group commit."""

    tail_records: int = 200_000
    """For a fold; beyond it (the tables refuse) callers are sent away."""


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


class ShardWriter:
    """Owns the shard's queue and thread. `submit` may be called from any thread."""

    def __init__(
        self,
        shard: Shard,
        clock: Callable[[], int],
        committed: Callable[[Shard, list[Record]], None],
        bounds: WriterBounds | None = None,
    ) -> None:
        self.shard = shard
        self._bounds = bounds or WriterBounds()
        self._clock = clock
        self._committed = committed
        self._queue: deque[tuple[Operation, Future[Outcome]]] = deque()
        self._weight = 0
        self._closed = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"writer-{shard.number}", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation) -> Future[Outcome]:
        """Raises Overloaded when the queue is full; nothing of the operation was taken then."""
        future: Future[Outcome] = Future()
        with self._wake:
            if self._closed:
                raise StoreUnavailable("the writer of this shard has stopped")
            if self._weight and self._weight + operation.weight > self._bounds.queue_weight:
                raise Overloaded("the write queue of this shard is full")
            if self.shard.tail_length() > self._bounds.tail_records:
                raise Overloaded("the tables do not take what is written; the log is at its bound")
            self._queue.append((operation, future))
            self._weight += operation.weight
            self._wake.notify()
        return future

    @property
    def waiting(self) -> int:
        return self._weight

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
        batch: list[tuple[Operation, Future[Outcome]]] = []
        try:
            while batch := self._next_batch():
                self._commit([(operation, future) for operation, future in batch if _begun(future)])
        finally:
            self._stop([future for _, future in batch])

    def _next_batch(self) -> list[tuple[Operation, Future[Outcome]]]:
        """All that waits, up to the bound, and up to an operation that must see its owner's others committed."""
        with self._wake:
            self._wake.wait_for(lambda: self._queue or self._closed)
            batch: list[tuple[Operation, Future[Outcome]]] = []
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

    def _commit(self, batch: list[tuple[Operation, Future[Outcome]]]) -> None:
        """Settle, prepare, append, apply, acknowledge."""
        try:
            self._settle()
        except MemstrataError as error:
            _fail([future for _, future in batch], error)
            return
        draft = Draft(self.shard, self._clock())
        tried = [(self._prepare(operation, future, draft), future) for operation, future in batch]
        prepared = [(result[0], future) for result, future in tried if result is not None]
        try:
            if draft.records:
                self.shard.log.append(draft.entries, derived=draft.derived)
        except MemstrataError as error:
            _fail([future for _, future in prepared], error)
            return
        self.shard.take(draft.records)
        receipt = Receipt(self.shard.number, self.shard.applied_seq)
        for result, future in prepared:
            future.set_result((result, receipt))
        self._committed(self.shard, draft.records)

    def _settle(self) -> None:
        """Take up a batch whose append failed and that is in the log all the same."""
        records = [decode_record(entry.payload) for entry in self.shard.log.settle()]
        if records:
            self.shard.take(records)
            self._committed(self.shard, records)

    def _prepare(self, operation: Operation, future: Future[Outcome], draft: Draft) -> tuple[Any] | None:
        """The result of the operation in a tuple, or None where it was refused."""
        length = len(draft.records)
        try:
            return (operation.prepare(draft),)
        except Exception as error:  # noqa: BLE001 - the caller of `submit` gets it; the writer goes on with the others
            draft.cut(length)
            future.set_exception(error)
            return None

    def _stop(self, begun: Iterable[Future[Outcome]]) -> None:
        """Nobody waits for ever, not even for a batch that met a defect: of that one nobody knows what is stored."""
        with self._wake:
            self._closed = True
            waiting, self._queue = self._queue, deque()
        unanswered = [future for future in begun if not future.done()]
        unanswered += [future for _, future in waiting if _begun(future)]
        _fail(unanswered, StoreUnavailable("the writer of this shard has stopped"))


def _begun(future: Future[Outcome]) -> bool:
    """False where the caller has gone meanwhile; from here on it can no longer cancel."""
    return future.set_running_or_notify_cancel()


def _fail(futures: Iterable[Future[Outcome]], error: MemstrataError) -> None:
    for future in futures:
        future.set_exception(error)


def microseconds() -> int:
    """The service's clock: microseconds since the epoch, UTC."""
    return time.time_ns() // 1000
