"""Forgetting by topic: what nobody has added to or found for long leaves memory, and later the warm tables.

A topic's age counts from the later of the arrival of its newest turn and its last hit, never from `created_at`:
an old history that is imported today is new. How old is too old is the tenant's policy. What moves is decided from
the tables and the hits, and is moved by one record for each session, which the writer refuses where the session has
changed meanwhile: nothing that was erased or edited comes back by it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from serve_app.core import Owner, Turn
from serve_app.policies import LifecyclePolicy, Policies
from serve_app.ports import Vectors
from serve_app.records import Hits, TurnsMoved
from serve_app.stores.lance import Age
from serve_app.stores.rows import COLD, HOT, WARM
from serve_app.write.commit import Draft, Operation, ShardWriter
from serve_app.write.hits import Noted, hits_of
from serve_app.write.shard import Shard

MICROSECONDS = 1_000_000

DEMOTE_EVERY_S = 600.0
"""Ages are days: a look at them now and then is enough."""

OWNERS_A_PART = 50
"""Owners that one call of the duty looks at."""

TURNS_A_PART = 2_000
"""Turns that one call of the duty moves, about: their rows are written anew by the next fold."""

MOVED_A_RECORD = 500
"""Turns that one record moves."""


class Segmentation(Protocol):
    """Turns of a session, in order, as topics: the number of turns of each. See `compress/topics.py`."""

    def __call__(self, turns: Sequence[Turn], vectors: Mapping[int, Vectors]) -> list[int]: ...


class MoveTurns(Operation):
    """Move folded turns of a session into a colder tier, unless the session is no longer as it was seen."""

    def __init__(self, owner: str, session: str, tier: int, turn_seqs: Sequence[int], last_seq: int) -> None:
        self.owner, self.session, self.tier = owner, session, tier
        self.turn_seqs, self.last_seq = turn_seqs, last_seq

    def prepare(self, draft: Draft) -> int:
        block = draft.shard.block(self.owner)
        index = block.sessions.get(self.session)
        if index is None or index.seqs[-1] != self.last_seq:
            return 0
        unfolded, held = draft.shard.unfolded_of(self.owner), set(index.seqs)
        going = tuple(
            seq for seq in self.turn_seqs if seq in held and seq not in unfolded and block.moved.tier(seq) < self.tier
        )
        if going:
            draft.add(TurnsMoved(draft.seq(), self.owner, self.session, self.tier, going))
        return len(going)


class Limits(NamedTuple):
    """A turn that was last alive at or before `warm` leaves memory, at or before `cold` the warm tables."""

    warm: int | None
    cold: int | None

    def tier(self, alive_at: int) -> int:
        if self.cold is not None and alive_at <= self.cold:
            return COLD
        return WARM if self.warm is not None and alive_at <= self.warm else HOT


def limits(policy: LifecyclePolicy, now: int) -> Limits:
    def before(seconds: int | None) -> int | None:
        return None if seconds is None else now - seconds * MICROSECONDS

    return Limits(before(policy.warm_after_s), before(policy.cold_after_s))


class Demote:
    """The duty. `clock` is the service's; `noted` are the hits of each shard that are not written yet."""

    name = "demote"
    every_s = DEMOTE_EVERY_S

    def __init__(
        self,
        policies: Policies,
        clock: Callable[[], int],
        noted: Mapping[int, Noted],
        segmentation: Segmentation,
    ) -> None:
        self._policies = policies
        self._clock = clock
        self._noted = noted
        self._segmentation = segmentation
        self._left: dict[int, list[str]] = {}  # owners of a shard that this round has still to look at

    def tend(self, number: int, writer: ShardWriter) -> bool:
        if not self._left.get(number):
            self._left[number] = self._candidates(writer.shard)
        owners, moved = self._left[number], 0
        for _ in range(min(OWNERS_A_PART, len(owners))):
            moved += self._tend_owner(writer, owners.pop())
            if moved >= TURNS_A_PART:
                break
        return bool(owners)

    def _limits(self, owner: str) -> Limits:
        return limits(self._policies.of(Owner.from_key(owner).tenant, LifecyclePolicy), self._clock())

    def _candidates(self, shard: Shard) -> list[str]:
        """Owners with a turn that came long enough ago to be in a colder tier than it is in."""
        oldest = shard.table.oldest()
        return sorted({owner for (owner, tier), came in oldest.items() if self._limits(owner).tier(came) > tier})

    def _tend_owner(self, writer: ShardWriter, owner: str) -> int:
        shard, bounds = writer.shard, self._limits(owner)
        alive = _last_alive(shard, owner, self._noted[shard.number])
        sessions: dict[str, list[Age]] = {}
        for age in shard.table.ages(owner):
            sessions.setdefault(age.session, []).append(age)
        moved = 0
        for session, ages in sessions.items():
            if _any_old(ages, bounds):
                moved += self._tend_session(writer, owner, session, ages, alive, bounds)
        return moved

    def _tend_session(
        self,
        writer: ShardWriter,
        owner: str,
        session: str,
        ages: Sequence[Age],
        alive: Mapping[int, int],
        bounds: Limits,
    ) -> int:
        index = writer.shard.block(owner).sessions.get(session)
        if index is None or index.seqs[-1] < ages[-1].seq:
            return 0  # erased meanwhile
        last_seq, unfolded = index.seqs[-1], writer.shard.unfolded_of(owner)
        growing = any(seq in unfolded for seq in index.seqs[bisect.bisect_right(index.seqs, ages[-1].seq) :])
        going: dict[int, list[int]] = {WARM: [], COLD: []}
        topics = self._topics(writer.shard, owner, ages, alive, bounds, list(index.seqs), growing)
        for topic in topics:
            tier = bounds.tier(_alive_at(topic, alive))
            if tier != HOT:
                going[tier] += [age.seq for age in topic if age.tier < tier]
        if going[COLD]:
            writer.shard.cold.check()  # a fold waits for the cold store: nothing is sent to one that does not answer
        moves = [
            MoveTurns(owner, session, tier, seqs[start : start + MOVED_A_RECORD], last_seq)
            for tier, seqs in going.items()
            for start in range(0, len(seqs), MOVED_A_RECORD)
        ]
        return sum(writer.submit(move).result()[0] for move in moves)

    def _topics(
        self,
        shard: Shard,
        owner: str,
        ages: Sequence[Age],
        alive: Mapping[int, int],
        bounds: Limits,
        seqs: Sequence[int],
        growing: bool,
    ) -> list[Sequence[Age]]:
        """The topics of a session's turns; one where all of them are old enough to be cold.

        Cold turns lie between two topics. Of a session that is `growing`, in turns that are not folded yet, the last
        topic is not among them.
        """
        if not growing and bounds.tier(_alive_at(ages, alive)) == COLD:
            return [ages]
        found: list[Sequence[Age]] = []
        for run in _runs(ages, seqs):
            own = [age.seq for age in run]
            turns = shard.turns(owner, own)
            if [turn.seq for turn in turns] != own:
                return []  # changed meanwhile: next time
            start = 0
            for length in self._segmentation(turns, shard.table.session_vectors(owner, own)):
                found.append(run[start : start + length])
                start += length
        return found[:-1] if growing else found


def _any_old(ages: Iterable[Age], bounds: Limits) -> bool:
    return any(bounds.tier(age.arrived_at) > age.tier for age in ages)


def _alive_at(ages: Iterable[Age], alive: Mapping[int, int]) -> int:
    return max(max(age.arrived_at, alive.get(age.seq, 0)) for age in ages)


def _last_alive(shard: Shard, owner: str, noted: Noted) -> dict[int, int]:
    """When each of the owner's turns was found last: as the table, the tail and memory know it."""
    found: dict[int, int] = {}
    for row in shard.table.hits([owner]):
        found |= hits_of(row)
    for record in shard.tail_records_of(owner):
        if isinstance(record, Hits):
            found |= record.found_at
    return found | noted.of(owner)


def _runs(ages: Sequence[Age], seqs: Sequence[int]) -> list[list[Age]]:
    """The ages as runs of turns that follow each other in the session."""
    place = {seq: number for number, seq in enumerate(seqs)}
    runs: list[list[Age]] = []
    last = -2
    for age in ages:
        here = place.get(age.seq, last + 2)
        if here != last + 1:
            runs.append([])
        runs[-1].append(age)
        last = here
    return runs
