"""Whom and what an owner's turns name: every living turn that is not cold counts, in memory or not.

Of turns in memory the block's index tells, of the others the table's column; a turn of which something has expired, or
that the table does not know in its latest state, is looked into. Names as they are written come from the last turn of
each entity, so that none outlives its turn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.entities.recognise import in_turn
from serve_app.entities.values import CLASSES, Entity, EntityClass, key_of
from serve_app.errors import DeadlinePassed, InvalidRequest
from serve_app.stores.block import Block
from serve_app.stores.entity_rows import Named, each_named, known
from serve_app.stores.parts import parts
from serve_app.write.shard import Shard

ANSWERED_WITHIN_S: Final = 10.0
"""A list that takes longer is given up: it is made by one thread of those that serve reads."""

READ_AT_ONCE: Final = 1_000
"""Turns that are read to be looked into at a time."""

CURSOR_CHARACTERS_MAX: Final = 256


class Place(NamedTuple):
    """Where an entity stands in the list: by how often it is named, then by the seq of its last turn, then its key."""

    turns: int
    last_seq: int
    key: str

    def __str__(self) -> str:
        return f"{self.turns}.{self.last_seq}.{self.key}"

    @property
    def order(self) -> tuple[int, int, str]:
        return -self.turns, -self.last_seq, self.key


class EntityLine(msgspec.Struct, frozen=True):
    """One entity: how many turns name it, and the first and the last of them."""

    name: str
    kind: EntityClass
    count: int
    first_at: int
    last_at: int
    session: str
    turn_id: str


class EntityPage(msgspec.Struct, frozen=True):
    lines: list[EntityLine]
    next: str | None = None


class Tally:
    """Counts of one entity while the turns are gone through in any order."""

    __slots__ = ("_unsettled", "classes", "count", "first", "last")

    def __init__(self) -> None:
        self.classes: Counter[EntityClass] = Counter()
        self.count = 0
        self.first, self.last = 2**63 - 1, -1
        self._unsettled: list[NDArray[np.int64]] = []

    def take(self, seqs: Sequence[int], count: int | None = None) -> None:
        """Some turns, oldest first; `count`: how many they are where only the first and the last are given."""
        self.count += len(seqs) if count is None else count
        self.first, self.last = min(self.first, seqs[0]), max(self.last, seqs[-1])

    def take_all(self, named: Named) -> None:
        """Those of one class; a turn may come by several, and is counted once by `settle`."""
        self.classes[named.kind] += len(named.seqs)
        self._unsettled.append(named.seqs)

    def settle(self) -> None:
        if self._unsettled:
            seqs = self._unsettled[0] if len(self._unsettled) == 1 else np.unique(np.concatenate(self._unsettled))
            self._unsettled = []
            self.take((int(seqs[0]), int(seqs[-1])), len(seqs))

    @property
    def kind(self) -> EntityClass:
        """The class that most turns give it; `name`, which says nothing, only where no turn knows better."""
        known = [(self.classes[one], one) for one in CLASSES if one != "name" and self.classes[one]]
        return max(known, key=lambda one: one[0])[1] if known else "name"


def place_of(cursor: str) -> Place:
    """Raises InvalidRequest where this is no `next` of a page."""
    count, _, rest = cursor.partition(".")
    seq, _, key = rest.partition(".")
    if len(cursor) > CURSOR_CHARACTERS_MAX or not (count.isdecimal() and seq.isdecimal() and key):
        raise InvalidRequest("after: this is not the `next` of a page")
    return Place(int(count), int(seq), key)


def page(
    shard: Shard, owner: str, kind: EntityClass | None, prefix: str, after: Place | None, limit: int, now: int
) -> EntityPage:
    """The entities of this class whose names begin so, most often named first, after a place, at most `limit`."""
    begins = key_of(prefix)
    tallies = _tallied(shard, owner, now, time.monotonic() + ANSWERED_WITHIN_S)
    chosen = {
        Place(one.count, one.last, key): one
        for key, one in tallies.items()
        if key.startswith(begins) and (kind is None or one.kind == kind)
    }
    places = sorted((one for one in chosen if after is None or one.order > after.order), key=lambda one: one.order)
    lines = _lines(shard, owner, [(one, chosen[one]) for one in places[:limit]], now)
    return EntityPage(lines, str(places[limit - 1]) if len(places) > limit else None)


def _tallied(shard: Shard, owner: str, now: int, deadline: float) -> dict[str, Tally]:
    block = shard.block(owner)
    tallies: dict[str, Tally] = {}
    with block.lock:
        living = {seq for index in block.sessions.values() for seq in block.moved.without_cold(index.seqs)}
        changed = _changed(block, now)
        _count_resident(block, changed.keys() | _expired(block, now), tallies)
        elsewhere = living - block.turns.keys()
    for turn in changed.values():
        _count(turn.seq, in_turn(turn), tallies)
    if elsewhere:
        _count_elsewhere(shard, owner, elsewhere, now, tallies, deadline)
    return tallies


def _expired(block: Block, now: int) -> set[int]:
    return {seq for seq, expires_at in block.expiring.items() if expires_at <= now}


def _changed(block: Block, now: int) -> dict[int, Turn]:
    """Living resident turns that have lost a field, as they are now."""
    told = (turn for turn in block.turns.values() if turn.fields_expire and not turn.expired(now))
    return {turn.seq: left for turn in told if (left := turn.at(now)) is not turn}


def _count_resident(block: Block, without: set[int], tallies: dict[str, Tally]) -> None:
    left_out = {block.columns.ordinal(seq) for seq in without}
    seqs = block.columns.seqs
    for key, mentions in block.columns.entities.mentions():
        named = [(ordinal, kind) for ordinal, kind in mentions if ordinal not in left_out]
        if named:
            tally = tallies.setdefault(key, Tally())
            tally.classes.update(kind for _, kind in named)
            tally.take([seqs[ordinal] for ordinal in dict.fromkeys(ordinal for ordinal, _ in named)])


def _count(seq: int, entities: Iterable[Entity], tallies: dict[str, Tally]) -> None:
    """Of one turn that is in no index."""
    counted = set()
    for one in entities:
        tally = tallies.setdefault(one.key, Tally())
        tally.classes[one.kind] += 1
        if one.key not in counted:
            counted.add(one.key)
            tally.take((seq,))


def _count_elsewhere(
    shard: Shard, owner: str, seqs: set[int], now: int, tallies: dict[str, Tally], deadline: float
) -> None:
    """Turns that are not in memory: most by the table's column, without reading them. Raises DeadlinePassed."""
    rows = shard.reads.named(owner)
    unfolded = shard.unfolded_of(owner)
    held, ends = np.asarray(rows["seq"]), np.asarray(rows["expires_at"])
    certain = np.isin(held, list(seqs - unfolded)) & ((ends == 0) | (ends > now)) & known(rows["entities"])
    told = rows.filter(pa.array(certain))
    for one in each_named(held[certain], told["entities"]):
        tallies.setdefault(one.key, Tally()).take_all(one)
    for tally in tallies.values():
        tally.settle()
    for part in parts(sorted(seqs.difference(held[certain].tolist())), READ_AT_ONCE):
        if time.monotonic() >= deadline:
            raise DeadlinePassed(f"the entities of so many turns could not be counted within {ANSWERED_WITHIN_S:g} s")
        for turn in _living(shard.turns(owner, part), now):
            _count(turn.seq, in_turn(turn), tallies)


def _living(turns: Iterable[Turn], now: int) -> Iterator[Turn]:
    return (turn.at(now) for turn in turns if not turn.expired(now))


def _lines(shard: Shard, owner: str, chosen: Sequence[tuple[Place, Tally]], now: int) -> list[EntityLine]:
    """An entity whose last turn has gone meanwhile is left out."""
    seqs = {one.last for _, one in chosen} | {one.first for _, one in chosen}
    turns = {turn.seq: turn for part in parts(sorted(seqs), READ_AT_ONCE) for turn in shard.turns(owner, part)}
    lines: list[EntityLine] = []
    for place, tally in chosen:
        last = turns.get(tally.last)
        if last is None:
            continue
        first = turns.get(tally.first, last)
        name = next((one.name for one in in_turn(last.at(now)) if one.key == place.key), place.key)
        lines.append(
            EntityLine(name, tally.kind, place.turns, first.created_at, last.created_at, last.session, last.id)
        )
    return lines
