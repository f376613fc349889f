"""Searches that a tenant wants to give feedback on: kept in memory, for a while, and only where its policy says so."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from serve_app.core import SECOND_US, Owner
from serve_app.errors import NotFound, StorageTrouble
from serve_app.policies import GoldenPolicy, Policies
from serve_app.records import Record, UserGone

SEARCHES_KEPT = 1_000
"""Of one tenant, those made last."""

TENANTS_KEPT = 1_000
"""Whose searches are kept; the tenant that has searched longest ago is forgotten first."""

SEARCH_KEPT_S = 3_600
"""How long feedback may name a search."""

_ID_BYTES = 12


class Logged(NamedTuple):
    """A search as it was understood, and the moment it was asked for, in microseconds."""

    owner: Owner
    query: str
    asked_for: int
    kept_until: int
    drawn_from: frozenset[int]
    """Seqs of the turns that the query took words from: it goes with them."""


class SearchLog:
    """Safe for many threads."""

    def __init__(self, policies: Policies, clock: Callable[[], int]) -> None:
        self._policies = policies
        self._clock = clock
        self._lock = threading.Lock()
        self._tenants: OrderedDict[str, OrderedDict[str, Logged]] = OrderedDict()

    def note(self, owner: Owner, query: str, now: int | None, drawn_from: frozenset[int] = frozenset()) -> str | None:
        """The id under which feedback may name this search; None where nothing is kept."""
        if not self._wanted(owner.tenant):
            if owner.tenant in self._tenants:
                self._forget_tenant(owner.tenant)
            return None
        if not query.strip():
            return None
        clock = self._clock()
        asked_for, until = clock if now is None else now, clock + SEARCH_KEPT_S * SECOND_US
        logged = Logged(owner, query, asked_for, until, drawn_from)
        identifier = f"s-{secrets.token_hex(_ID_BYTES)}"
        with self._lock:
            kept = self._tenants.setdefault(owner.tenant, OrderedDict())
            self._tenants.move_to_end(owner.tenant)
            kept[identifier] = logged
            while len(kept) > SEARCHES_KEPT or next(iter(kept.values())).kept_until <= clock:
                kept.popitem(last=False)
            while len(self._tenants) > TENANTS_KEPT:
                self._tenants.popitem(last=False)
        return identifier

    def find(self, tenant: str, identifier: str) -> Logged:
        """Raises NotFound, also for what is kept no longer."""
        with self._lock:
            kept = self._tenants.get(tenant)
            found = None if kept is None else kept.get(identifier)
        if found is None or found.kept_until <= self._clock():
            raise NotFound("search_id: no such search is kept")
        return found

    def consented(self) -> dict[str, dict[str, Logged]]:
        """What is kept at this moment, by tenant and id, of those whose policy wants it kept. For who samples it."""
        clock = self._clock()
        with self._lock:
            kept = {tenant: dict(of_tenant) for tenant, of_tenant in self._tenants.items()}
        return {
            tenant: {name: one for name, one in of_tenant.items() if one.kept_until > clock}
            for tenant, of_tenant in kept.items()
            if self._wanted(tenant)
        }

    def committed(self, records: Iterable[Record]) -> None:
        """Called with each batch that is durable: who is erased has searched nothing."""
        for record in records:
            if isinstance(record, UserGone):
                self._forget(Owner.from_key(record.owner))

    def _forget(self, owner: Owner) -> None:
        with self._lock:
            kept = self._tenants.get(owner.tenant, OrderedDict())
            for identifier in [one for one, logged in kept.items() if logged.owner == owner]:
                del kept[identifier]

    def _wanted(self, tenant: str) -> bool:
        """Where nobody can say what the tenant wants, nothing is kept, and the search goes on."""
        try:
            return self._policies.of(tenant, GoldenPolicy).log_searches
        except StorageTrouble:
            return False

    def _forget_tenant(self, tenant: str) -> None:
        with self._lock:
            self._tenants.pop(tenant, None)
