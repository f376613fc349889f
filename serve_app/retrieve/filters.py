"""Which turns may be results at all. Exact and exhaustive: no score ever drops what a filter lets through."""

from __future__ import annotations

from typing import Any

import msgspec

from serve_app.core import Turn
from serve_app.entities.recognise import in_text, named_of
from serve_app.paths import same
from serve_app.retrieve.conditions import Condition, hold
from serve_app.retrieve.work import Work


class Filters(msgspec.Struct, frozen=True):
    """Conditions that must all hold. `start` is inclusive, `end` exclusive, both in microseconds."""

    session: str | None = None
    roles: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset({"turn"})
    start: int | None = None
    end: int | None = None
    tool_name: str | None = None
    metadata: dict[str, Any] = {}
    entities: frozenset[str] = frozenset()
    """Keys of entities, see `entities.recognise.key_named`: a turn names each of them."""
    data: tuple[Condition, ...] = ()

    @property
    def narrow(self) -> bool:
        """Whether anything but the owner limits the results."""
        return self != Filters(kinds=self.kinds)

    @property
    def heavy(self) -> bool:
        """Whether a search has more to do than look at turns in memory: data are parsed, statements indexed."""
        return bool(self.data or self.entities) or self.kinds != {"turn"}

    def admit(self, turn: Turn, now: int, work: Work | None = None) -> bool:
        """`now` decides which fields of its data are there. `work` is that of the whole search; data come last."""
        return (
            (self.session is None or turn.session == self.session)
            and (not self.roles or turn.role in self.roles)
            and (self.start is None or turn.created_at >= self.start)
            and (self.end is None or turn.created_at < self.end)
            and (self.tool_name is None or turn.tool_name == self.tool_name)
            and (not self.metadata or self._metadata_holds(turn))
            and (not self.entities or self._names_all(turn.at(now)))
            and (not self.data or hold(self.data, turn.at(now), work or Work()))
        )

    def name_all(self, text: str) -> bool:
        """Whether a text names every entity that is asked for."""
        return not self.entities or self.entities <= {one.key for one in in_text(text)}

    def _names_all(self, turn: Turn) -> bool:
        return len(named_of(turn, self.entities)) == len(self.entities)

    def _metadata_holds(self, turn: Turn) -> bool:
        stored = turn.metadata or {}
        return all(key in stored and same(stored[key], value) for key, value in self.metadata.items())
