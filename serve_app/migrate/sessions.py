"""Sessions of the store on which compressors are compared: a bounded sample, the same each time, and what binds there.

Golden queries lead to the sessions that hold what answers them; the others are drawn by their owners. Nothing of a
session leaves this process, and nothing of it is kept when it has been compared.
"""

from __future__ import annotations

import hashlib
import heapq
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from serve_app.compress.ledger import ledger
from serve_app.core import Owner, Turn
from serve_app.errors import StorageTrouble
from serve_app.memory.reading import living
from serve_app.placement import shard_of
from serve_app.stores.golden_file import GoldenFiles
from serve_app.write.commit import ShardWriter
from serve_app.write.golden import living as golden_living
from serve_app.write.shard import Shard

SESSIONS_MAX = 24
"""That are compared, of as many owners."""

TURNS_MIN, TURNS_MAX = 6, 400
"""Of a session: of shorter ones all is shown anyway; of longer ones the newest are read."""

GOLDEN_MAX = 64
"""Golden queries, about these sessions, that are looked at."""

ALL = ("", chr(sys.maxunicode))


class Question(NamedTuple):
    """A golden query and the seqs of the session's turns that answer it."""

    text: str
    gold: frozenset[int]


class Session(NamedTuple):
    """The turns are oldest first. `binding`: what of them must stand in a summary, word for word."""

    turns: Sequence[Turn]
    binding: tuple[str, ...]
    questions: tuple[Question, ...] = ()

    @property
    def now(self) -> int:
        return self.turns[-1].created_at


class Sampling:
    """Blocking: reads tables."""

    def __init__(self, writers: Sequence[ShardWriter], golden: GoldenFiles, clock: Callable[[], int]) -> None:
        self._writers = writers
        self._golden = golden
        self._clock = clock

    def sessions(self, seed: str, among: Callable[[str], bool] = lambda owner: True) -> Iterator[Session]:
        """Of owners `among` whom they are drawn, those with golden queries first. What cannot be read is left out."""
        asked = {owner: queries for owner, queries in self._asked().items() if among(owner)}
        others = (owner for owner in self._owners() if among(owner) and owner not in asked)
        chosen = [*_drawn(asked, SESSIONS_MAX, seed)]
        chosen += _drawn(others, SESSIONS_MAX - len(chosen), seed)
        for owner in chosen:
            try:
                found = self._session(owner, asked.get(owner, []))
            except StorageTrouble:
                continue
            if found is not None:
                yield found

    def _owners(self) -> Iterator[str]:
        for writer in self._writers:
            try:
                yield from writer.shard.owners(*ALL)
            except StorageTrouble:
                continue

    def _asked(self) -> dict[str, list[str]]:
        """Ids of golden queries by owner."""
        asked: dict[str, list[str]] = {}
        for tenant in self._golden.tenants():
            for one in self._golden.of(tenant).queries:
                asked.setdefault(Owner(tenant, one.user).key, []).append(one.id)
        return asked

    def _session(self, owner: str, golden: Sequence[str]) -> Session | None:
        """The one that most of the golden queries are about, else the longest one. None where it is too short."""
        named = Owner.from_key(owner)
        shard = self._shard(named)
        block, now = shard.block(owner), self._clock()
        kept = [one for one in self._golden.of(named.tenant).queries if one.id in golden]
        queries = [alive for one in kept[:GOLDEN_MAX] if (alive := golden_living(one, block, now)) is not None]
        with block.lock:
            lengths = {name: len(index.seqs) for name, index in block.sessions.items()}
            votes = {name: sum(one.session == name for query in queries for one in query.gold) for name in lengths}
            if not lengths:
                return None
            session = max(lengths, key=lambda name: (votes[name], lengths[name], name))
            seqs = block.moved.without_cold(block.sessions[session].seqs)[-TURNS_MAX:]
        turns = [one for one in living(shard.turns(owner, seqs), now) if one.lasting]
        if len(turns) < TURNS_MIN:
            return None
        there = {one.seq for one in turns}
        questions = tuple(
            Question(query.query, gold)
            for query in queries
            if (gold := frozenset(one.seq for one in query.gold if one.session == session)) and gold <= there
        )
        binding = tuple(one.text for one in ledger(turns) if one.status == "active")
        return Session(turns, binding, questions)

    def _shard(self, owner: Owner) -> Shard:
        return self._writers[shard_of(owner, len(self._writers))].shard


def _drawn(owners: Iterable[str], count: int, seed: str) -> list[str]:
    def place(owner: str) -> bytes:
        return hashlib.blake2b(f"{seed}\0{owner}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

    return heapq.nsmallest(max(0, count), owners, key=place)
