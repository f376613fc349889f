"""What the write path tells of itself as it works. `observe/metrics.py` keeps the figures; without it they go nowhere.

Called on the hot path, so each call costs next to nothing: once a group commit, a refusal, a vector.
"""

from __future__ import annotations

from typing import Literal, Protocol

Bound = Literal["queue_weight", "tail_records", "tail_bytes", "pending", "owner_pending"]
"""The bounds at which writers are sent away; see docs/limits.md."""


class Meter(Protocol):
    def committed(self, records: int, seconds: float) -> None:
        """A group commit of so many records took so long, from the first look at its operations to its durability."""
        ...

    def sent_away(self, bound: Bound) -> None:
        """A writer was refused at this bound."""
        ...

    def searchable(self, lag_s: float) -> None:
        """A turn got its vectors so long after it was durable."""
        ...


class Unmetered:
    def committed(self, records: int, seconds: float) -> None: ...

    def sent_away(self, bound: Bound) -> None: ...

    def searchable(self, lag_s: float) -> None: ...


UNMETERED = Unmetered()
