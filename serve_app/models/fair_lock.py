"""A lock that is given in the order in which it was asked for, and that nobody waits for for ever.

`threading.Lock` may be taken again by whoever lets go of it, however long another has waited: of two encoders that
share a processor, the one with a backlog would keep the other's queries out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["FairLock"]

PATIENCE_S = 2.0
"""Who has waited so long goes on without: whoever holds the lock hangs, or will for long be busy elsewhere."""


class FairLock:
    """Not reentrant. It spares time and guards nothing: what must not run at once needs another."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @contextmanager
    def turn(self) -> Iterator[None]:
        mine = self._take()
        try:
            yield
        finally:
            if mine:
                self._hand_over()

    def _take(self) -> bool:
        with self._guard:
            if not self._held:
                self._held = True
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=self._patience_s):
            return True
        with self._guard:
            if turn not in self._waiting:
                return True  # handed over just now
            self._waiting.remove(turn)
            return False

    def _hand_over(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False
