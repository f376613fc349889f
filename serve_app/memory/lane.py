"""A thread of its own for reads that take well under a millisecond and never leave memory.

Passing a job to a pool and its result back costs as much as such a read itself. Here one thread takes
the jobs in the order they came, and the results of all that it has done since the loop last looked are
handed over in one wake-up. Whatever may block, or compute for long, goes to the pool instead.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from serve_app.errors import StoreUnavailable

T = TypeVar("T")

Job = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
"""Who waits, and what is to be done for it."""


class Lane:
    """Jobs of one event loop. As many wait as requests are in flight, which the API bounds."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._told = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="lane", daemon=True)
        self._thread.start()

    def run(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """What the function gives, or raises; to be awaited on the loop that calls this. Raises StoreUnavailable."""
        if self._closed:
            raise StoreUnavailable("the service is stopping")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.put((future, function, arguments))
        return future

    def close(self) -> None:
        """End after the jobs that wait."""
        self._closed = True
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._asked.get()) is not None:
            future, function, arguments = job
            if future.cancelled():
                continue
            try:
                self._done.append((future, function(*arguments), None))
            except BaseException as error:  # noqa: BLE001 - whoever asked gets it; the others must not wait for ever
                self._done.append((future, None, error))
            if not self._told:
                self._told = True
                future.get_loop().call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._told = False  # before looking: what is done from now on tells again
        while self._done:
            future, result, error = self._done.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
