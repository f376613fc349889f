"""Units of turns, read from a shard's table by ranges of their seqs, in processes that are no service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from serve_app.migrate.intervals import Interval, cut
from serve_app.stores.rows import COLD

if TYPE_CHECKING:
    from serve_app.backup.layout import Layout

UNIT_SEQS = 256
"""Positions of the log in one unit, and so turns at most: what is lost when whoever works on it dies."""

STRETCH_SEQS = 64 * UNIT_SEQS
"""Positions that one task reads, unit by unit; opening a table costs more than reading a unit."""

STRETCHES_MAX = 4_096
"""Tasks of one pass; of a large store each reads a longer stretch."""

TURNS = ("turn",)
COLUMNS = ("owner", "seq", "rev", "tier", "body")


class Stretch(NamedTuple):
    """A range of one shard, both ends included."""

    shard: int
    first: int
    last: int


class StoredBody(msgspec.Struct, frozen=True, array_like=True):
    """A turn as it lies in the table, not decoded yet."""

    owner: str
    seq: int
    rev: int
    body: bytes


class Unit(msgspec.Struct, frozen=True, array_like=True):
    """The turns of one range that are to be embedded; how many others in it are cold."""

    shard: int
    first: int
    last: int
    turns: tuple[StoredBody, ...] = ()
    cold: int = 0


def stretches(shard: int, ranges: Sequence[Interval], length: int = STRETCH_SEQS) -> list[Stretch]:
    return [Stretch(shard, first, last) for first, last in cut(ranges, length)]


def stretch_length(positions: int) -> int:
    """For so many positions in all."""
    return max(STRETCH_SEQS, -(-positions // (STRETCHES_MAX * UNIT_SEQS)) * UNIT_SEQS)


class ShardTable:
    """One shard's table. Not thread-safe."""

    def __init__(self, layout: Layout, shard: int) -> None:
        # imported here: whoever starts Ray imports this module before, and LanceDB bears no fork
        from jobs.stored_rows import TABLES, Source, StoredTable

        self._shard = shard
        self._table = StoredTable(Source(layout), shard, TABLES)

    def units(self, first: int, last: int, through: int) -> Iterator[Unit]:
        """The range in units, in order. Turns that were written anew after `through` are not in them: they get their
        vectors as they are written.
        """
        start = first
        for unit_first, unit_last in cut([(first, last)], UNIT_SEQS):
            turns, cold = self._turns(unit_first, unit_last, through)
            if turns or cold or unit_last == last:
                yield Unit(self._shard, start, unit_last, tuple(turns), cold)
                start = unit_last + 1

    def _turns(self, first: int, last: int, through: int) -> tuple[list[StoredBody], int]:
        rows = self._table.read(lambda one: one.between(first, last, COLUMNS, TURNS)).to_pylist()
        warm = [row for row in rows if row["tier"] < COLD]
        turns = [StoredBody(row["owner"], row["seq"], row["rev"], row["body"]) for row in warm if row["rev"] <= through]
        return turns, len(rows) - len(warm)

    def count(self, first: int, last: int) -> tuple[int, int]:
        """(turns that are not cold, cold turns)."""
        warm = cold = 0
        for start, end in cut([(first, last)], STRETCH_SEQS):
            rows = self._table.read(lambda one, at=(start, end): one.between(*at, ["tier"], TURNS))  # type: ignore[misc]
            tiers = np.asarray(rows["tier"])
            warm, cold = warm + int((tiers < COLD).sum()), cold + int((tiers == COLD).sum())
        return warm, cold
