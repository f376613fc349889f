"""Which layout a context is built by: of the tenant's layouts, as of then, the one that is named or fits best."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from serve_app.context.layout import DEFAULT_LAYOUT, ZONES, Layout
from serve_app.core import NEVER, TimeWindow
from serve_app.errors import InvalidRequest, StorageTrouble
from serve_app.layouts import BUILT_IN, DEFAULT_NAME, NOTHING_TUNED, Chosen, History, Layouts, QueryType, State
from serve_app.memory.requests import AsOf, ContextRequest
from serve_app.retrieve.query_types import query_type

MOMENT_UNKNOWN = "as_of: nobody can say now which layouts were in force then; those of today are used"
TOO_OLD = "as_of: the layouts of then are not kept any more; the oldest known are used"


class LayoutsThen(NamedTuple):
    """A tenant's layouts at the moment that is asked for, and why they may be others than those of then."""

    state: State
    reasons: tuple[str, ...] = ()


class ChosenLayout(msgspec.Struct, frozen=True):
    """`query_type` where it was looked at."""

    layout: Layout
    revision: int
    query_type: QueryType | None = None


def needs_moment(layouts: Layouts, tenant: str, as_of: AsOf) -> bool:
    """Whether the layouts of then depend on when a write was: `as_of` names nothing but that write."""
    if as_of.seq is None or as_of.revision is not None:
        return False
    try:
        return bool(layouts.history(tenant).changes)
    except StorageTrouble:
        return False


def layouts_then(layouts: Layouts, tenant: str, as_of: AsOf, moment: int | None = None) -> LayoutsThen:
    """`moment`: when the write of `as_of` was, where that is needed. A file that cannot be read takes nothing away but
    what was tuned. Raises InvalidRequest for a revision that there has not been.
    """
    try:
        if as_of == AsOf():
            return LayoutsThen(layouts.newest(tenant))
        return _then(layouts.history(tenant), as_of, as_of.time if as_of.seq is None else moment)
    except StorageTrouble as error:
        return LayoutsThen(NOTHING_TUNED, (f"layouts: {error.code}",))


def _then(history: History, as_of: AsOf, moment: int | None) -> LayoutsThen:
    if as_of.revision is None:
        instant = -NEVER if moment is None else moment
        state = history.at(instant)
        lost = state.revision > 0 and state.at > instant
    elif as_of.revision > history.newest:
        raise InvalidRequest(f"as_of: there is no revision {as_of.revision} of the layouts yet")
    else:
        state = history.at_revision(as_of.revision)
        lost = state.revision > as_of.revision
    return LayoutsThen(state, (TOO_OLD,) if lost else ())


def choose(state: State, request: ContextRequest, window: TimeWindow | None) -> ChosenLayout:
    """By name, else by what fits the request most closely, else `default`. Raises InvalidRequest for an unknown name.

    `window`: the time that the query names.
    """
    wish = request.layout
    kind = wish.query_type
    if kind is None and (state.looks_at_queries or request.explain):
        kind = query_type(request.query, window)
    name = wish.name or state.matching(wish.model, kind, wish.user_tier)
    chosen = state.chosen(name)
    if chosen is None:
        raise InvalidRequest(f"there is no layout {name!r}; there are: {', '.join(map(repr, state.names))}")
    return ChosenLayout(packing(chosen), chosen.revision, kind)


def packing(chosen: Chosen) -> Layout:
    """As the window manager takes it."""
    if chosen.name == DEFAULT_NAME and chosen.layout is BUILT_IN:
        return DEFAULT_LAYOUT
    shares = chosen.layout.shares.of_zones
    return Layout(chosen.name, {zone: shares[zone] for zone in ZONES})
