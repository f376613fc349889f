"""What serves whom, by what the file of migrations says and what the service holds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from serve_app.migrate.record import Migration, Migrations
from serve_app.routing import Epoch, Routing, VersionPlan


def plan_of(stored: Migrations, first: Epoch, held: Sequence[str]) -> VersionPlan:
    """`first` is what serves where no migration has ever changed that; `held` are the versions that can be searched.

    What is about to be let go is held no more: a request as of an earlier moment is answered without it.
    """
    leaving = {name for one in stored.migrations if not one.ended for name in _leaving(one)}
    names = tuple(name for name in held if name not in leaving)
    plan = VersionPlan(stored.epochs or (first,), names, stored.made > 0)
    safe = _served(plan.now, first.base, names)
    return plan if safe == plan.now else plan.followed_by(safe)


def _leaving(migration: Migration) -> tuple[str, ...]:
    """Names of the versions that serve nobody any more."""
    if migration.base is None or migration.target is None:
        return ()
    old, new = migration.base.names, migration.target.names
    if migration.state == "retire":
        return tuple(name for name in old if name not in new)
    return tuple(name for name in new if name not in old) if migration.state == "rolling_back" else ()


def _served(now: Epoch, base: Routing, held: Sequence[str]) -> Epoch:
    """The epoch without what cannot be searched: an encoder that does not open must not take the others along."""
    if not set(now.base.names) <= set(held):
        now = replace(now, base=base)
    if now.target is not None and not set(now.target.names) <= set(held):
        now = replace(now, target=None, share=0.0)
    return now
