"""Reads of a store that may hang: each is waited for within bounds, and a store that hangs is left alone.

Owns the threads that read one table, and its breaker. Promises that a read which does not come costs whoever asked the
time that it had and nobody else anything; that only so many reads are at work, or given up and still at work, at once;
that a read which was given up tells, when it comes after all, that the store is back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from serve_app.breaker import Breaker
from serve_app.errors import StorageTrouble, StoreLate, StoreLeftAlone, StoreUnavailable

T = TypeVar("T")

IDLE_S = 10.0
"""A thread without work ends after so long."""


class GuardBounds(msgspec.Struct, frozen=True):
    """Of the reads of one table. Times in seconds."""

    threads: int = 4
    given_up_max: int = 16
    """Reads that nobody waits for and that are still at work; with more of them no new thread is begun."""
    waiting_max: int = 256
    wait_s: float = 5.0
    """The longest that anybody waits for one read."""
    slow_s: float = 0.15
    """A read that came not even in so long counts as a fault; whoever has less time learns nothing from it."""
    faults_max: int = 3
    rest_s: float = 2.0


class Patience(NamedTuple):
    """How long reads on this thread may be waited for, and whether they may be the first to try a store again."""

    until: float | None = None
    probes: bool = True


_ENDLESS = Patience()

_patience: ContextVar[Patience] = ContextVar("patience", default=_ENDLESS)


@contextmanager
def patient_until(until: float, *, probes: bool = True) -> Iterator[None]:
    """Whoever reads a store on this thread inside waits no longer than that (on the monotonic clock)."""
    token = _patience.set(Patience(until, probes))
    try:
        yield
    finally:
        _patience.reset(token)


class Reading(Generic[T]):
    """One read, asked for. Several may wait for its `future`."""

    def __init__(self, read: Callable[[], T], asked_at: float) -> None:
        self.read = read
        self.asked_at = asked_at
        self.future: Future[T] = Future()
        self.future.set_running_or_notify_cancel()  # who waits no longer takes it from nobody else
        self.working = False
        self.given_up = False


class Guard:
    """Safe for threads."""

    def __init__(
        self, name: str, bounds: GuardBounds | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = bounds or GuardBounds()
        self.breaker = Breaker(name, self._bounds.faults_max, self._bounds.rest_s, clock)
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Reading[Any]] = deque()
        self._threads = 0
        self._idle = 0
        self._overdue = 0  # threads at work for what was given up

    @property
    def given_up(self) -> int:
        """Reads that nobody waits for any more and that are still at work."""
        return self._overdue

    def call(self, read: Callable[[], T]) -> T:
        """Read, within this thread's patience. Raises StoreLate, StoreLeftAlone, and what `read` raises."""
        if self._left(_patience.get()) <= 0:
            raise StoreLate("no time is left to read the store")
        return self.wait(self.begin(read))

    def begin(self, read: Callable[[], T]) -> Reading[T]:
        """Have it read. Raises StoreLeftAlone, and StoreUnavailable where too many wait."""
        if not (_patience.get().probes or self.breaker.state == "closed") or not self.breaker.admit():
            raise StoreLeftAlone(f"{self.breaker.name}: left alone after faults")
        reading = Reading(read, self._clock())
        with self._changed:
            if len(self._waiting) >= self._bounds.waiting_max:
                self.breaker.released()
                raise StoreUnavailable(f"{self.breaker.name}: too many reads wait")
            self._waiting.append(reading)
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif self._threads - self._overdue < self._bounds.threads and self._overdue < self._bounds.given_up_max:
                self._threads += 1
                threading.Thread(target=self._work, name=f"read-{self.breaker.name}", daemon=True).start()
        return reading

    def age_s(self, reading: Reading[Any]) -> float:
        return self._clock() - reading.asked_at

    def wait(self, reading: Reading[T]) -> T:
        """What was read, within this thread's patience: not at all for a read that takes longer than that already."""
        left = self._left(_patience.get())
        if not reading.future.done() and self.age_s(reading) > max(left, self._bounds.slow_s):
            raise StoreLate(f"{self.breaker.name}: it does not answer in time")
        try:
            return reading.future.result(max(0.0, left))
        except TimeoutError as error:
            if reading.future.done():
                raise
            self.give_up(reading, left)
            raise StoreLate(f"{self.breaker.name}: it does not answer in time") from error

    def give_up(self, reading: Reading[Any], waited_s: float) -> None:
        """Somebody waits no longer. A fault, once a read, if it had a fair time."""
        with self._changed:
            if reading.future.done() or reading.given_up:
                return
            if waited_s < self._bounds.slow_s:
                self.breaker.released()
                return
            reading.given_up = True
            self._overdue += reading.working
        self.breaker.failed()

    def _left(self, patience: Patience) -> float:
        wait_s = self._bounds.wait_s
        return wait_s if patience.until is None else min(wait_s, patience.until - self._clock())

    def _work(self) -> None:
        while self._one():
            pass

    def _one(self) -> bool:
        """Take one read; whether this thread goes on. While it waits for the next it remembers none."""
        reading = self._next()
        if reading is None:
            return False
        self._do(reading)
        return not (reading.given_up and self._ends())

    def _ends(self) -> bool:
        """Whether this thread, whose read was given up, is one too many now: another was begun in its place."""
        with self._changed:
            surplus = self._threads - self._overdue > self._bounds.threads
            self._threads -= surplus
            return surplus

    def _next(self) -> Reading[Any] | None:
        """The next read; None where this thread is to end."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting, IDLE_S)
            self._idle -= 1
            if not self._waiting:
                self._threads -= 1
                return None
            reading = self._waiting.popleft()
            reading.working = True
            self._overdue += reading.given_up
            return reading

    def _do(self, reading: Reading[Any]) -> None:
        found: Any = None
        error: BaseException | None = None
        try:
            found = reading.read()
        except StorageTrouble as trouble:
            self.breaker.failed()
            error = trouble
        except BaseException as defect:  # noqa: BLE001 - handed on whole; the thread lives to serve the next
            self.breaker.released()
            error = defect
        else:
            self.breaker.succeeded()
        with self._changed:
            reading.working = False
            self._overdue -= reading.given_up
        if error is None:
            reading.future.set_result(found)
        else:
            reading.future.set_exception(error)
