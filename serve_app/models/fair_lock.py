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
"""Who has waited so long takes it over: whoever holds the lock hangs, or will for long be busy elsewhere. Nobody waits
for that one again.
"""


class FairLock:
    """Not reentrant. It spares time and guards nothing: what must not run at once needs another."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._guard = threading.Lock()
        self._holder: threading.Lock | None = None
        self._waiting: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @contextmanager
    def turn(self) -> Iterator[None]:
        turn = self._take()
        try:
            yield
        finally:
            self._hand_over(turn)

    def _take(self) -> threading.Lock:
        turn = threading.Lock()
        turn.acquire()
        with self._guard:
            if self._holder is None:
                self._holder = turn
                return turn
            self._waiting.append(turn)
        if turn.acquire(timeout=self._patience_s):
            return turn
        with self._guard:
            if turn in self._waiting:  # else it was handed over just now
                self._waiting.remove(turn)
                self._holder = turn
            return turn

    def _hand_over(self, turn: threading.Lock) -> None:
        """Of whoever holds it still: one that was given up has nothing to hand over."""
        with self._guard:
            if self._holder is not turn:
                return
            self._holder = self._waiting.popleft() if self._waiting else None
            if self._holder is not None:
                self._holder.release()
