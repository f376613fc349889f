"""Who is let in: a bounded number of requests at once, and no more a turn of the event loop than it has time for.

Under overload requests wait where no counter sees them: in the sockets, and as tasks that are ready and not begun. A
turn of the loop begins all that were ready when it started, one after the other. So the door looks at how long this
turn has lasted: once that is longer than `turn_s`, whoever is still to be begun has waited at least so long, and is
sent away at once, before its key or its body is looked at. What a turn lets in is then what it has time for, at any
load, and a refusal costs the loop a small part of an answer. Where the engine reads the connections itself it asks
before it even makes a task: as many wait for the next turn as that will have time for, by how long each took lately,
and the others are told so for a fifth of what the task alone would cost. Runs on one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from serve_app.errors import Overloaded

IN_FLIGHT_MAX = 512
"""Requests that are worked on at once; beyond it the answer is 429 with Retry-After."""

READING_MAX = 1024
"""Requests whose bodies are read at once, apart from those above: who sends slowly keeps nobody from working."""

PASSED_ON_MAX = 1_024
"""Requests that a gateway has passed on and that wait for writers, apart from those that it works on itself."""

TURN_MIN = 64
"""Requests that any turn begins, however long they take: a processor that was busy elsewhere is no crowd."""

MEASURED_MIN = 8
"""Requests that a turn has to begin for it to tell how long each takes."""

LEARNED_SHARE = 0.1
"""How much one turn counts for what is believed of the next."""


class Places:
    """A bounded number of places, each held for the length of a `with`; who finds none is sent away."""

    def __init__(self, places: int, refusal: str) -> None:
        self._free = places
        self._refusal = refusal

    def __enter__(self) -> None:
        """Raises Overloaded."""
        if self._free == 0:
            raise Overloaded(self._refusal)
        self._free -= 1

    def __exit__(self, *_: object) -> None:
        self._free += 1


class Door:
    """`reading`, `working`, `passed_on` are places; `late` and `crowded` say whether the loop has time for one more."""

    def __init__(self, turn_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._turn_s = turn_s
        self._clock = clock
        self._turn_began: float | None = None
        self._last_begun = 0.0
        self._begun = 0
        self._ready = 0
        self._each_s = 0.0
        self.reading = Places(READING_MAX, "too many requests are still being sent")
        self.passed_on = Places(PASSED_ON_MAX, "too many requests wait for writers")
        self.working = Places(IN_FLIGHT_MAX, "too many requests are in flight")

    def crowded(self) -> bool:
        """To be asked once for each request where it is read from its connection; if not, it is let in."""
        crowded = self._ready >= TURN_MIN and self._ready * self._each_s > self._turn_s
        self._ready += not crowded
        return crowded

    def late(self) -> bool:
        """To be asked once for each request, as the first thing that is done for it."""
        self._ready = max(0, self._ready - 1)  # not every engine asks whether it is crowded
        now = self._clock()
        if self._turn_began is None:
            self._turn_began = now
            asyncio.get_running_loop().call_soon(self._turn_over)
        late = self._begun >= TURN_MIN and now - self._turn_began > self._turn_s
        if not late:
            self._begun += 1
            self._last_begun = now
        return late

    def _turn_over(self) -> None:
        """What is called soon is called in the next turn."""
        assert self._turn_began is not None
        if self._begun >= MEASURED_MIN:
            each_s = (self._last_begun - self._turn_began) / (self._begun - 1)
            self._each_s += LEARNED_SHARE * (each_s - self._each_s)
        self._turn_began, self._begun = None, 0
