"""The way from a gateway to whoever writes a shard, over the moves and restarts of writers.

A request that surely was not done is asked again until its time is up: a move is a delay for the caller, not an error.
One whose outcome nobody knows is asked again only where its caller says that this does no harm. What waits meanwhile is
bounded, in requests and in bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from serve_app.asgi import Answered, Asked
from serve_app.cluster.lease_file import LeaseFile
from serve_app.cluster.leases import NOBODY, writer_of
from serve_app.cluster.messages import ControlCalls, Leases, WriterCalls
from serve_app.cluster.watch import LeaseWatch
from serve_app.errors import Overloaded, ShardElsewhere, StorageTrouble, StoreUnavailable

__all__ = ["Upstream", "UpstreamBounds"]


TOO_MANY = 429
"""The status of an answer that says that this time nothing was done."""

LOOK_S = 60.0
"""Between two looks at leases that do not change; a change ends the wait at once."""


class UpstreamBounds(msgspec.Struct, frozen=True):
    parked: int = 1_024
    """Requests that wait for their shard to be somewhere."""
    parked_bytes: int = 64 << 20
    """Of their bodies."""
    pause_s: float = 0.05
    """Before a writer is asked again, unless there are new leases before; doubled each time, up to `pause_s_max`."""
    pause_s_max: float = 0.5
    moved_s: float = 1.0
    """For the answer of a writer that has lost the shard meanwhile; then what may be repeated is, elsewhere."""


class Upstream:
    """Lives on one event loop."""

    def __init__(
        self,
        control: ControlCalls,
        writers: WriterCalls,
        file: LeaseFile | None = None,
        bounds: UpstreamBounds | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`file` is where the leases can be found while Control is away."""
        self._writers, self._bounds, self._clock = writers, bounds or UpstreamBounds(), clock
        self._watch = LeaseWatch(control, file)
        self._parked = self._parked_bytes = 0
        self._asked = self._again = self._unknown = self._sent_away = 0

    async def start(self) -> None:
        self._watch.start()

    async def stop(self) -> None:
        await self._watch.stop()

    @property
    def leases(self) -> Leases:
        """The newest that are known here."""
        return self._watch.newest

    def troubles(self) -> list[str]:
        """What hinders it, in words."""
        return [] if self._watch.trouble is None else [self._watch.trouble]

    def figures(self) -> Iterable[tuple[str, str, float]]:
        """For `observe.metrics.Gauges`."""
        yield "memstrata_forwarded", "Requests passed on to writers.", self._asked
        yield "memstrata_forwarded_again", "Times that one was asked again, since its shard was moving.", self._again
        yield "memstrata_forwarded_unknown", "Requests of which nobody knows whether they were done.", self._unknown
        yield "memstrata_forwarded_refused", "Requests sent away because too many wait for a writer.", self._sent_away
        yield "memstrata_forwarded_parked", "Requests that wait for a writer.", self._parked

    async def ask(self, shard: int, asked: Asked, within_s: float, *, repeatable: bool = False) -> Answered:
        """What the shard's writer answers. `repeatable`: doing it twice is as good as doing it once.

        Raises ShardElsewhere where it surely was not done in that time, StoreUnavailable where nobody knows,
        Overloaded.
        """
        until = self._clock() + within_s
        pause_s = self._bounds.pause_s
        unknown: StorageTrouble | None = None
        self._asked += 1
        while True:
            seen = self._watch.newest
            try:
                answer = await self._asked_once(seen, shard, asked, until, repeatable)
                if unknown is None or answer.status != TOO_MANY:
                    return answer
                refusal: StorageTrouble = unknown
            except ShardElsewhere as error:
                refusal = unknown or error
            except Overloaded:
                if unknown is None:
                    raise
                refusal = unknown
            except StoreUnavailable as error:
                refusal = unknown = error
                if not repeatable:
                    self._unknown += 1
                    raise
            if self._clock() >= until:
                self._unknown += refusal is unknown
                raise refusal
            with self._place(len(asked.body), unknown):
                await self._watch.news(seen.revision, min(pause_s, max(0.0, until - self._clock())))
            pause_s = min(2 * pause_s, self._bounds.pause_s_max)
            self._again += 1

    async def _asked_once(self, leases: Leases, shard: int, asked: Asked, until: float, repeatable: bool) -> Answered:
        writer = writer_of(leases, shard)
        left_s = until - self._clock()
        if writer == NOBODY or left_s <= 0:
            raise ShardElsewhere(f"shard {shard} has no writer at the moment")
        asking = asyncio.ensure_future(self._writers.ask(writer, shard, asked, left_s))
        return await (self._unless_moved(asking, writer, shard) if repeatable else asking)

    async def _unless_moved(self, asking: asyncio.Future[Answered], writer: str, shard: int) -> Answered:
        """The answer; or StoreUnavailable where the writer has lost the shard and does not come to an end with it."""
        moved = asyncio.ensure_future(self._moved(writer, shard))
        try:
            either: list[asyncio.Future[Any]] = [asking, moved]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                await asyncio.wait({asking}, timeout=self._bounds.moved_s)
            if not asking.done():
                raise StoreUnavailable(f"{writer} has lost shard {shard} and does not answer")
            return asking.result()
        finally:
            asking.cancel()
            moved.cancel()

    async def _moved(self, writer: str, shard: int) -> None:
        while writer_of(self._watch.newest, shard) == writer:
            await self._watch.news(self._watch.newest.revision, LOOK_S)

    @contextmanager
    def _place(self, size: int, unknown: StorageTrouble | None) -> Iterator[None]:
        """Raises Overloaded; or what is unknown, which a refusal does not make sure."""
        if self._parked >= self._bounds.parked or self._parked_bytes + size > self._bounds.parked_bytes:
            self._sent_away += 1
            self._unknown += unknown is not None
            raise unknown or Overloaded("too many requests wait for the writers of their shards")
        self._parked += 1
        self._parked_bytes += size
        try:
            yield
        finally:
            self._parked -= 1
            self._parked_bytes -= size
