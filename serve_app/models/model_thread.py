"""A model in a thread of its own: one piece of work at a time, and nobody waits for it beyond a deadline.

Owns the thread and its queue. Promises that a model that hangs, is slow or cannot be loaded costs its callers
no more than their own deadline, and, but for patient ones, those who come while it hangs nothing at all: they are
refused at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Generic, NamedTuple, TypeVar

from serve_app.errors import MemstrataError, Overloaded

__all__ = ["OVERTIME_S", "WAITING_MAX", "ModelThread"]

WAITING_MAX: Final = 32
"""Pieces of work that wait for the model; above it the answer is Overloaded."""

OVERTIME_S: Final = 0.05
"""A model that is still at work so long after its caller's deadline takes nothing more until it is done."""

CLOSE_WAIT_S: Final = 5.0
"""How long `close` waits for what is being computed; a thread that hangs ends with the process."""

_log = logging.getLogger(__name__)

M = TypeVar("M")
A = TypeVar("A")


class _Job(NamedTuple):
    work: Callable[[Any], Any]
    deadline: float
    future: Future[Any]


class ModelThread(Generic[M]):
    """`load` opens the model, in the thread that then runs it."""

    def __init__(
        self,
        name: str,
        load: Callable[[], M],
        unusable: Callable[[str], MemstrataError],
        clock: Callable[[], float] = time.monotonic,
        *,
        patient: bool = False,
    ) -> None:
        """`unusable` is what an error that `load` does not name becomes. `patient`: what is asked while it loads, or is
        at work beyond a deadline, waits until its own; else it is refused.
        """
        self._name, self._load, self._unusable, self._clock = name, load, unusable, clock
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._patient = patient
        self._busy_until: float | None = clock()  # loading
        self._failed: MemstrataError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def failed(self) -> MemstrataError | None:
        """Why the model cannot be loaded."""
        return self._failed

    @property
    def closed(self) -> bool:
        return self._closed

    def ask(self, work: Callable[[M], A], deadline: float) -> Future[A]:
        """Returns at once; `work` is begun before `deadline` or fails with TimeoutError. Raises Overloaded, and what
        `load` raised.
        """
        job = _Job(work, deadline, Future())
        with self._changed:
            if self._failed is not None:
                raise self._failed
            if self._closed or len(self._waiting) >= WAITING_MAX or self._late():
                raise Overloaded(f"the {self._name} is busy")
            self._waiting.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """What still waits fails with Overloaded."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CLOSE_WAIT_S)

    def _late(self) -> bool:
        return not self._patient and self._busy_until is not None and self._clock() > self._busy_until + OVERTIME_S

    def _work(self) -> None:
        try:
            model = self._load()
        except MemstrataError as error:
            self._give_up(error)
            return
        except Exception as error:  # noqa: BLE001 - told to whoever asks; the service goes on without
            self._give_up(self._unusable(f"the {self._name} cannot be loaded: {type(error).__name__}"))
            return
        while (job := self._next()) is not None:
            _settle(job, self._outcome(model, job))
        self._end(Overloaded(f"the {self._name} is closed"))

    def _give_up(self, error: MemstrataError) -> None:
        _log.warning("%s", error)
        with self._changed:
            self._failed = error
        self._end(error)

    def _next(self) -> _Job | None:
        with self._changed:
            self._busy_until = None
            self._changed.wait_for(lambda: self._closed or self._waiting)
            if self._closed:
                return None
            job = self._waiting.popleft()
            self._busy_until = max(job.deadline, self._clock())
            return job

    def _outcome(self, model: M, job: _Job) -> Any:
        """An exception where that is what came of it."""
        if self._clock() >= job.deadline:
            return TimeoutError("the deadline passed before its turn came")
        try:
            return job.work(model)
        except Exception as error:  # noqa: BLE001 - handed on whole; the thread must live to serve the next
            return error

    def _end(self, error: MemstrataError) -> None:
        with self._changed:
            left = list(self._waiting)
            self._waiting.clear()
        for job in left:
            _settle(job, error)


def _settle(job: _Job, outcome: Any) -> None:
    if not job.future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Exception):
        job.future.set_exception(outcome)
    else:
        job.future.set_result(outcome)
