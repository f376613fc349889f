"""Sequences in parts of a bounded size, and things by what they belong to."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def parts(items: Sequence[V], size: int) -> Iterator[list[V]]:
    """The items in order, so many at a time; the last part may be shorter."""
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, both in the order in which they come."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
