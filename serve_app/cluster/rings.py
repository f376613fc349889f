"""The newest segments of the shards that one process writes, for the gateways that follow them.

One call asks for many shards and is held back until there is something new of one of them. No thread waits meanwhile:
a ring tells of a change, and the event loop looks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from serve_app.cluster.messages import Wanted
from serve_app.errors import NotFound
from serve_app.stores.relay import RING_BYTES, Segment, SegmentRing

__all__ = ["Rings"]

WAIT_S_MAX = 10.0
"""The longest that an answer is held back, whatever the caller asks for."""

ANSWER_BYTES = RING_BYTES
"""Of one answer: once it has so many, further shards are left out of it, and asked for again."""


class Rings:
    """`segments` is for one event loop; shards are opened and closed in any thread."""

    def __init__(self) -> None:
        self._rings: dict[int, SegmentRing] = {}

    def opened(self, shard: int) -> SegmentRing:
        """An empty one for the shard, from its opening on."""
        ring = self._rings[shard] = SegmentRing()
        return ring

    def closed(self, shard: int) -> None:
        self._rings.pop(shard, None)

    async def segments(self, wanted: Mapping[int, Wanted], wait_s: float) -> dict[int, list[Segment] | None]:
        """See `WriterCalls.segments`."""
        rings = [ring for shard in wanted if (ring := self._rings.get(shard)) is not None]
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def told() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits any more
                loop.call_soon_threadsafe(news.set)

        for ring in rings:
            ring.tell(told)
        try:
            found = self._found(wanted)
            if any(one != [] for one in found.values()):
                return found
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, WAIT_S_MAX)):
                    await news.wait()
            return self._found(wanted)
        finally:
            for ring in rings:
                ring.untell(told)

    def _found(self, wanted: Mapping[int, Wanted]) -> dict[int, list[Segment] | None]:
        found: dict[int, list[Segment] | None] = {}
        size = 0
        for shard, one in wanted.items():
            if size < ANSWER_BYTES:
                found[shard] = segments = self._of(shard, one)
                size += sum(len(segment.data) for segment in segments or ())
        return found

    def _of(self, shard: int, wanted: Wanted) -> list[Segment] | None:
        ring = self._rings.get(shard)
        if ring is None:
            return None
        try:
            return list(ring.segments(wanted.after, 0.0, wanted.follower))
        except NotFound:
            return None
