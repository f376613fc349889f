"""One deployment as a service sees it: whether it is there, and the calls to it, made on one loop for any thread.

A call to a deployment without a replica would just wait, so the deployment is asked all the time whether it is there.
Promises that what waits for one that is gone fails within `BEAT_LIMIT_S`, and so does at once whatever is asked then;
that calls are bounded in number and time; and that of several replicas one that is killed or hangs costs no more than
the calls that it had.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from ray.exceptions import RayError

from serve_app.errors import MemstrataError, Overloaded

__all__ = ["CALLS_MAX", "CALL_S", "Remote", "Standing"]

T = TypeVar("T")
E = TypeVar("E", bound=MemstrataError)
Remote = Callable[[Any], Any]
"""One call by the deployment's handle."""

CALLS_MAX = 2048
"""Calls to one deployment under way; above it the answer is Overloaded."""

CALL_S = 120.0
"""The longest that a call is left waiting, whatever happened to it: the first one waits for the weights."""

START_S = 120.0
"""What the first replica has to come up."""

BEAT_S = 0.25
"""Between two looks at whether the deployment answers."""

BEAT_LIMIT_S = 1.5
"""A deployment that does not answer for so long is gone, or no better than gone."""

HEDGES = 3
"""Of several replicas one may hang: then another is asked, in so many steps within that time."""

TRIES = 3
"""Of a call whose replica went while it was under way, where there are several: what is computed changes nothing."""


class Standing(Generic[E]):
    """Its methods but the coroutines may be called from any thread; those only on the loop."""

    def __init__(
        self,
        name: str,
        open_handle: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        unavailable: Callable[[str], E],
        *,
        several: bool = False,
    ) -> None:
        """`open_handle` gives the deployment's handle, whose replicas have a method `alive`; it may block, and is asked
        until it gives one. `unavailable` makes the error of a deployment that is gone.
        """
        self._name, self._loop, self._error, self._several = name, loop, unavailable, several
        self._open_handle = open_handle
        self._handle: Any = None
        self._opening: asyncio.Future[Any] | None = None
        self._lock = threading.Lock()
        self._under_way = 0
        self._gone = False
        self._closed = False
        self._loss: asyncio.Future[None] | None = None
        self._end: asyncio.Future[None] | None = None
        self._beating = asyncio.run_coroutine_threadsafe(self._beat(), loop)

    @property
    def gone(self) -> bool:
        return self._gone

    def begin(self, work: Coroutine[Any, Any, T], *, refuse_if_gone: bool = True) -> Future[T]:
        """Have it done on the loop. Raises Overloaded, and what `unavailable` makes."""
        with self._lock:
            refuse = self._closed or (self._gone and refuse_if_gone)
            crowded = self._under_way >= CALLS_MAX
            self._under_way += not (crowded or refuse)
        if crowded or refuse:
            work.close()
            raise Overloaded(f"too many calls of {self._name} wait") if crowded else self.unavailable()
        call = asyncio.run_coroutine_threadsafe(work, self._loop)
        call.add_done_callback(self._forget)
        return call

    async def answer(self, call: Remote, *, patient: bool = False) -> Any:
        """What the deployment answers. Raises what it raises over there, and what `unavailable` makes as soon as it is
        gone, unless `patient`.
        """
        asked = asyncio.ensure_future(self._asked(call, CALL_S))
        awaited = [asked, self._ending()] if patient else [asked, self._ending(), self._lost()]
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done() or asked.cancelled():  # cancelled by Ray, since nobody here has
                raise self.unavailable()
            return asked.result()
        finally:
            asked.cancel()

    def unavailable(self) -> E:
        return self._error(f"the deployment of {self._name} does not answer")

    def close(self) -> None:
        """What still waits fails, and so does whatever is asked from now on."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._beating.cancel()
        if not self._ending().done():
            self._ending().set_result(None)

    def _forget(self, _call: Future[Any]) -> None:
        with self._lock:
            self._under_way -= 1

    async def _asked(self, call: Remote, limit_s: float) -> Any:
        """Whatever Ray throws becomes `unavailable`; what the replica itself throws stays what it is."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._tried(call)
        except TimeoutError as error:
            raise self.unavailable() from error
        except _Said as said:
            raise said.error from None

    async def _tried(self, call: Remote) -> Any:
        for left in reversed(range(TRIES if self._several else 1)):
            try:
                return await call(await self._opened() if self._handle is None else self._handle)
            except Exception as error:
                cause = getattr(error, "cause", error)  # Ray wraps what was raised over there, or does not
                if isinstance(cause, MemstrataError | TimeoutError) and not isinstance(cause, RayError):
                    raise _Said(cause) from None
                if not left:
                    raise self.unavailable() from error
        raise AssertionError("the last try returns or raises")

    async def _opened(self) -> Any:
        """The handle. Serve asks its controller for it, which may be away: a thread waits, one for all who ask."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._open_handle))
        opening = self._opening
        try:
            self._handle = await asyncio.shield(opening)
        finally:
            if opening.done() and self._opening is opening:
                self._opening = None
        return self._handle

    def _lost(self) -> asyncio.Future[None]:
        """Done while the deployment is gone."""
        if self._loss is None:
            self._loss = self._loop.create_future()
        return self._loss

    def _ending(self) -> asyncio.Future[None]:
        """Done from `close` on."""
        if self._end is None:
            self._end = self._loop.create_future()
        return self._end

    async def _beat(self) -> None:
        """Keep `_gone` true to the facts."""
        limit_s = START_S
        while True:
            self._gone = not await self._answers(limit_s)
            if self._gone and not self._lost().done():
                self._lost().set_result(None)
            elif not self._gone and self._lost().done():
                self._loss = None
            limit_s = BEAT_LIMIT_S
            await asyncio.sleep(BEAT_S)

    async def _answers(self, limit_s: float) -> bool:
        """Whether any replica does. Serve sends a call to one that has few: the next one goes to another."""
        asked: set[asyncio.Task[Any]] = set()
        hedges = HEDGES if self._several else 1
        try:
            for _ in range(hedges):
                asked.add(asyncio.ensure_future(self._asked(lambda remote: remote.alive.remote(), limit_s)))
                done, _ = await asyncio.wait(asked, timeout=limit_s / hedges, return_when=asyncio.FIRST_COMPLETED)
                if any(not one.cancelled() and one.exception() is None for one in done):
                    return True
                asked -= done
            return False
        finally:
            for one in asked:
                one.cancel()


class _Said(Exception):
    """An error of the replica's own: what it says of the question, and not that it is gone."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
