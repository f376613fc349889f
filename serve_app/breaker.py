"""A circuit breaker: what has failed again and again is left alone for a while, then tried by one caller alone.

closed     every call goes through; so many faults in a row open it
open       no call goes through until the rest is over
half-open  one call goes through as a probe: if it succeeds the breaker closes, if not it opens again
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

State = Literal["closed", "open", "half_open"]


class Breaker:
    """Safe for threads. Each `admit` that gave True is followed by one `succeeded`, `failed` or `released`."""

    def __init__(self, name: str, faults_max: int, rest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`faults_max`: faults in a row that open it; `rest_s`: how long it stays open before a probe."""
        self.name = name
        self.opened = 0
        """How often it opened."""
        self._faults_max = faults_max
        self._rest_s = rest_s
        self._clock = clock
        self._lock = threading.Lock()
        self._faults = 0
        self._open_until: float | None = None
        self._probe_until: float | None = None

    @property
    def state(self) -> State:
        with self._lock:
            return self._state()

    def admit(self) -> bool:
        """Whether a call may be made now."""
        with self._lock:
            state = self._state()
            if state == "closed":
                return True
            if state == "open" or (self._probe_until is not None and self._clock() < self._probe_until):
                return False
            self._probe_until = self._clock() + self._rest_s  # a probe that is never heard of again is given up
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._faults = 0
            self._open_until = self._probe_until = None

    def failed(self) -> None:
        with self._lock:
            self._faults += 1
            self._probe_until = None
            if self._faults >= self._faults_max or self._open_until is not None:
                self.opened += self._open_until is None
                self._open_until = self._clock() + self._rest_s

    def released(self) -> None:
        """The call says nothing about what was called: it was given up for another reason."""
        with self._lock:
            self._probe_until = None

    def _state(self) -> State:
        if self._open_until is None:
            return "closed"
        return "open" if self._clock() < self._open_until else "half_open"
