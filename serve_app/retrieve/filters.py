"""Which turns may be results at all. Exact and exhaustive: no score ever drops what a filter lets through."""

from __future__ import annotations

from typing import Any

import msgspec

from serve_app.core import Turn


class Filters(msgspec.Struct, frozen=True):
    """Conditions that must all hold. `start` is inclusive, `end` exclusive, both in microseconds."""

    session: str | None = None
    roles: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset({"turn"})
    start: int | None = None
    end: int | None = None
    tool_name: str | None = None
    metadata: dict[str, Any] = {}

    @property
    def narrow(self) -> bool:
        """Whether anything but the owner limits the results."""
        return self != Filters(kinds=self.kinds)

    def admit(self, turn: Turn) -> bool:
        return (
            (self.session is None or turn.session == self.session)
            and (not self.roles or turn.role in self.roles)
            and (self.start is None or turn.created_at >= self.start)
            and (self.end is None or turn.created_at < self.end)
            and (self.tool_name is None or turn.tool_name == self.tool_name)
            and (not self.metadata or self._metadata_holds(turn))
        )

    def _metadata_holds(self, turn: Turn) -> bool:
        stored = turn.metadata or {}
        return all(key in stored and same(stored[key], value) for key, value in self.metadata.items())


def same(one: Any, other: Any) -> bool:
    """Equal as JSON values: 3 is 3.0, but true is not 1 and "3" is not 3, at any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
