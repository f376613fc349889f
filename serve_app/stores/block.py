"""One owner's memory in this process: an index of everything, the content of the newest turns, facts, summaries.

A block is the fold of the owner's records in order of seq. It starts from the rows of the tables
(`restore`) and takes each later record once (`apply`). The content of at most `TURNS_RESIDENT_MAX`
newest turns is resident; the ids and seqs of all turns always are, so that an append costs the
same at any length. Whoever touches a block holds its `lock`.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve_app.core import EmbeddingVersion, Fact, Summary, Turn
from serve_app.entities.values import Entity
from serve_app.ports import HotIndex, HotProducts, Tokens
from serve_app.records import (
    FactGone,
    FactPut,
    Record,
    SessionGone,
    SummaryGone,
    SummaryPut,
    TurnGone,
    TurnPut,
    TurnsMoved,
    UserGone,
    VectorsPut,
)
from serve_app.scripts import has_other
from serve_app.stores.columns import Columns
from serve_app.stores.entity_rows import unpacked
from serve_app.stores.hot_vectors import HotVectors, Offsets
from serve_app.stores.moved import MovedTurns
from serve_app.stores.rows import StoredOwner

TURNS_RESIDENT_MAX = 4096
"""Newest turns of one owner whose content and vectors stay in memory; older ones are read from the tables."""

RESIDENT_SLACK = 8
"""A block may be over its bound by one part in so many: the walk that lets turns go is paid once in so many appends."""

INDEXED_A_RESIDENT = 16
"""Turns whose id and seq alone are held take about as much memory as one whose content is, too."""

FACT_VERSIONS_MAX = 16
"""Values of one fact that are kept for `as_of`; older ones are forgotten."""

SUMMARY_VERSIONS_MAX = 64
"""Summaries of one session that are kept for `as_of`: those of 320 turns, by default."""


def resident_turns(total: int, maximum: int) -> int:
    """How many of an owner's `total` hot turns are resident: after a restart as many as before, so that searches agree.

    From `maximum` on it grows by the slack and falls back to `maximum`, again and again.
    """
    return min(total, maximum) + max(0, total - maximum) % (maximum // RESIDENT_SLACK + 1)


@dataclass(slots=True)
class SessionIndex:
    """Ids, seqs and times of one session's turns, oldest first, resident or not."""

    ids: dict[str, int] = field(default_factory=dict)
    seqs: list[int] = field(default_factory=list)
    times: array[int] = field(default_factory=lambda: array("q"))
    summarised_seq: int = 0
    changed_seq: int = 0
    """Of the latest edit or erasure in it, or a later one."""

    @property
    def last_at(self) -> int:
        return self.times[-1]

    def add(self, turn_id: str, seq: int, at: int) -> None:
        self.ids[turn_id] = seq
        self.seqs.append(seq)
        self.times.append(at)

    def discard(self, turn_id: str) -> None:
        place = bisect.bisect_left(self.seqs, self.ids.pop(turn_id))
        del self.seqs[place]
        del self.times[place]


class Block:
    """See the module. `key` is the owner's key; `hot` has each version's index of the vectors of all owners."""

    def __init__(
        self,
        key: str,
        versions: Sequence[EmbeddingVersion],
        hot: Mapping[str, HotIndex],
        resident_max: int = TURNS_RESIDENT_MAX,
    ) -> None:
        self.key = key
        self.lock = threading.RLock()
        self.applied_seq = 0
        self.changed_seq = 0  # seq of the latest edit or erasure: contexts as of an earlier seq may differ
        self.total_turns = 0  # resident or not
        self.characters = 0  # of resident turns and facts: how much text a read may have to go through
        self.sessions: dict[str, SessionIndex] = {}
        self.moved = MovedTurns()
        self.turns: dict[int, Turn] = {}
        self.facts: dict[str, list[Fact]] = {}
        self.summaries: dict[str, list[Summary]] = {}
        self.binding: set[str] = set()  # sessions of whose summaries one has something that binds for good
        self.unended: tuple[Any, Any] | None = None  # what `memory.standing` has worked out of the entries of all
        self.mixed = False  # whether a turn has been here with a letter of another script than Latin
        self.vectors = HotVectors(key, versions, hot)
        self.expiring: dict[int, int] = {}  # turn seq -> when it expires, for resident turns that do
        self._resident_max = resident_max
        self._left = False
        self.columns = Columns()

    # ---- reading

    @property
    def weight(self) -> int:
        """About how much memory this takes, in resident turns; an empty block counts as one."""
        return 1 + len(self.turns) + self.total_turns // INDEXED_A_RESIDENT

    @property
    def complete(self) -> bool:
        """Whether memory holds all there is to a read of the hot and warm tiers."""
        return len(self.turns) + self.moved.cold == self.total_turns

    def find(self, session: str, turn_id: str) -> int | None:
        """The seq of a turn, or None."""
        index = self.sessions.get(session)
        return None if index is None else index.ids.get(turn_id)

    def holds(self, turn: Turn) -> bool:
        """Whether this is a living turn of this owner. A table or an index that gives another is not believed."""
        return self.find(turn.session, turn.id) == turn.seq

    def dense(
        self,
        version: str,
        query: NDArray[np.float32],
        limit: int,
        as_of: int | None,
        given: HotProducts | None = None,
    ) -> NDArray[np.float32]:
        """The inner product of each ordinal below `limit`, shape (limit,), NaN where the version has no vector (yet).

        Of a turn of several parts the best counts.
        """
        if self._left:
            return np.full(limit, np.nan, np.float32)  # a later block of this owner has the vectors
        return self.vectors.dense(version, query, self.columns.seqs, as_of, given)[:limit]

    def tokens(self, version: str, seqs: Sequence[int], as_of: int | None) -> tuple[Tokens, Offsets]:
        """The vectors of the tokens of turns, one after another, and where those of each begin; see `HotVectors`."""
        return self.vectors.tokens(version, seqs, as_of)

    def fact_at(self, key: str, as_of: int | None) -> Fact | None:
        versions = self.facts.get(key, ())
        return next((fact for fact in reversed(versions) if as_of is None or fact.seq <= as_of), None)

    def summary_at(self, session: str, as_of: int | None, version: str = "") -> Summary | None:
        """The newest as of then by this version of the compressor; where there is none, by any."""
        newest: Summary | None = None
        for one in reversed(self.summaries.get(session, ())):
            if as_of is not None and one.seq > as_of:
                continue
            if not version or one.version == version:
                return one
            newest = newest or one
        return newest

    def forgot(self, session: str | None, as_of: int) -> bool:
        """Whether a fact, a summary of this session or one that binds, as of then, may have made room for newer ones.

        Nobody remembers what was let go: of one that has just as many versions as are kept it may be so.
        """
        names = self.binding if session is None else self.binding | {session}
        made = (self.summaries.get(name, []) for name in names)
        return any(len(one) == SUMMARY_VERSIONS_MAX and one[0].seq > as_of for one in made) or any(
            len(one) == FACT_VERSIONS_MAX and one[0].seq > as_of for one in self.facts.values()
        )

    # ---- building

    def restore(self, stored: StoredOwner, folded_seq: int) -> None:
        """Take over what the tables hold up to `folded_seq`."""
        for row in stored.index:
            self._add_to_session(row.session, row.id, row.seq, row.created_at)
            self.moved.put(row.seq, row.tier)
        entities = stored.entities or repeat(None, len(stored.turns))
        for turn, terms, named in zip(stored.turns, stored.terms, entities, strict=True):
            self._make_resident(turn, terms.split(" ") if terms else [], unpacked(named))
        for version, vectors in stored.vectors.items():
            self.vectors.take(version, [one for one in vectors if one.turn_seq in self.turns])
        for fact in stored.facts:
            self._put_fact(fact)
        for summary in stored.summaries:
            self._put_summary(summary)
        self.changed_seq = stored.changed_seq
        for index in self.sessions.values():
            index.changed_seq = stored.changed_seq  # the tables know the owner's latest change, not each session's
        self.applied_seq = folded_seq

    def apply(self, record: Record) -> None:
        """Take one record; one that was taken before changes nothing."""
        if record.seq <= self.applied_seq or self._left:
            return
        match record:
            case TurnPut(turn=turn):
                self._put_turn(turn)
            case VectorsPut():
                self._put_vectors(record)
            case TurnsMoved(session=session, tier=tier, turn_seqs=seqs):
                self._move(session, tier, seqs)
            case TurnGone():
                self._forget_turn(record)
            case SessionGone(session=session):
                self._forget_session(session, record.seq)
            case UserGone():
                self._forget_all(record.seq)
            case FactPut(fact=fact):
                self._put_fact(fact)
            case FactGone():
                self._forget_fact(record)
            case SummaryPut(summary=summary):
                self._put_summary(summary)
            case SummaryGone():
                self._forget_summaries(record)
            case _:
                pass
        self.applied_seq = record.seq

    def _put_turn(self, turn: Turn) -> None:
        if turn.rev == turn.seq:
            self._add_to_session(turn.session, turn.id, turn.seq, turn.created_at)
            self._make_resident(turn)
            return
        self._drop_summaries(turn.session, turn.rev)
        self.changed_seq = turn.rev
        self.moved.edited(turn.seq)
        if turn.seq in self.turns:
            self.vectors.remove(turn.seq)
            self.columns.replace(self.turns[turn.seq], turn)
            self.mixed = self.mixed or has_other(turn.text)
            self.characters += turn.characters - self.turns[turn.seq].characters
            self.turns[turn.seq] = turn

    def _add_to_session(self, session: str, turn_id: str, seq: int, at: int) -> None:
        self.sessions.setdefault(session, SessionIndex()).add(turn_id, seq, at)
        self.total_turns += 1

    def _make_resident(
        self, turn: Turn, terms: Sequence[str] | None = None, entities: Sequence[Entity] | None = None
    ) -> None:
        self.turns[turn.seq] = turn
        self.characters += turn.characters
        self.mixed = self.mixed or has_other(turn.text)
        if turn.expires_at is not None:
            self.expiring[turn.seq] = turn.expires_at
        self._index(turn, terms, entities)
        if len(self.turns) > self._resident_max + self._resident_max // RESIDENT_SLACK:
            hot = self.total_turns - len(self.moved)
            self._let_oldest_go(len(self.turns) - resident_turns(hot, self._resident_max))

    def _index(self, turn: Turn, terms: Sequence[str] | None, entities: Sequence[Entity] | None) -> None:
        """Add to the columns, linked to the turn before it in its session, but for moved ones, if that is resident."""
        seqs = self.sessions[turn.session].seqs
        place = bisect.bisect_left(seqs, turn.seq)
        while place and self.moved.tier(seqs[place - 1]):
            place -= 1
        previous = seqs[place - 1] if place and seqs[place - 1] in self.turns else None
        self.columns.append(turn, previous, terms, entities)

    def _let_oldest_go(self, surplus: int) -> None:
        for seq in list(islice(self.turns, surplus)):
            self.characters -= self.turns.pop(seq).characters
            self.expiring.pop(seq, None)
            self.vectors.remove(seq)
        self._cut_columns()

    def _cut_columns(self) -> None:
        """Forget the ordinals before the oldest resident turn."""
        self.columns = self.columns.since(next(iter(self.turns))) if self.turns else Columns()
        self.vectors.moved()

    def _move(self, session: str, tier: int, seqs: Iterable[int]) -> None:
        """Let the content of turns go, and keep their places. Those that are gone already are left out."""
        held = set(self.sessions[session].seqs).intersection(seqs) if session in self.sessions else set()
        for seq in held:
            self.moved.put(seq, tier)
        if resident := sorted(seq for seq in held if seq in self.turns):
            self._forget_content(resident)
            self._cut_columns()

    def _put_vectors(self, record: VectorsPut) -> None:
        live = record.only(lambda one: one.turn_seq in self.turns and self.turns[one.turn_seq].rev == one.rev)
        if live is None:
            return
        for one in live.versions:
            self.vectors.put(one.version, one.items, record.seq)

    def _put_fact(self, fact: Fact) -> None:
        versions = self.facts.setdefault(fact.key, [])
        self.characters += len(fact.value) - (len(versions[-1].value) if versions else 0)
        versions.append(fact)
        del versions[:-FACT_VERSIONS_MAX]

    def _put_summary(self, summary: Summary) -> None:
        session = self.sessions.get(summary.session)
        if session is None:
            return
        versions = self.summaries.setdefault(summary.session, [])
        versions.append(summary)
        del versions[:-SUMMARY_VERSIONS_MAX]
        session.summarised_seq = summary.last_seq
        if summary.binding:
            self.binding.add(summary.session)

    # ---- versions

    def hold(self, version: EmbeddingVersion, hot: HotIndex) -> None:
        """Take vectors of this version from now on."""
        if not self._left:
            self.vectors.hold(version, hot)

    def release(self, name: str) -> None:
        """Forget the vectors of this version."""
        if not self._left:
            self.vectors.release(name)

    # ---- forgetting

    def leave(self) -> None:
        """Give the vectors up: this block is no longer the owner's. Those who still read it find words only."""
        self._left = True
        self.vectors.clear()

    def _forget_turn(self, record: TurnGone) -> None:
        self.changed_seq = record.seq
        session = self.sessions.get(record.session)
        if session is None or session.ids.get(record.turn_id) != record.turn_seq:
            return
        session.discard(record.turn_id)
        self.total_turns -= 1
        self.moved.forget([record.turn_seq])
        self._forget_content([record.turn_seq])
        self._drop_summaries(record.session, record.seq)
        if not session.seqs:
            del self.sessions[record.session]

    def _forget_session(self, session: str, seq: int) -> None:
        gone = self.sessions.pop(session, None)
        self._lose_summaries(session)
        if gone is not None:
            self.total_turns -= len(gone.seqs)
            self.moved.forget(gone.seqs)
            self._forget_content(gone.seqs)
        self.changed_seq = seq

    def _forget_all(self, seq: int) -> None:
        self.total_turns = self.characters = 0
        self.moved.clear()
        self.sessions, self.turns, self.expiring = {}, {}, {}
        self.facts, self.summaries, self.binding = {}, {}, set()
        self.unended = None
        self.columns, self.mixed = Columns(), False
        self.vectors.clear()
        self.changed_seq = seq

    def _forget_content(self, turn_seqs: Iterable[int]) -> None:
        resident = [seq for seq in turn_seqs if seq in self.turns]
        for seq in resident:
            self.characters -= self.turns.pop(seq).characters
            self.expiring.pop(seq, None)
            self.vectors.remove(seq)
        self.columns.remove(resident)

    def _forget_fact(self, record: FactGone) -> None:
        versions = self.facts.pop(record.key, [])
        kept = [one for one in versions if one.seq > record.through] if record.through else []
        if kept:
            self.facts[record.key] = kept
        elif versions:
            self.characters -= len(versions[-1].value)
        self.changed_seq = record.seq

    def _forget_summaries(self, record: SummaryGone) -> None:
        kept = [one for one in self._lose_summaries(record.session) if one.seq > record.through]
        if kept:
            self.summaries[record.session] = kept
            self.binding |= {one.session for one in kept if one.binding}
        elif record.session in self.sessions:
            self.sessions[record.session].summarised_seq = 0
        self.changed_seq = record.seq

    def _drop_summaries(self, session: str, seq: int) -> None:
        """Forget a session's summaries: they may quote a turn that has changed or gone."""
        self._lose_summaries(session)
        if session in self.sessions:
            self.sessions[session].summarised_seq = 0
            self.sessions[session].changed_seq = seq

    def _lose_summaries(self, session: str) -> list[Summary]:
        self.binding.discard(session)
        self.unended = None
        return self.summaries.pop(session, [])
