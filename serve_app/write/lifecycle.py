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

from serve_app.core import NEVER, SECOND_US, Owner, Turn
from serve_app.policies import LifecyclePolicy, Policies
from serve_app.ports import Vectors
from serve_app.records import Hits, TurnsMoved
from serve_app.stores.lance import Age
from serve_app.stores.parts import grouped, parts
from serve_app.stores.rows import COLD, HOT, WARM
from serve_app.write.commit import Draft, Operation, ShardWriter
from serve_app.write.hits import Noted, hits_of
from serve_app.write.shard import Shard

DEMOTE_EVERY_S = 600.0
"""Ages are days: a look at them now and then is enough."""

OWNERS_A_PART = 50
"""Owners that one call of the duty looks at."""

TURNS_A_PART = 2_000
"""Turns that one call of the duty moves, about: their rows are written anew by the next fold."""

OWNERS_REMEMBERED_MAX = 100_000
"""Owners of whom it is remembered when a look is worth while; beyond it all are forgotten and looked at again."""

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


class PolicyNow(NamedTuple):
    """A tenant's policy at one moment."""

    policy: LifecyclePolicy
    now: int

    def tier(self, alive_at: int) -> int:
        """The tier that is due to what was last alive then."""
        return max((tier for tier, ends in self._ends(alive_at) if ends <= self.now), default=HOT)

    def due_at(self, alive_at: int, tier: int) -> int:
        """When what was last alive then, and is in this tier, is due to a colder one. A hit puts that off."""
        return min((ends for colder, ends in self._ends(alive_at) if colder > tier), default=NEVER)

    def _ends(self, alive_at: int) -> list[tuple[int, int]]:
        lives = (WARM, self.policy.warm_after_s), (COLD, self.policy.cold_after_s)
        return [(tier, alive_at + seconds * SECOND_US) for tier, seconds in lives if seconds is not None]


class Looked(NamedTuple):
    """What is remembered of a look at an owner, and of how the table stood."""

    policy: LifecyclePolicy
    due_at: int
    folded_seq: int
    newest_at: int
    """When the newest turn came that was there: what has come since came later."""

    def next_at(self, in_force: PolicyNow, tier: int, rev: int) -> int:
        """When the next one is worth while, with turns in this tier whose newest state is this one."""
        if in_force.policy != self.policy:
            return 0
        if rev <= self.folded_seq:
            return self.due_at
        if tier != HOT:
            return 0  # written anew, and so back from the cold: as old as it ever was
        return min(self.due_at, in_force.due_at(self.newest_at, HOT))


class Seen(NamedTuple):
    """What one look at an owner or a session did, and when the next one is worth while; 0: at the next round."""

    moved: int
    due_at: int


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
        self._looked: dict[str, Looked] = {}

    def tend(self, number: int, writer: ShardWriter) -> bool:
        if not self._left.get(number):
            self._left[number] = self._candidates(writer.shard)
        owners, moved = self._left[number], 0
        for _ in range(min(OWNERS_A_PART, len(owners))):
            moved += self._tend_owner(writer, owners.pop())
            if moved >= TURNS_A_PART:
                break
        return bool(owners)

    def _in_force(self, owner: str) -> PolicyNow:
        return PolicyNow(self._policies.of(Owner.from_key(owner).tenant, LifecyclePolicy), self._clock())

    def _candidates(self, shard: Shard) -> list[str]:
        """Owners with a turn that came long enough ago to be in a colder tier than it is in, and that may be due."""
        found: set[str] = set()
        for (owner, tier), (came, rev) in shard.table.oldest().items():
            in_force, looked = self._in_force(owner), self._looked.get(owner)
            next_at = looked.next_at(in_force, tier, rev) if looked else 0
            if in_force.tier(came) > tier and next_at <= in_force.now:
                found.add(owner)
        return sorted(found)

    def _tend_owner(self, writer: ShardWriter, owner: str) -> int:
        shard, in_force = writer.shard, self._in_force(owner)
        alive = _last_alive(shard, owner, self._noted[shard.number])
        folded_seq, found = shard.folded_seq, shard.table.ages(owner)
        newest_at = max((age.arrived_at for age in found), default=0)
        sessions = grouped((age.session, age) for age in found)
        seen = [self._tend_session(writer, owner, name, ages, alive, in_force) for name, ages in sessions.items()]
        if len(self._looked) > OWNERS_REMEMBERED_MAX:
            self._looked.clear()
        due_at = min((one.due_at for one in seen), default=0)
        self._looked[owner] = Looked(in_force.policy, due_at, folded_seq, newest_at)
        return sum(one.moved for one in seen)

    def _tend_session(
        self,
        writer: ShardWriter,
        owner: str,
        session: str,
        ages: Sequence[Age],
        alive: Mapping[int, int],
        in_force: PolicyNow,
    ) -> Seen:
        if not any(in_force.tier(age.arrived_at) > age.tier for age in ages):
            return Seen(0, min(in_force.due_at(age.arrived_at, age.tier) for age in ages))
        index = writer.shard.block(owner).sessions.get(session)
        if index is None or index.seqs[-1] < ages[-1].seq:
            return Seen(0, 0)  # erased meanwhile
        last_seq, unfolded = index.seqs[-1], writer.shard.unfolded_of(owner)
        growing = any(seq in unfolded for seq in index.seqs[bisect.bisect_right(index.seqs, ages[-1].seq) :])
        going: dict[int, list[int]] = {WARM: [], COLD: []}
        due_at = NEVER
        topics = self._topics(writer.shard, owner, ages, alive, in_force, list(index.seqs), growing)
        for topic in topics:
            alive_at = _alive_at(topic, alive)
            tier = in_force.tier(alive_at)
            if tier != HOT:
                going[tier] += [age.seq for age in topic if age.tier < tier]
            due_at = min(due_at, in_force.due_at(alive_at, max(tier, min(age.tier for age in topic))))
        planned = sum(map(len, going.values()))
        if going[COLD] and not writer.shard.cold.answers():
            going[COLD] = []  # a fold waits for the cold store: nothing is sent to one that does not answer
        moved = self._move(writer, owner, session, going, last_seq)
        as_seen = topics and not growing and moved == planned
        return Seen(moved, due_at if as_seen else 0)

    def _move(
        self, writer: ShardWriter, owner: str, session: str, going: Mapping[int, Sequence[int]], last_seq: int
    ) -> int:
        moves = [
            MoveTurns(owner, session, tier, part, last_seq)
            for tier, seqs in going.items()
            for part in parts(seqs, MOVED_A_RECORD)
        ]
        return sum(writer.submit(move).result()[0] for move in moves)

    def _topics(
        self,
        shard: Shard,
        owner: str,
        ages: Sequence[Age],
        alive: Mapping[int, int],
        in_force: PolicyNow,
        seqs: Sequence[int],
        growing: bool,
    ) -> list[Sequence[Age]]:
        """The topics of a session's turns; one where all of them are old enough to be cold.

        Cold turns lie between two topics. Of a session that is `growing`, in turns that are not folded yet, the last
        topic is not among them.
        """
        if not growing and in_force.tier(_alive_at(ages, alive)) == COLD:
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
