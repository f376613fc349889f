"""Turns that wait for their vectors, in a queue for each owner: who wrote much holds up nobody else.

Not locked: the indexer, whose it is, lets one thread change it at a time; sizes may be read by any.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from serve_app.write.commit import ShardWriter


class Waiting(NamedTuple):
    """A turn that was without vectors when it was noted; it may have been edited or forgotten since."""

    writer: ShardWriter
    owner: str
    seq: int
    since: float
    """When it became durable, or was found at the start without vectors; on the monotonic clock."""


class Backlog:
    """Gives one turn of each owner in turn; those of one owner in the order they came."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def of(self, owner: str) -> int:
        return len(self._queues.get(owner, ()))

    def put(self, waiting: Waiting) -> None:
        self._queues.setdefault(waiting.owner, deque()).append(waiting)
        self._size += 1

    def oldest(self) -> float | None:
        """Since when the one waits that waits longest."""
        return min((one.since for queue in self._queues.values() for one in queue), default=None)

    def take(self, most: int) -> list[Waiting]:
        taken: list[Waiting] = []
        while self._queues and len(taken) < most:
            owner, queue = self._queues.popitem(last=False)
            taken.append(queue.popleft())
            if queue:
                self._queues[owner] = queue
        self._size -= len(taken)
        return taken
