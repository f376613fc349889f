"""What serves an owner: the routing of embedding versions and the second stage, pinned once a request.

Owns the plan in force (`change` puts another in its place, whole) and the second stages, one for each set of versions
and configuration of the reranker. Promises that a request, or a context as of an earlier moment, is answered by one
routing from its start to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from serve_app.core import Owner
from serve_app.memory.requests import AsOf
from serve_app.retrieve.question import Question
from serve_app.retrieve.second import SecondStage
from serve_app.routing import Epoch, Routing, VersionPlan

VERSION_GONE = "dense: version_gone"
"""What was searched at that moment is no longer held: another version is searched, which may find other turns."""

OpenSecond = Callable[[tuple[str, ...], bool], SecondStage]
"""The second stage over vectors of these versions; True: by the reranker's new configuration, where there is one."""


Watcher = Callable[[Owner, Question], None]
"""Told of each search that was answered, on the event loop. Waits for nothing, raises nothing."""


def _unwatched(owner: Owner, question: Question) -> None:
    """Nobody compares."""


class Served(NamedTuple):
    """What answers one request."""

    routing: Routing
    second: SecondStage
    names: tuple[str, ...]
    """Of all that the answer depends on beside what is stored."""
    reasons: tuple[str, ...] = ()
    """What may differ from the moment that is asked for."""


class Serving:
    def __init__(self, plan: VersionPlan, second: OpenSecond, names: tuple[str, ...]) -> None:
        """`names`: of the compressor, the rules and the tokenizer."""
        self._plan = plan
        self._open_second = second
        self._names = names
        self.searched: Watcher = _unwatched
        self._seconds: dict[tuple[tuple[str, ...], bool], SecondStage] = {}

    @property
    def plan(self) -> VersionPlan:
        return self._plan

    def change(self, plan: VersionPlan) -> None:
        """Requests from here on are answered by this plan; those under way by the one that they began with."""
        self._plan = plan

    def of(self, owner: str, shard: int = 0, as_of: AsOf | None = None) -> Served:
        """What serves the owner now, or served it at that moment."""
        plan, epoch = self._plan, self._plan.now
        if as_of is not None and len(plan.epochs) > 1:
            epoch = _then(plan, shard, as_of)
        routing, reasons = epoch.of_owner(owner), ()
        if not plan.holds(routing):
            return self.under(plan.now.of_owner(owner), reasons=(VERSION_GONE,))
        return self.under(routing, reasons=reasons)

    def under(self, routing: Routing, new: bool = False, reasons: tuple[str, ...] = ()) -> Served:
        """What serves who is served by this routing."""
        names = routing.names
        second = self._seconds.get((names, new))
        if second is None:
            second = self._seconds[names, new] = self._open_second(names, new)
        return Served(routing, second, ("+".join(names), *self._names, *second.names), reasons)

    def seconds(self) -> tuple[SecondStage, ...]:
        """Those that have been opened."""
        return tuple(self._seconds.values())


def _then(plan: VersionPlan, shard: int, as_of: AsOf) -> Epoch:
    if as_of.seq is not None:
        return plan.as_of_seq(shard, as_of.seq)
    return plan.now if as_of.time is None else plan.as_of_time(as_of.time)
