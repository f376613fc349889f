"""The layout of a hot index on a device: which slots are whose, kept on the host, with the host's copies.

Each owner has one contiguous *extent*, so that a search looks at one owner's slots only, whatever else lies on the
device. What goes leaves a dead slot; an extent with too many of them is written anew in its place, and when there is
no room behind the last extent all of them are packed. Whatever changes here comes back as the spans of slots that the
device has to be given. Not safe for threads: the index's worker owns it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve_app.errors import HotFull
from serve_app.ports import Rows
from serve_app.stores.device import Halves

__all__ = ["Extent", "Slots", "Span"]

EXTENT_MIN, EXTENT_DOUBLES_TO = 16, 4096
"""Sizes of extents: powers of two from the one to the other, from there on multiples of the other."""

HEADROOM = 8
"""A larger extent is made with one part in so many to spare."""

DEAD_MIN, DEAD_SHARE = 64, 0.5
"""An extent is written anew when more slots than this, and more than this share of those in use, are dead."""

NONE = -1


class Span(NamedTuple):
    start: int
    end: int


@dataclass(slots=True)
class Extent:
    """`used` slots from `start` on, of which `dead` hold nothing; `size` belong to it."""

    number: int
    start: int
    size: int
    used: int = 0
    dead: int = 0

    @property
    def end(self) -> int:
        return self.start + self.used

    @property
    def live(self) -> int:
        return self.used - self.dead


class Slots:
    def __init__(self, dimension: int, slots_max: int) -> None:
        """Memory is taken as it is used, not before."""
        self.slots_max = slots_max
        self.halves: Halves = np.zeros((slots_max, dimension), np.float16)
        self.rows: Rows = np.full(slots_max, NONE, np.int64)
        self.extents: dict[str, Extent] = {}
        self.packings = 0
        self._whose: NDArray[np.int32] = np.full(slots_max, NONE, np.int32)
        self._free: dict[int, list[int]] = {}
        self._end = 0
        self._numbers = 0

    @property
    def end(self) -> int:
        """Slots from here on are nobody's."""
        return self._end

    def live_in(self, extent: Extent, slots: Rows) -> NDArray[np.bool_]:
        """Which of these slots, as a device gave them, hold a living row of this owner."""
        there = (slots >= 0) & (slots < self.slots_max)
        at = np.where(there, slots, 0)
        found: NDArray[np.bool_] = there & (self._whose[at] == extent.number) & (self.rows[at] >= 0)
        return found

    def held(self, owner: str) -> tuple[Rows, Halves]:
        """Copies of the owner's living rows and their vectors."""
        extent = self.extents.get(owner)
        if extent is None:
            return np.empty(0, np.int64), self.halves[:0]
        live = extent.start + np.flatnonzero(self.rows[extent.start : extent.end] >= 0)
        return self.rows[live], self.halves[live]

    def add(self, owner: str, rows: Rows, halves: Halves) -> list[Span]:
        """Rows once each. Raises HotFull, and then nothing has changed."""
        if not len(rows):
            return []
        extent, spans = self._with_room(owner, rows)
        self._kill(extent, rows)
        start = extent.end
        extent.used += len(rows)
        self._put(extent, start, rows, halves)
        return [*spans, Span(start, extent.end)]

    def remove(self, owner: str, rows: Rows | None) -> tuple[int, list[Span]]:
        """How many went; None: all of them."""
        extent = self.extents.get(owner)
        if extent is None:
            return 0, []
        gone = extent.live if rows is None else self._kill(extent, rows)
        if rows is None:
            extent.dead = extent.used
        if not extent.live:
            del self.extents[owner]
            self._release(extent.start, extent.size)
            return gone, []
        if extent.dead > DEAD_MIN and extent.dead > DEAD_SHARE * extent.used:
            self._tighten(extent)
            return gone, [Span(extent.start, extent.end)]
        return gone, []

    def _kill(self, extent: Extent, rows: Rows) -> int:
        gone = extent.start + np.flatnonzero(np.isin(self.rows[extent.start : extent.end], rows))
        self.rows[gone] = NONE
        extent.dead += len(gone)
        return len(gone)

    def _put(self, extent: Extent, start: int, rows: Rows, halves: Halves) -> None:
        end = start + len(rows)
        self.rows[start:end], self.halves[start:end], self._whose[start:end] = rows, halves, extent.number

    def _tighten(self, extent: Extent) -> None:
        """Without dead slots, in its own place."""
        live = extent.start + np.flatnonzero(self.rows[extent.start : extent.end] >= 0)
        rows, halves = self.rows[live], self.halves[live]
        self.rows[extent.start : extent.end] = NONE
        extent.used, extent.dead = len(rows), 0
        self._put(extent, extent.start, rows, halves)

    def _with_room(self, owner: str, rows: Rows) -> tuple[Extent, list[Span]]:
        """The owner's extent, with room for so many; elsewhere, if it has to be larger."""
        extent = self.extents.get(owner)
        if extent is not None and extent.used + len(rows) <= extent.size:
            return extent, []
        held, vectors = self.held(owner)
        size = _size(len(held) + len(rows))
        start, spans = self._taken(size, len(held) + len(rows))
        if extent is not None:
            extent = self.extents[owner]  # it may have been packed meanwhile
            self._release(extent.start, extent.size)
        self._numbers += 1
        made = self.extents[owner] = Extent(self._numbers, start, size, used=len(held))
        self._put(made, start, held, vectors)
        return made, [*spans, Span(start, made.end)]

    def _taken(self, size: int, needed: int) -> tuple[int, list[Span]]:
        if free := self._free.get(size):
            return free.pop(), []
        spans: list[Span] = []
        if self._end + size > self.slots_max:
            if sum(map(_packed_size, self.extents.values())) + size > self.slots_max:
                raise HotFull(f"{needed} vectors of one user do not fit: {self.slots_max} slots, all in use")
            self._pack()
            spans = [Span(0, self._end)]
        start, self._end = self._end, self._end + size
        return start, spans

    def _release(self, start: int, size: int) -> None:
        self.rows[start : start + size] = NONE
        self._whose[start : start + size] = NONE
        self._free.setdefault(size, []).append(start)

    def _pack(self) -> None:
        """Move all extents together, each no larger than it has to be. From the first on, so that none is overwritten
        before it was moved."""
        self.packings += 1
        self._free.clear()
        end = 0
        for extent in sorted(self.extents.values(), key=lambda one: one.start):
            self._tighten(extent)
            rows = self.rows[extent.start : extent.end].copy()
            halves = self.halves[extent.start : extent.end].copy()
            extent.start, extent.size = end, _packed_size(extent)
            self._put(extent, end, rows, halves)
            self.rows[extent.end : end + extent.size] = NONE
            end += extent.size
        self.rows[end:] = NONE
        self._whose[end:] = NONE
        self._end = end


def _packed_size(extent: Extent) -> int:
    return min(extent.size, _size(extent.live))


def _size(rows: int) -> int:
    if rows <= EXTENT_DOUBLES_TO:
        return max(EXTENT_MIN, 1 << (rows - 1).bit_length()) if rows else EXTENT_MIN
    rows += rows // HEADROOM
    return -(-rows // EXTENT_DOUBLES_TO) * EXTENT_DOUBLES_TO
