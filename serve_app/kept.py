"""What is worked out of a value once, kept for as long as that very object lives and never beyond a bound.

An entry is a weak reference to its value: when the last holder of a turn lets it go (edited, erased,
expired, evicted), what was derived from it goes at that moment, too. Of entries whose values live,
those used least recently go first, a generation at a time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Entry(weakref.ref[V]):
    """Subclasses add slots for what they keep; `key` is the identity of the value."""

    __slots__ = ("key",)

    def __init__(self, value: V, gone: Callable[[weakref.ref[V]], None]) -> None:
        super().__init__(value, gone)  # type: ignore[call-arg]
        self.key = id(value)


E = TypeVar("E", bound=Entry)  # type: ignore[type-arg]


class Kept(Generic[V, E]):
    """Entries by the identity of their value, in at most two generations of `generation_max`. Safe for threads."""

    def __init__(self, entry: Callable[[V, Callable[[weakref.ref[V]], None]], E], generation_max: int) -> None:
        self._entry = entry
        self._generation_max = generation_max
        self._young: dict[int, E] = {}
        self._old: dict[int, E] = {}
        self._forget = self._gone  # one bound method for all entries

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def of(self, value: V) -> E:
        """The entry of this object: the one kept, or a new one."""
        found = self._young.get(id(value))
        return found if found is not None and found() is value else self._renewed(value)

    def _renewed(self, value: V) -> E:
        found = self._old.pop(id(value), None)
        if found is None or found() is not value:
            found = self._entry(value, self._forget)
        if len(self._young) >= self._generation_max:
            self._old, self._young = self._young, {}
        self._young[id(value)] = found
        return found

    def _gone(self, entry: Any) -> None:
        """Called as the value dies, before its identity can be another's."""
        key: int = entry.key
        for generation in (self._young, self._old):
            if generation.get(key) is entry:
                generation.pop(key, None)
