"""Turns by their content: one that comes again is the same object, and what was worked out of it is still there."""

from __future__ import annotations

import msgspec

from serve_app.core import Turn


class Known:
    """In at most two generations of `generation_max`; those used least recently go first. Safe for threads."""

    def __init__(self, generation_max: int) -> None:
        self._generation_max = generation_max
        self._young: dict[bytes, Turn] = {}
        self._old: dict[bytes, Turn] = {}

    def of(self, packed: bytes | msgspec.Raw) -> Turn:
        """The turn of which this is the encoding."""
        key = bytes(packed)
        turn = self._young.get(key) or self._old.pop(key, None) or msgspec.msgpack.decode(key, type=Turn)
        if len(self._young) >= self._generation_max:
            self._old, self._young = self._young, {}
        self._young[key] = turn
        return turn
