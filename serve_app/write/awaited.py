"""Turns of one shard whose vectors are still to come: of the base, or of what is made apart for a migration.

Promises that a turn stands here from its record on until vectors of just that state are taken, or the turn is gone or
cold. At most `AWAITED_MAX` are noted: of further ones it is known only that there are `more`, to be read again from
the tables when there is room. Locked: the writer changes it, the indexer looks at it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from serve_app.records import Record, SessionGone, TurnGone, TurnPut, TurnsMoved, UserGone, VectorsPut
from serve_app.stores.rows import COLD

AWAITED_MAX: Final = 200_000
"""Turns that are noted one by one, some 50 MB; of the base there are fewer, as appends are sent away before."""


class Pending(NamedTuple):
    """A turn without vectors, in the state that they are to be made of."""

    owner: str
    session: str
    rev: int


class Awaited(Mapping[int, Pending]):
    """By the seq of the turn. `version` and `after`: what is made apart, and of turns written after which seq."""

    def __init__(self, version: str | None = None, after: int = 0, most: int = AWAITED_MAX) -> None:
        self.version = version
        self.after = after
        self.more = False
        """Whether there are some that are not noted."""
        self.most = most
        self.read_up_to = after
        """Up to which record the tables were asked for those that are noted."""
        self._bounded = True
        self._pending: dict[int, Pending] = {}
        self._lock = threading.Lock()

    def __getitem__(self, turn_seq: int) -> Pending:
        return self._pending[turn_seq]

    def __iter__(self) -> Iterator[int]:
        return iter(self._pending)

    def __len__(self) -> int:
        return len(self._pending)

    def anew(self) -> Awaited:
        """What is awaited here, with none noted, and without a bound until that is set (`bound`)."""
        fresh = Awaited(self.version, self.after, self.most)
        fresh._bounded = False
        return fresh

    @property
    def beside(self) -> bool:
        return self.version is not None

    @property
    def roomy(self) -> bool:
        """Whether so few are noted that it is time to note those that are not."""
        return self.more and len(self._pending) <= self.most // 2

    def noted(self) -> list[tuple[int, Pending]]:
        """All that are noted, by the time of their record, as of one moment."""
        with self._lock:
            return sorted(self._pending.items(), key=_rev)

    def awaits(self, turn_seq: int, owner: str, rev: int) -> bool:
        """Whether vectors of this state of the owner's turn are still to come, and are to be made now."""
        pending = self._pending.get(turn_seq)
        return pending is not None and (pending.owner, pending.rev) == (owner, rev)

    def lacks(self, turn_seqs: Iterable[int]) -> bool:
        """Whether one of these turns, just written, is still to get its vectors."""
        return self.more or any(seq in self._pending for seq in turn_seqs)

    def note(self, lacking: Iterable[tuple[int, Pending]]) -> None:
        """What the tables say is still without vectors, by the time of its record."""
        with self._lock:
            for seq, (owner, session, rev) in lacking:
                self.read_up_to = rev
                self._note(seq, Pending(sys.intern(owner), sys.intern(session), rev))  # of many turns they are the same

    def bound(self) -> None:
        """Note no more than `most` from now on; those that were written last are left out."""
        with self._lock:
            self._bounded = True
            if len(self._pending) > self.most:
                self._pending = dict(sorted(self._pending.items(), key=_rev)[: self.most])
                self.more = True

    def take(self, records: Sequence[Record]) -> None:
        """Apply durable records, in order of seq."""
        with self._lock:
            for record in records:
                self._take(record)

    def settle(self, turn_seq: int, rev: int) -> None:
        """There will be no vectors of this state: none are wanted."""
        with self._lock:
            pending = self._pending.get(turn_seq)
            if pending is not None and pending.rev == rev:
                del self._pending[turn_seq]

    def clear(self) -> None:
        with self._lock:
            self._pending.clear()
            self.more = False

    def _take(self, record: Record) -> None:
        match record:
            case TurnPut(owner=owner, turn=turn):
                if turn.rev > self.after:
                    self._note(turn.seq, Pending(owner, turn.session, turn.rev))
            case VectorsPut(beside=beside):
                if beside == self.beside:
                    self._took(record)
            case TurnsMoved(tier=tier, turn_seqs=seqs):
                for seq in seqs if tier == COLD else ():
                    self._pending.pop(seq, None)
            case TurnGone(turn_seq=turn_seq):
                self._pending.pop(turn_seq, None)
            case SessionGone(owner=owner, session=session):
                self._await_no_more(lambda one: (one.owner, one.session) == (owner, session))
            case UserGone(owner=owner):
                self._await_no_more(lambda one: one.owner == owner)
            case _:
                pass

    def _note(self, seq: int, pending: Pending) -> None:
        if seq in self._pending or len(self._pending) < self.most or not self._bounded:
            self._pending[seq] = pending
        else:
            self.more = True

    def _took(self, record: VectorsPut) -> None:
        for made in record.versions:
            if self.version in (None, made.version):
                for item in made.items:
                    if self.awaits(item.turn_seq, record.owner, item.rev):
                        del self._pending[item.turn_seq]

    def _await_no_more(self, gone: Callable[[Pending], bool]) -> None:
        for seq in [seq for seq, pending in self._pending.items() if gone(pending)]:
            del self._pending[seq]


def _rev(one: tuple[int, Pending]) -> int:
    return one[1].rev
