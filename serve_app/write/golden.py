"""Golden queries follow the turns that answer them: one lives as long as one of these turns is there.

A duty of the housekeeper. Each record that lets turns go makes its owner doubtful; the owner's golden queries are then
compared with its block and rewritten. After a start everybody is doubtful once: a crash, or a restore to an earlier
moment, may have come between. Where a privacy policy has tightened, the stored texts are redacted, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from serve_app.core import Owner
from serve_app.errors import StorageTrouble
from serve_app.placement import shard_of
from serve_app.policies import PRIVACY_LEVELS, Policies, PrivacyLevel, PrivacyPolicy
from serve_app.privacy.redact import redact
from serve_app.records import Record, SessionGone, TurnGone, UserGone
from serve_app.stores.block import Block
from serve_app.stores.golden_file import Golden, GoldenFiles, GoldenSet
from serve_app.write.commit import ShardWriter
from serve_app.write.shard import Shard

DOUBTFUL_MAX = 10_000
"""Owners of one shard whose turns went since they were looked at; beyond it everybody is looked at."""

OWNERS_A_PART = 50
"""Whose golden queries one call of the duty compares: each may have to be loaded from the tables."""

EVERY_S = 1.0


class _Doubts:
    """Owners of one shard who are to be looked at; `everybody` until all have been listed."""

    def __init__(self) -> None:
        self.everybody = True
        self.owners: set[str] = set()
        self.looked_at: frozenset[str] = frozenset()
        self.working = threading.Lock()


class GoldenUpkeep:
    """See `housekeeping.Duty`. `shards`: how many this service writes."""

    name = "golden"
    every_s = EVERY_S

    def __init__(self, files: GoldenFiles, policies: Policies, shards: int, clock: Callable[[], int]) -> None:
        self._files = files
        self._policies = policies
        self._clock = clock
        self._shards = shards
        self._lock = threading.Lock()
        self._doubts = {number: _Doubts() for number in range(shards)}

    def committed(self, shard: Shard, records: Iterable[Record]) -> None:
        """Called with each batch that is durable and applied, on the writer's thread."""
        owners = {one.owner for one in records if isinstance(one, TurnGone | SessionGone | UserGone)}
        if not owners:
            return
        doubts = self._doubts[shard.number]
        with self._lock:
            doubts.owners |= owners
            if len(doubts.owners) > DOUBTFUL_MAX:
                doubts.everybody, doubts.owners = True, set()

    def doubtful(self, number: int, owner: str) -> bool:
        """Whether the stored queries of the owner may name turns that have gone."""
        doubts = self._doubts[number]
        with self._lock:
            return doubts.everybody or owner in doubts.owners or owner in doubts.looked_at

    def tend(self, number: int, writer: ShardWriter) -> bool:
        """Compare some owners; gives whether there are more."""
        if number == 0:
            self._redact()
        return self._compare_some(writer.shard)

    def finish(self, shard: Shard) -> None:
        """Compare all that are doubtful, before an erasure counts as done. Raises StorageTrouble."""
        while self._compare_some(shard):
            continue

    def _compare_some(self, shard: Shard) -> bool:
        doubts = self._doubts[shard.number]
        with doubts.working:
            self._list_everybody(doubts, shard.number)
            with self._lock:
                doubts.looked_at = frozenset(list(doubts.owners)[:OWNERS_A_PART])
                doubts.owners -= doubts.looked_at
            try:
                self._compare(shard, doubts.looked_at)
            except StorageTrouble:
                with self._lock:
                    doubts.owners |= doubts.looked_at
                raise
            finally:
                with self._lock:
                    doubts.looked_at = frozenset()
            return bool(doubts.owners)

    def _list_everybody(self, doubts: _Doubts, number: int) -> None:
        """Who has golden queries in this shard. Who gets some meanwhile has them compared then."""
        if not doubts.everybody:
            return
        owners = {owner for tenant in self._files.tenants() for owner in self._owners(tenant, number)}
        with self._lock:
            doubts.everybody = False
            doubts.owners |= owners

    def _owners(self, tenant: str, number: int) -> set[str]:
        users = {one.user for one in self._files.of(tenant).queries}
        owners = (Owner(tenant, user) for user in users)
        return {owner.key for owner in owners if shard_of(owner, self._shards) == number}

    def _compare(self, shard: Shard, keys: Iterable[str]) -> None:
        of_tenants: dict[str, set[str]] = {}
        for owner in map(Owner.from_key, keys):
            of_tenants.setdefault(owner.tenant, set()).add(owner.user)
        for tenant, users in of_tenants.items():
            named = {one.user for one in self._files.of(tenant).queries} & users
            blocks = {user: shard.block(Owner(tenant, user).key) for user in named}
            if blocks:
                self._files.change(tenant, partial(_compared, blocks=blocks, now=self._clock()))

    def _redact(self) -> None:
        """What was stored under a looser policy than the tenant has today."""
        for tenant, stored in list(self._files.levels.items()):
            level = self._policies.of(tenant, PrivacyPolicy).level
            if PRIVACY_LEVELS.index(stored) < PRIVACY_LEVELS.index(level):
                self._files.change(tenant, partial(_redacted, level=level))


def living(golden: Golden, block: Block, now: int) -> Golden | None:
    """The query with the turns that are still there; None where there is none left."""
    with block.lock:
        left = tuple(one for one in golden.gold if block.find(one.session, one.turn_id) == one.seq)
        if any(block.find(one.session, one.turn_id) != one.seq for one in golden.drawn):
            return None
    return lasting(replace(golden, gold=left, gone=golden.gone + len(golden.gold) - len(left)), now)


def lasting(golden: Golden, now: int) -> Golden | None:
    """The query without the turns that have expired; None where none is left."""
    left = tuple(one for one in golden.gold if one.expires_at is None or one.expires_at > now)
    if not left or any(one.expires_at is not None and one.expires_at <= now for one in golden.drawn):
        return None
    if len(left) == len(golden.gold):
        return golden
    return replace(golden, gold=left, gone=golden.gone + len(golden.gold) - len(left))


def redacted(text: str, level: PrivacyLevel) -> str:
    return redact(text, level).text


def _compared(held: GoldenSet, blocks: dict[str, Block], now: int) -> GoldenSet:
    """The queries of these users as their blocks have it; those of others as they are."""
    queries: Sequence[Golden | None] = [
        living(one, blocks[one.user], now) if one.user in blocks else one for one in held.queries
    ]
    kept = tuple(one for one in queries if one is not None)
    return held if kept == held.queries else replace(held, queries=kept)


def _redacted(held: GoldenSet, level: PrivacyLevel) -> GoldenSet:
    queries = tuple(
        replace(one, query=redacted(one.query, level), note=None if one.note is None else redacted(one.note, level))
        for one in held.queries
    )
    return replace(held, queries=queries, level=level)
