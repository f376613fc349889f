"""What requests queue for: servers that take one at a time, and batches that take what waits.

Each knows its bound, refuses what comes beyond it, and counts how long it was busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.simulation.clock import Clock

Done = Callable[[], object]

ROOM = 1 << 20
"""Of a queue without a bound of its own."""

IN_A_ROW_MAX = 8
"""Batches before those of a less urgent queue have a turn, as in the service's encoder."""


class Servers:
    """`count` servers before one queue, first come, first served."""

    def __init__(self, clock: Clock, count: int, room: int = ROOM) -> None:
        self._clock, self._idle, self._room = clock, count, room
        self._waiting: deque[tuple[float, Done]] = deque()
        self.busy_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, seconds: float, done: Done) -> bool:
        """False where the queue is full; `done` is never called then."""
        if self._idle:
            self._idle -= 1
            self._begin(seconds, done)
        elif len(self._waiting) >= self._room:
            return False
        else:
            self._waiting.append((seconds, done))
        return True

    def _begin(self, seconds: float, done: Done) -> None:
        self.busy_s += seconds
        self._clock.after(seconds, lambda: self._end(done))

    def _end(self, done: Done) -> None:
        if self._waiting:
            self._begin(*self._waiting.popleft())
        else:
            self._idle += 1
        done()


class Item(NamedTuple):
    weight: float
    done: Done


class Batches:
    """One server that takes what waits, up to a weight and a number, the first queue before the second.

    `takes` gives the seconds of a batch of that weight.
    """

    def __init__(
        self,
        clock: Clock,
        takes: Callable[[float], float],
        weight_max: float = float("inf"),
        items_max: int = ROOM,
        rooms: Sequence[int] = (ROOM,),
    ) -> None:
        self._clock, self._takes, self._weight_max, self._items_max = clock, takes, weight_max, items_max
        self._queues: list[deque[Item]] = [deque() for _ in rooms]
        self._rooms = rooms
        self._busy, self._in_a_row = False, 0
        self.busy_s, self.batches = 0.0, 0

    def __len__(self) -> int:
        return sum(map(len, self._queues)) + self._busy

    def ask(self, weight: float, done: Done, queue: int = 0) -> bool:
        """False where that queue is full; `done` is never called then."""
        waiting = self._queues[queue]
        if len(waiting) >= self._rooms[queue]:
            return False
        waiting.append(Item(weight, done))
        if not self._busy:
            self._begin()
        return True

    def _begin(self) -> None:
        waiting = self._next()
        batch: list[Item] = []
        weight = 0.0
        while (
            waiting and len(batch) < self._items_max and (not batch or weight + waiting[0].weight <= self._weight_max)
        ):
            batch.append(waiting.popleft())
            weight += batch[-1].weight
        seconds = self._takes(weight)
        self._busy = True
        self.busy_s += seconds
        self.batches += 1
        self._clock.after(seconds, lambda: self._end(batch))

    def _next(self) -> deque[Item]:
        """The most urgent that waits, unless another has waited for too many batches."""
        waiting = [queue for queue in self._queues if queue]
        late = len(waiting) > 1 and self._in_a_row >= IN_A_ROW_MAX
        self._in_a_row = 0 if late or len(waiting) == 1 else self._in_a_row + 1
        return waiting[1 if late else 0]

    def _end(self, batch: Sequence[Item]) -> None:
        self._busy = False
        for item in batch:
            item.done()
        if not self._busy and any(self._queues):
            self._begin()
