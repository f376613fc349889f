"""Simulated time: what is due, in order. What is due at one instant happens in the order in which it was planned.

A loop of our own: SimPy 4.1 made 104,000 visits of a station in a second of processor time where this one makes
several times as many, and a prediction needs some millions.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from serve_app.errors import MemstrataError

EVENTS_MAX = 50_000_000
"""Of one run: minutes. A model that comes to it does not end by itself."""


class SimulationFailed(MemstrataError):
    code = "simulation_failed"


class Clock:
    """`now` in seconds."""

    __slots__ = ("_due", "_numbers", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), call))

    def run(self, until: float = math.inf, events_max: int = EVENTS_MAX) -> None:
        """Until nothing is due before `until`. Raises SimulationFailed beyond so many events."""
        for _ in range(events_max):
            if not self._due or self._due[0][0] > until:
                return
            self.now, _number, call = heapq.heappop(self._due)
            call()
        raise SimulationFailed(f"more than {events_max:,} events")
