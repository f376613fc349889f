"""Rests as long as the service asks for, so that those who search do not notice the job."""

from __future__ import annotations

import time
from collections.abc import Callable

ASK_EVERY_S = 0.1
"""How old an answer may be before it is asked for again."""

STEP_S = 0.25
"""Of a long rest, after which is asked whether it still has to be."""

UNHEARD_S = 3.0
"""A service that has not answered for so long may need its processor for itself."""

UNHEARD_REST_S = 30.0


class Told:
    """What the service last said: seconds to rest for each second of work."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rest_s, self._at = 0.0, clock()

    def tell(self, rest_s: float) -> None:
        self._rest_s, self._at = rest_s, self._clock()

    def rest_s(self) -> float:
        return self._rest_s if self._clock() - self._at < UNHEARD_S else UNHEARD_REST_S


class Resting:
    """Called with the seconds of each piece of work; returns when the next may begin. Says whether it rested at all."""

    def __init__(
        self,
        ask: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ask, self._clock, self._sleep = ask, clock, sleep
        self._answer, self._until = 0.0, 0.0

    def __call__(self, worked_s: float) -> bool:
        rested = 0.0
        while (owed := worked_s * self._asked() - rested) > 0:
            step = min(owed, STEP_S)
            self._sleep(step)
            rested += step
        return rested > 0

    def _asked(self) -> float:
        if self._clock() >= self._until:
            self._answer, self._until = self._ask(), self._clock() + ASK_EVERY_S
        return self._answer
