"""How a tenant shares token budgets among the zones of a context: named layouts, tuned at run time.

Pure values. A layout has shares, and may say for which requests it is meant. Each change of a tenant's
layouts is a revision, counted from 1; a context names the revision that it was built by, so that it can
be built again after later changes. `stores/layout_file.py` keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Literal, Protocol, get_args

import msgspec
from msgspec import Meta

DEFAULT_NAME = "default"
"""What holds where no other layout is asked for or matches. There is always one of this name."""

LAYOUTS_MAX = 100
"""Layouts of a tenant."""

REVISIONS_MAX = 500
"""Changes of a tenant's layouts that are remembered one by one; older contexts are built by the oldest state known."""

NAMES_MAX = 32
"""Patterns or names that a layout lists for one property of a request."""

WILD = frozenset("*?[")

QueryType = Literal["lookup", "follow_up", "temporal", "instruction", "small_talk"]
QUERY_TYPES: tuple[QueryType, ...] = get_args(QueryType)

Percent = Annotated[int, Meta(ge=0, le=100)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]


class Shares(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whole percents of the budget for each zone; together at most 100, what is left belongs to none."""

    system: Percent
    facts: Percent
    summary: Percent
    retrieved: Percent
    recent: Percent
    query: Percent

    def __post_init__(self) -> None:
        """Raises ValueError."""
        total = sum(self.of_zones.values())
        if total > 100:
            raise ValueError(f"shares are percents of one budget: {total} in all, at most 100")

    @property
    def of_zones(self) -> dict[str, int]:
        return msgspec.structs.asdict(self)


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The requests that a layout is meant for: each list that is given holds what the request says.

    `models` are patterns with `*`, `?` and `[...]`, case counts; the others are plain names.
    """

    models: Annotated[tuple[Name, ...], Meta(max_length=NAMES_MAX)] = ()
    query_types: Annotated[tuple[QueryType, ...], Meta(max_length=NAMES_MAX)] = ()
    user_tiers: Annotated[tuple[Name, ...], Meta(max_length=NAMES_MAX)] = ()

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not (self.models or self.query_types or self.user_tiers):
            raise ValueError("when: it names nothing; leave it out for a layout that is asked for by its name")

    def closeness(self, model: str | None, query_type: QueryType | None, user_tier: str | None) -> Closeness | None:
        """How closely it describes a request; None where it does not. The greater, the closer."""
        fitting = [pattern for pattern in self.models if model is not None and fnmatchcase(model, pattern)]
        if (
            (self.models and not fitting)
            or (self.query_types and query_type not in self.query_types)
            or (self.user_tiers and user_tier not in self.user_tiers)
        ):
            return None
        properties = sum(map(bool, (self.models, self.query_types, self.user_tiers)))
        return properties, max((_literal(pattern) for pattern in fitting), default=(False, 0))


Closeness = tuple[int, tuple[bool, int]]
"""Properties that are named; whether the model is named in full; characters of its pattern that are no wildcards."""


def _literal(pattern: str) -> tuple[bool, int]:
    plain = sum(character not in WILD for character in pattern)
    return plain == len(pattern), plain


class TunedLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A layout as an administrator sets it."""

    shares: Shares
    when: When | None = None


BUILT_IN = TunedLayout(Shares(system=8, facts=6, summary=22, retrieved=16, recent=36, query=12))
"""`default`, until it is set."""


class Chosen(msgspec.Struct, frozen=True):
    """The layout of one request, by its name, and the revision whose layouts it was chosen from."""

    name: str
    layout: TunedLayout
    revision: int = 0


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One revision: from `at` (microseconds) on, `name` is this layout, or is no more."""

    revision: int
    at: int
    name: str
    layout: TunedLayout | None = None


class State(msgspec.Struct, frozen=True, dict=True):
    """The layouts of a tenant at one revision, but for a `default` that is built in. `at`: when that was made."""

    revision: int = 0
    at: int = 0
    layouts: Mapping[str, TunedLayout] = {}

    def named(self, name: str) -> TunedLayout | None:
        return self.layouts.get(name) or (BUILT_IN if name == DEFAULT_NAME else None)

    @property
    def names(self) -> list[str]:
        return sorted({*self.layouts, DEFAULT_NAME})

    @cached_property
    def looks_at_queries(self) -> bool:
        """Whether any layout depends on the type of the query."""
        return any(when.query_types for _, when in self._rules)

    def matching(self, model: str | None, query_type: QueryType | None, user_tier: str | None) -> str:
        """The name of the layout that describes a request most closely; of equals the first by name."""
        found = [
            (closeness, name)
            for name, when in self._rules
            if (closeness := when.closeness(model, query_type, user_tier)) is not None
        ]
        best = max((closeness for closeness, _ in found), default=None)
        return next((name for closeness, name in found if closeness == best), DEFAULT_NAME)

    def chosen(self, name: str) -> Chosen | None:
        layout = self.named(name)
        return None if layout is None else Chosen(name, layout, self.revision)

    @cached_property
    def _rules(self) -> list[tuple[str, When]]:
        return [(name, one.when) for name, one in sorted(self.layouts.items()) if one.when is not None]


NOTHING_TUNED = State()


class History(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is known of a tenant's layouts: the oldest state, and the changes since, oldest first."""

    base: State = NOTHING_TUNED
    changes: tuple[Change, ...] = ()

    @property
    def newest(self) -> int:
        return self.changes[-1].revision if self.changes else self.base.revision

    def at_revision(self, revision: int) -> State:
        """The layouts of then; the oldest that are known where that is longer ago."""
        return _after(self.base, [change for change in self.changes if change.revision <= revision])

    def at(self, instant: int) -> State:
        """The layouts that were in force by then; the oldest that are known where that is longer ago."""
        return _after(self.base, [change for change in self.changes if change.at <= instant])

    def with_change(self, name: str, layout: TunedLayout | None, at: int) -> History:
        """The same with one more revision, not earlier than the one before; the oldest one becomes part of the base."""
        at = max([at, *(change.at for change in self.changes[-1:])])
        changes = (*self.changes, Change(self.newest + 1, at, name, layout))
        spare = max(0, len(changes) - REVISIONS_MAX)
        return History(_after(self.base, changes[:spare]), changes[spare:])


def _after(state: State, changes: Sequence[Change]) -> State:
    if not changes:
        return state
    layouts = dict(state.layouts)
    for change in changes:
        layouts.pop(change.name, None)
        if change.layout is not None:
            layouts[change.name] = change.layout
    return State(changes[-1].revision, changes[-1].at, layouts)


class Layouts(Protocol):
    """Where the layouts in force are looked up. Cheap: asked with each context. Raises StoreUnavailable."""

    def newest(self, tenant: str) -> State: ...

    def history(self, tenant: str) -> History: ...
