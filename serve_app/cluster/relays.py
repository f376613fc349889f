"""The way by which the followers of a gateway get new segments from whoever writes their shards.

    follower's thread ── of(shard).segments ──► event loop: gathered by writer ── WriterCalls.segments ──► Rings

Each follower asks for itself and waits; what is asked of one writer within a moment goes in one call. A writer holds it
back until there is news, or until the next of the moments at which all calls to writers end: so the followers of shards
without news ask together. Where a writer does not answer, the followers are told and read the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import NamedTuple

from serve_app.cluster.leases import NOBODY, writer_of
from serve_app.cluster.messages import Leases, Wanted, WriterCalls
from serve_app.errors import MemstrataError, NotFound, StoreUnavailable
from serve_app.stores.relay import Segment

__all__ = ["Relays"]

GATHER_S = 0.002
"""How long a question waits for others to the same writer."""

LATE = 2.0
"""An answer that takes so many times what its follower wanted to wait is not believed: what it says may be as old."""

GIVEN_UP_S = 1.0
"""Beyond that, after which a follower's thread waits for the event loop no longer."""

EARLY = 0.25
"""Of the time between two such moments: what is left of it is too short for a call, which lasts until the next one."""


class _Asked(NamedTuple):
    shard: int
    wanted: Wanted
    wait_s: float
    ends: float
    answer: Future[Sequence[Segment]]


class Relays:
    """Made and closed on one event loop; `of(shard)` is asked by any thread but the loop's."""

    def __init__(
        self, leases: Callable[[], Leases], writers: WriterCalls, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`leases` gives the newest."""
        self._leases, self._writers, self._clock = leases, writers, clock
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[str, list[_Asked]] = {}
        """By writer: one question of each follower at most, since it waits for the answer."""
        self._pulls: set[asyncio.Task[None]] = set()
        self._closed = False

    def of(self, shard: int) -> Relay:
        return Relay(self, shard)

    def close(self) -> None:
        """Whoever waits hears that nobody answers, and so does whoever asks from now on."""
        self._closed = True
        for pull in self._pulls:
            pull.cancel()
        for writer in list(self._gathered):
            self._failed(self._gathered.pop(writer), "this gateway ends")

    def segments(self, shard: int, wanted: Wanted, wait_s: float) -> Sequence[Segment]:
        """See `SegmentRelay`."""
        asked = _Asked(shard, wanted, wait_s, self._clock() + LATE * wait_s, Future())
        try:
            self._loop.call_soon_threadsafe(self._gather, asked)
            return asked.answer.result(LATE * wait_s + GIVEN_UP_S)
        except (TimeoutError, CancelledError, RuntimeError) as error:  # the loop is busy, or has ended
            asked.answer.cancel()
            raise StoreUnavailable(f"the writer of shard {shard} cannot be asked") from error

    def _gather(self, asked: _Asked) -> None:
        writer = writer_of(self._leases(), asked.shard)
        if self._closed or writer == NOBODY or self._clock() >= asked.ends:
            self._failed([asked], "it has no writer at the moment, or the time is up")
            return
        if writer not in self._gathered:
            self._gathered[writer] = []
            self._loop.call_later(GATHER_S, self._send, writer)
        self._gathered[writer].append(asked)

    def _send(self, writer: str) -> None:
        if (asked := self._gathered.pop(writer, None)) is not None:
            pull = self._loop.create_task(self._pull(writer, asked))
            self._pulls.add(pull)
            pull.add_done_callback(self._pulls.discard)

    async def _pull(self, writer: str, asked: list[_Asked]) -> None:
        wait_s = self._hold_s(min(one.wait_s for one in asked))
        left = {one.shard: one for one in asked}
        wanted = {shard: one.wanted for shard, one in left.items()}
        try:
            async with asyncio.timeout(max(0.0, min(one.ends for one in asked) - self._clock())):
                found = await self._writers.segments(writer, wanted, wait_s)
            for shard in found.keys() & left.keys():
                self._answer(left.pop(shard), found[shard])
            for shard in list(left):
                self._gather(left.pop(shard))
        except (MemstrataError, TimeoutError):
            pass  # as in any other case in which there is no answer
        finally:
            self._failed(list(left.values()), f"{writer} does not answer")

    def _hold_s(self, wait_s: float) -> float:
        """Until the next of the moments at which calls end; `wait_s` at most."""
        period_s = wait_s / (1 + EARLY)
        left_s = period_s - self._clock() % period_s
        return left_s if left_s > EARLY * period_s else left_s + period_s

    def _answer(self, asked: _Asked, segments: Sequence[Segment] | None) -> None:
        if not asked.answer.set_running_or_notify_cancel():
            return
        if segments is None:
            asked.answer.set_exception(NotFound(f"segments after {asked.wanted.after} are not held there"))
        else:
            asked.answer.set_result(segments)

    def _failed(self, asked: Sequence[_Asked], why: str) -> None:
        for one in asked:
            if one.answer.set_running_or_notify_cancel():
                one.answer.set_exception(StoreUnavailable(f"shard {one.shard}: {why}"))


class Relay:
    """`SegmentRelay` of one shard."""

    def __init__(self, relays: Relays, shard: int) -> None:
        self._relays, self._shard = relays, shard

    def segments(self, after: int, wait_s: float, follower: str = "") -> Sequence[Segment]:
        return self._relays.segments(self._shard, Wanted(follower, after), wait_s)
