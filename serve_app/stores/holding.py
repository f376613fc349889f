"""Keeping the files of a table, and the segments behind it, where they are while somebody copies them.

Whoever copies holds; whoever is about to remove files asks first and, while they are held, leaves them for later.
Appends and merges add files and ask nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Hold:
    """Safe for many threads. A removal that has begun is waited for; none begins while anybody holds."""

    def __init__(self) -> None:
        self._removing = threading.Lock()
        self._holders = 0

    @property
    def held(self) -> bool:
        return self._holders > 0

    @contextmanager
    def holding(self) -> Iterator[None]:
        with self._removing:
            self._holders += 1
        try:
            yield
        finally:
            with self._removing:
                self._holders -= 1

    @contextmanager
    def removing(self) -> Iterator[bool]:
        """Gives whether files may be removed inside."""
        with self._removing:
            yield self._holders == 0
