"""One shard in the hands of this process: opened, asked, closed again. Owns the service of that shard.

It promises that what was asked before the end is answered before the service stops (within a bound), and that nothing
is asked of the service after that. A service that hangs while it opens or closes is left behind after a bound, so that
the shard can go elsewhere: the log's fences see to the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from serve_app.asgi import Answered, AsgiService, Asked
from serve_app.cluster.answering import answered, not_done_here
from serve_app.errors import MemstrataError, ShardElsewhere, StoreUnavailable

__all__ = ["HeldBounds", "HeldShard", "ShardService"]

_log = logging.getLogger(__name__)


class ShardService(AsgiService, Protocol):
    """The service of one shard."""

    @property
    def fenced(self) -> bool:
        """Whether another process has taken the shard over."""
        ...


class HeldBounds(msgspec.Struct, frozen=True):
    pause_s: float = 0.25
    """Before an opening that failed is tried again; doubled each time, up to `pause_s_max`."""
    pause_s_max: float = 5.0
    look_s: float = 0.25
    """Between two looks at whether it has been fenced, beside those after each answer that says so."""
    drain_s: float = 10.0
    """For what was asked before the end."""
    stop_s: float = 15.0
    """For the service to close, or to come to an end of its opening that nobody waits for any more."""


class HeldShard:
    """`run` is its whole life; it ends after `release`, or when another process has the shard."""

    def __init__(
        self,
        number: int,
        compose: Callable[[], ShardService],
        places: asyncio.Semaphore,
        told: Callable[[], None],
        bounds: HeldBounds | None = None,
    ) -> None:
        """`places` bounds how many open at a time; `told` is called when it has opened."""
        self.number = number
        self.trouble: str | None = None
        """Why it is not open yet."""
        self.fenced = False
        self._compose, self._places, self._told, self._bounds = compose, places, told, bounds or HeldBounds()
        self._service: ShardService | None = None
        self._released = asyncio.Event()
        self._asked = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def open(self) -> bool:
        return self._service is not None

    def release(self) -> None:
        """Take no more requests, answer those that are here, and close."""
        self._released.set()

    async def run(self) -> None:
        service = await self._opened()
        if service is None:
            return
        try:
            self._service = service
            self._told()
            await self._until_the_end(service)
        finally:
            self._service = None
            await self._drained()
            await self._stopped(service)

    async def ask(self, asked: Asked, within_s: float) -> Answered:
        """Raises ShardElsewhere where nothing was done, StoreUnavailable where nobody knows, Overloaded."""
        service = self._service
        if service is None:
            raise ShardElsewhere(f"shard {self.number} is not open here")
        self._asked += 1
        self._quiet.clear()
        try:
            async with asyncio.timeout(within_s):
                answer = await answered(service, asked)
        except TimeoutError as error:
            raise StoreUnavailable(f"shard {self.number} did not answer within {within_s:.1f} s") from error
        finally:
            self._asked -= 1
            if self._asked == 0:
                self._quiet.set()
        if (why := not_done_here(answer)) is not None:
            self._release_if_fenced(service)
            raise ShardElsewhere(why)
        return answer

    async def _opened(self) -> ShardService | None:
        """None where it is not wanted any more."""
        pause_s = self._bounds.pause_s
        while not self._released.is_set():
            async with self._places:
                service = self._compose()
                try:
                    if not await self._started(service):
                        return None
                    self.trouble = None
                    return service
                except (MemstrataError, OSError) as error:
                    self.trouble = f"shard {self.number} cannot be opened: {error}"
                    _log.warning("%s", self.trouble)
            await self._released_within(pause_s)
            pause_s = min(2 * pause_s, self._bounds.pause_s_max)
        return None

    async def _started(self, service: ShardService) -> bool:
        """False where it was not wanted any more and did not come to an end either. Raises MemstrataError, OSError."""
        starting = asyncio.ensure_future(service.start())
        released = asyncio.ensure_future(self._released.wait())
        await asyncio.wait({starting, released}, return_when=asyncio.FIRST_COMPLETED)
        released.cancel()
        if not starting.done():
            await asyncio.wait({starting}, timeout=self._bounds.stop_s)
        if starting.done():
            starting.result()
            return True
        _log.error("shard %d is left behind: its opening takes too long", self.number)
        starting.add_done_callback(lambda _: asyncio.ensure_future(service.stop()))
        return False

    async def _stopped(self, service: ShardService) -> None:
        stopping = asyncio.ensure_future(service.stop())
        await asyncio.wait({stopping}, timeout=self._bounds.stop_s)
        if stopping.done():
            stopping.result()
        else:
            _log.error("shard %d is left behind: its closing takes too long", self.number)

    async def _until_the_end(self, service: ShardService) -> None:
        while not self._released.is_set():
            await self._released_within(self._bounds.look_s)
            self._release_if_fenced(service)

    def _release_if_fenced(self, service: ShardService) -> None:
        if service.fenced and not self.fenced:
            _log.warning("shard %d has been taken over by another process", self.number)
            self.fenced = True
            self._released.set()

    async def _released_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._released.wait()

    async def _drained(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._bounds.drain_s):
                await self._quiet.wait()
