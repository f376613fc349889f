"""The golden queries of a tenant as the API sees them: stored, listed, removed; none outlives what answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from serve_app.core import Owner
from serve_app.errors import NotFound, StorageTrouble
from serve_app.memory.logged import SearchLog
from serve_app.placement import shard_of
from serve_app.policies import Policies, PrivacyPolicy
from serve_app.stores.golden_file import Golden, GoldenFiles, GoldTurn, without
from serve_app.write.commit import ShardWriter
from serve_app.write.golden import GoldenUpkeep, lasting, living, redacted
from serve_app.write.shard import Shard

T = TypeVar("T")

Named = tuple[str, str]
"""A turn by its session and id."""


class GoldenPage(NamedTuple):
    queries: list[Golden]
    next: str | None
    """The id after which there are more."""


class GoldenSets:
    """`upkeep`: what knows whose turns have gone; None where somebody else writes the store: then all are looked up.

    `caught_up` waits until a shard shows all that is durable; it raises StorageTrouble where that is not soon.
    """

    def __init__(
        self,
        writers: Sequence[ShardWriter],
        files: GoldenFiles,
        upkeep: GoldenUpkeep | None,
        policies: Policies,
        pool: Executor,
        clock: Callable[[], int],
        searches: SearchLog,
        caught_up: Callable[[int], None] = lambda shard: None,
    ) -> None:
        self._caught_up = caught_up
        self._writers = writers
        self._files = files
        self._upkeep = upkeep
        self._policies = policies
        self._pool = pool
        self._clock = clock
        self.searches = searches

    async def add(
        self,
        owner: Owner,
        query: str,
        gold: Sequence[Named],
        as_of: str | int | None,
        note: str | None,
        drawn_from: Set[int] = frozenset(),
    ) -> tuple[Golden, bool]:
        """Durable when it returns; the stored query, and whether it is new. `drawn_from`: seqs of the turns that the
        query took words from. Raises NotFound for a turn that is not there, QuotaExceeded, StorageTrouble.
        """
        return await asyncio.to_thread(
            self._add, owner, query, gold, as_of, note, drawn_from
        )  # it waits for a disk: no read does

    async def page(self, tenant: str, user: str | None, after: str, limit: int) -> GoldenPage:
        """Of one user or of all, oldest first, after that id."""
        return await self._in_pool(self._page, tenant, user, after, limit)

    async def of(self, owner: Owner) -> list[Golden]:
        """All of one user."""
        return (await self._in_pool(self._page, owner.tenant, owner.user, "", None)).queries

    async def remove(self, tenant: str, user: str | None, identifier: str | None) -> int:
        """One by its id, or all of a user; gives how many there were. With `user` only that user's."""
        return await asyncio.to_thread(self._remove, tenant, user, identifier)

    def _add(
        self,
        owner: Owner,
        query: str,
        gold: Sequence[Named],
        as_of: str | int | None,
        note: str | None,
        drawn_from: Set[int],
    ) -> tuple[Golden, bool]:
        level = self._policies.of(owner.tenant, PrivacyPolicy).level
        turns = self._turns(owner, tuple(dict.fromkeys(gold)))
        clean = None if note is None else redacted(note, level)
        new = Golden("", owner.user, redacted(query, level), turns, self._clock(), as_of, clean)
        new = replace(new, drawn=self._drawn(owner, drawn_from))
        stored, fresh = self._files.add(owner.tenant, new, level)
        self._see_what_went(owner, stored, fresh)
        if self._living(owner.tenant, stored, sure=True) is None:  # deleted while this was written
            self._files.change(owner.tenant, without([stored.id]))
            raise NotFound("gold: these turns have been deleted")
        return stored, fresh

    def _see_what_went(self, owner: Owner, stored: Golden, fresh: bool) -> None:
        """Whoever deletes from here on finds the query in its file; of those before the shard has to be told yet."""
        try:
            self._caught_up(self._shard(owner).number)
        except StorageTrouble:
            if fresh:
                self._files.change(owner.tenant, without([stored.id]))
            raise

    def _drawn(self, owner: Owner, seqs: Set[int]) -> tuple[GoldTurn, ...]:
        """Raises NotFound where one has gone, or a field of one: the words that it gave go, too."""
        turns = self._shard(owner).turns(owner.key, sorted(seqs)) if seqs else []
        drawn = tuple(GoldTurn(one.session, one.id, one.seq, one.first_expiry) for one in turns)
        if len(drawn) < len(seqs) or any(one.at(self._clock()) is not one for one in turns):
            raise NotFound("search_id: turns that this search took words from have gone")
        return drawn

    def _turns(self, owner: Owner, gold: Sequence[Named]) -> tuple[GoldTurn, ...]:
        """Raises NotFound where one is not there."""
        shard, now = self._shard(owner), self._clock()
        block = shard.block(owner.key)
        with block.lock:
            seqs = [block.find(session, turn_id) for session, turn_id in gold]
        held = shard.held(owner.key, [seq for seq in seqs if seq is not None])
        turns: list[GoldTurn] = []
        for index, ((session, turn_id), seq) in enumerate(zip(gold, seqs, strict=True)):
            turn = None if seq is None else held.get(seq)
            if seq is None or turn is None or turn.expired(now):
                raise NotFound(f"gold[{index}]: no such turn")
            turns.append(GoldTurn(session, turn_id, seq, turn.expires_at))
        return tuple(turns)

    def _page(self, tenant: str, user: str | None, after: str, limit: int | None) -> GoldenPage:
        found: list[Golden] = []
        for one in self._files.of(tenant).queries:
            if one.id <= after or user not in (None, one.user):
                continue
            if (alive := self._living(tenant, one)) is None:
                continue
            if limit is not None and len(found) == limit:
                return GoldenPage(found, found[-1].id)
            found.append(alive)
        return GoldenPage(found, None)

    def _living(self, tenant: str, one: Golden, sure: bool = False) -> Golden | None:
        """Without the turns that have gone. The block is looked at where it is in memory, or where there is doubt."""
        owner = Owner(tenant, one.user)
        shard, now = self._shard(owner), self._clock()
        doubtful = self._upkeep is None or self._upkeep.doubtful(shard.number, owner.key)
        if sure or doubtful or shard.holds(owner.key):
            return living(one, shard.block(owner.key), now)
        return lasting(one, now)

    def _remove(self, tenant: str, user: str | None, identifier: str | None) -> int:
        chosen = [
            one.id
            for one in self._files.of(tenant).queries
            if user in (None, one.user) and identifier in (None, one.id)
        ]
        if identifier is not None and not chosen:
            raise NotFound("no such golden query")
        if chosen:
            self._files.change(tenant, without(chosen))
        return len(chosen)

    def _shard(self, owner: Owner) -> Shard:
        return self._writers[shard_of(owner, len(self._writers))].shard

    async def _in_pool(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *arguments))
