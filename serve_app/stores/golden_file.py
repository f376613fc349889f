"""Golden queries: what users of a tenant asked, and which turns answer it. One small file a tenant, below `golden/`.

A file is replaced as a whole, durably, before a change counts; its name is a digest, so that any tenant's name will
do. Which of the turns still are there is not known here, see `write/golden.py`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from serve_app.errors import QuotaExceeded
from serve_app.policies import PRIVACY_LEVELS, PrivacyLevel, looser
from serve_app.stores.documents import Documents
from serve_app.stores.private_file import PrivateFile

GOLDEN_FOLDER = "golden"

GOLDEN_QUERIES_MAX = 5_000
GOLDEN_CHARACTERS_MAX = 4 << 20
"""Of one tenant: queries, and the text of them and their notes. Each change writes all of it."""

TENANTS_REMEMBERED = 64
"""Whose files stay decoded."""

_TIGHTEST = PRIVACY_LEVELS[-1]
_RANDOM_BYTES = 6


class GoldTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn that answers. By its `seq` it is that very turn, and no later one of the same id."""

    session: str
    turn_id: str
    seq: int
    expires_at: int | None = None


class Golden(msgspec.Struct, frozen=True, omit_defaults=True):
    """One golden query. Ids of one tenant grow with time."""

    id: str
    user: str
    query: str
    gold: tuple[GoldTurn, ...]
    stored_at: int
    as_of: str | int | None = None
    note: str | None = None
    gone: int = 0
    """Turns that answered it once and are no longer there."""
    drawn: tuple[GoldTurn, ...] = ()
    """Turns that the query took words from: it goes as soon as one of them does."""

    @property
    def characters(self) -> int:
        return len(self.query) + len(self.note or "")

    def same_as(self, other: Golden) -> bool:
        """Whether both say the same, whenever they were stored."""
        here, there = ({(one.session, one.turn_id, one.seq) for one in each.gold} for each in (self, other))
        mine, theirs = ((one.user, one.query, one.as_of, one.note) for one in (self, other))
        return mine == theirs and here == there


class GoldenSet(msgspec.Struct, frozen=True):
    """The file: a tenant's golden queries, oldest first."""

    tenant: str = ""
    queries: tuple[Golden, ...] = ()
    level: PrivacyLevel = _TIGHTEST
    """The loosest that any of them was redacted to."""


class GoldenFiles:
    """Of one store. Safe for many threads, and for writers in several processes."""

    def __init__(self, files: Documents) -> None:
        self._place = files
        self._files: OrderedDict[str, PrivateFile[GoldenSet]] = OrderedDict()
        self.levels: dict[str, PrivacyLevel] = {}
        """By tenant, as last read or written here."""

    @property
    def trouble(self) -> str | None:
        """Why a file that was read before cannot be read at the moment."""
        return next((file.trouble for file in list(self._files.values()) if file.trouble), None)

    def of(self, tenant: str) -> GoldenSet:
        """Raises StoreUnavailable."""
        found = self._file(tenant).read()
        self.levels[tenant] = found.level
        return found

    def tenants(self) -> list[str]:
        """Those who have a file. Raises StoreUnavailable."""
        return [self._opened(name).read().tenant for name in self._place.names(GOLDEN_FOLDER)]

    def add(self, tenant: str, new: Golden, level: PrivacyLevel) -> tuple[Golden, bool]:
        """The query as it is stored, and whether it was not there before; its id is given here.

        Raises QuotaExceeded, StorageTrouble.
        """
        added_last: list[tuple[Golden, bool]] = []

        def added(held: GoldenSet) -> GoldenSet:
            known = next((one for one in held.queries if one.same_as(new)), None)
            added_last[:] = [(known or replace(new, id=_id_after(held, new.stored_at)), known is None)]
            if known is not None:
                return held
            _require_room(held, new)
            return replace(held, queries=(*held.queries, added_last[0][0]), level=looser(held.level, level))

        self.change(tenant, added)
        return added_last[0]

    def change(self, tenant: str, changed: Callable[[GoldenSet], GoldenSet]) -> None:
        """Replace what the tenant has by what `changed` makes of it; the same value changes nothing."""

        def made_of(found: GoldenSet) -> GoldenSet:
            held = replace(found, tenant=tenant)
            made = changed(held)
            if made is held:
                return found
            return made if made.queries else replace(made, level=_TIGHTEST)

        self.levels[tenant] = self._file(tenant).change(made_of).level

    def clear_leftovers(self) -> None:
        """Remove what a writer that was killed had half written: it may hold what is erased since."""
        self._place.clear_leftovers(GOLDEN_FOLDER)

    def _file(self, tenant: str) -> PrivateFile[GoldenSet]:
        file = self._files.get(tenant)
        if file is None:
            name = f"{GOLDEN_FOLDER}/{hashlib.sha256(tenant.encode()).hexdigest()[:32]}.json"
            file = self._files.setdefault(tenant, self._opened(name))
            while len(self._files) > TENANTS_REMEMBERED:
                self._files.popitem(last=False)
        with suppress(KeyError):  # another thread has let it go
            self._files.move_to_end(tenant)
        return file

    def _opened(self, name: str) -> PrivateFile[GoldenSet]:
        """There may be many, and none is asked for with each request: they are read where they lie."""
        return PrivateFile(self._place, name, GoldenSet, GoldenSet, watched=False)


def without(ids: Sequence[str]) -> Callable[[GoldenSet], GoldenSet]:
    """What is left where these are removed."""
    gone = frozenset(ids)

    def left(held: GoldenSet) -> GoldenSet:
        queries = tuple(one for one in held.queries if one.id not in gone)
        return held if len(queries) == len(held.queries) else replace(held, queries=queries)

    return left


def _id_after(held: GoldenSet, now: int) -> str:
    """Later in order than all that are there, whatever the clock says."""
    newest = int(held.queries[-1].id.split("-")[1], 16) if held.queries else 0
    return f"g-{max(now, newest + 1):016x}-{secrets.token_hex(_RANDOM_BYTES)}"


def _require_room(held: GoldenSet, new: Golden) -> None:
    if len(held.queries) >= GOLDEN_QUERIES_MAX:
        raise QuotaExceeded(f"a tenant may hold {GOLDEN_QUERIES_MAX} golden queries")
    if sum(one.characters for one in held.queries) + new.characters > GOLDEN_CHARACTERS_MAX:
        raise QuotaExceeded(f"a tenant's golden queries and notes may have {GOLDEN_CHARACTERS_MAX} characters")
