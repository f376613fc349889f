"""Hits: which turns reads have found, noted in memory, and from time to time made durable.

A hit keeps the topic of its turn in its tier for longer (write/lifecycle.py). Noting costs a lookup and an update of
a dictionary; a stop of the service loses those that were noted since they were last written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import msgspec

from serve_app.core import ROWS_PER_TURN_MAX
from serve_app.records import Hits
from serve_app.stores.lance import RecordTable
from serve_app.stores.rows import Row
from serve_app.write.commit import Draft, Operation, ShardWriter

HITS_KEPT_MAX = 4_096
"""Turns of one owner whose last hit is remembered, those found last: as many as are in memory by default."""

NOTED_MAX = 200_000
"""Turns whose hits wait to be written, each shard; beyond it further ones are not noted."""

HITS_EVERY_S = 60.0
OWNERS_A_PART = 200
"""Owners whose hits one call of the duty writes."""


class Noted:
    """Hits of one shard since they were last written. Called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, dict[int, int]] = {}
        self._size = 0

    def note(self, owner: str, seqs: Iterable[int], now: int) -> None:
        with self._lock:
            if self._size > NOTED_MAX:
                return
            held = self._of.setdefault(owner, {})
            before = len(held)
            held.update(dict.fromkeys(seqs, now))
            self._size += len(held) - before

    def note_again(self, hits: Mapping[str, Mapping[int, int]]) -> None:
        """Hits of owners with their times: noted elsewhere, or taken from here and not written."""
        for owner, found_at in hits.items():
            with self._lock:
                if self._size > NOTED_MAX:
                    return
                held = self._of.setdefault(owner, {})
                before = len(held)
                held.update((seq, max(at, held.get(seq, at))) for seq, at in found_at.items())
                self._size += len(held) - before

    def of(self, owner: str) -> dict[int, int]:
        with self._lock:
            return dict(self._of.get(owner, ()))

    def take(self, most: int) -> dict[str, dict[int, int]]:
        """Those of at most so many owners; they are not noted any more."""
        with self._lock:
            taken = {owner: self._of.pop(owner) for owner in list(self._of)[:most]}
            self._size -= sum(map(len, taken.values()))
            return taken


class PutHits(Operation):
    """Record hits, unless the owner is gone."""

    exclusive = False

    def __init__(self, owner: str, found_at: Mapping[int, int]) -> None:
        self.owner, self.found_at = owner, newest(found_at)

    def prepare(self, draft: Draft) -> int:
        if not draft.shard.block(self.owner).total_turns:
            return 0
        draft.add(Hits(draft.seq(), self.owner, self.found_at))
        return len(self.found_at)


class WriteHits:
    """The duty: what was noted becomes one record for each owner."""

    name = "hits"
    every_s = HITS_EVERY_S

    def __init__(self, noted: Mapping[int, Noted]) -> None:
        self._noted = noted

    def tend(self, number: int, writer: ShardWriter) -> bool:
        taken = self._noted[number].take(OWNERS_A_PART)
        written = [writer.submit(PutHits(owner, found_at)) for owner, found_at in taken.items()]
        for outcome in written:
            outcome.result()
        return len(taken) == OWNERS_A_PART


class HitsPlan:
    """The hits of a piece of the tail, as rows: one for each owner, which takes up what it held before."""

    def __init__(self) -> None:
        self._of: dict[str, Hits] = {}

    def take(self, record: Hits) -> None:
        held = self._of.get(record.owner)
        found_at = record.found_at if held is None else held.found_at | record.found_at
        self._of[record.owner] = Hits(record.seq, record.owner, found_at)

    def forget_owner(self, owner: str) -> None:
        self._of.pop(owner, None)

    def rows(self, table: RecordTable) -> list[Row]:
        held = {row.owner: row for row in table.hits(sorted(self._of))}
        return [_row(hits, held.get(owner)) for owner, hits in self._of.items()]


def _row(hits: Hits, held: Row | None) -> Row:
    """In the place of the owner's row where there is one, so that there is never a moment without it."""
    before = {} if held is None else hits_of(held)
    return Row(
        row=hits.seq * ROWS_PER_TURN_MAX if held is None else held.row,
        rev=hits.seq,
        kind="hits",
        owner=hits.owner,
        seq=hits.seq,
        body=msgspec.msgpack.encode(newest(before | hits.found_at)),
    )


def hits_of(row: Row) -> dict[int, int]:
    return msgspec.msgpack.decode(row.body, type=dict[int, int])


def newest(found_at: Mapping[int, int]) -> dict[int, int]:
    if len(found_at) <= HITS_KEPT_MAX:
        return dict(found_at)
    return dict(sorted(found_at.items(), key=lambda pair: pair[1])[-HITS_KEPT_MAX:])
