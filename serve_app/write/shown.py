"""When what a shard's writer has committed is shown by everyone who follows it.

What was removed, or changed, is not answered for before that: whoever asks another gateway next does not get it back.
A follower that does not come in time does not hold the answer up any longer; from then on it says itself how far it is
behind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from serve_app.stores.relay import SegmentRing

LOOK_S = 0.002
"""How often it is asked whether all have come."""


class Shown:
    """Of the shards whose newest segments are kept in `rings`; others are followed by nobody that is known."""

    def __init__(self, rings: Mapping[int, SegmentRing], within_s: float) -> None:
        """`within_s`: the age from which on a follower says that it is behind."""
        self._rings = rings
        self._within_s = within_s

    async def everywhere(self, shard: int) -> bool:
        """Wait until everyone shows what is committed by now; False where some did not in time."""
        ring = self._rings.get(shard)
        if ring is None:
            return True
        number, ends = ring.newest, time.monotonic() + self._within_s
        while not ring.readers.all_at(number):
            if time.monotonic() >= ends:
                return False
            await asyncio.sleep(LOOK_S)
        return True
