"""How much a job in the background may work so that those who search do not notice.

Owns no thread: it is told of each request that begins and ends, and asked for the answer. Time during which nobody
waits for anything belongs to the job; the more of it others need, the less the job takes of the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

HALF_LIFE_S = 1.0
"""After which a moment weighs half as much: longer than the pauses between requests that are to count as load."""

QUIET = 0.02
"""Of the time, up to which a service counts as idle: now and then a request."""

BUSY = 0.3
"""Of the time, from which on the job takes its least."""

SHARE_MIN = 0.03
"""Of the time that the job takes then, so that it ends one day: what it delays stays below the slowest five of a
hundred requests."""

TAIL_BYTES_MAX = 128 << 20
"""Of vectors that wait for a fold; above it the job rests, long before `write/backfill.py` sends it away."""

REST_MAX_S = 1.0 / SHARE_MIN


class _State(NamedTuple):
    """As it was at a moment."""

    at: float
    busy: float
    in_flight: int


class Pace:
    """`begin` and `end` are called by one thread, the event loop's; all else by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state = _State(clock(), 0.0, 0)

    def begin(self) -> None:
        """A request of somebody else than the job."""
        self._change(1)

    def end(self) -> None:
        self._change(-1)

    @property
    def busy(self) -> float:
        """Of the last moments the share in which anybody waited for an answer; older ones weigh less."""
        return self._now().busy

    def rest_s(self, tail_bytes: int = 0) -> float:
        """Seconds to rest for each second of work; 0 for an idle service."""
        if tail_bytes > TAIL_BYTES_MAX:
            return REST_MAX_S
        share = 1.0 - (1.0 - SHARE_MIN) * min(max(self.busy - QUIET, 0.0) / (BUSY - QUIET), 1.0)
        return min(1.0 / share - 1.0, REST_MAX_S)

    def _change(self, by: int) -> None:
        now = self._now()
        self._state = now._replace(in_flight=now.in_flight + by)

    def _now(self) -> _State:
        at, busy, in_flight = self._state
        now = self._clock()
        kept = 0.5 ** (max(0.0, now - at) / HALF_LIFE_S)
        return _State(now, busy * kept + (1.0 - kept) * (in_flight > 0), in_flight)
