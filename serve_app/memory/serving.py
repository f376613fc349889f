"""What serves an owner: embedding versions, reranker and compressor, by the plan in force, pinned once a request.

Owns the plan (`change` puts another in its place, whole). Promises that a request, or a context as of an earlier
moment, is answered by one routing and one second stage from its start to its end, that a migration of one kind moves
nobody in another, and that what is answered by other means than then says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from serve_app.core import Owner
from serve_app.memory.requests import AsOf
from serve_app.memory.rerankers import Rerankers
from serve_app.retrieve.question import Question
from serve_app.retrieve.second import SecondStage
from serve_app.routing import Choice, Epoch, Routing, VersionPlan

VERSION_GONE = "dense: version_gone"
"""What was searched at that moment is no longer held: another version is searched, which may find other turns."""

RERANKER_GONE = "rerank: configuration_gone"
"""What judged at that moment is no longer open: the one in force judges, which may order turns otherwise."""


class Compressing(Protocol):
    """Whose summaries an owner's contexts show; see `memory/compressors.py`."""

    def follow(self, choice: Choice) -> None: ...

    def version_of(self, name: str) -> str:
        """What summaries by this configuration are marked with."""
        ...


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
    compressor: str = ""
    """The version of the summaries that are shown, where there are some of it."""
    epoch: int | None = None
    """The number of the epoch that says so, where there may be several."""


class Serving:
    def __init__(
        self, plan: VersionPlan, rerankers: Rerankers, compressors: Compressing, names: tuple[str, ...]
    ) -> None:
        """`names`: of the rules and the tokenizer."""
        self._plan = plan
        self._rerankers = rerankers
        self._compressors = compressors
        self._names = names
        self.searched: Watcher = _unwatched
        compressors.follow(plan.now.compressor)

    @property
    def plan(self) -> VersionPlan:
        return self._plan

    def change(self, plan: VersionPlan) -> None:
        """Requests from here on are answered by this plan; those under way by the one that they began with."""
        self._plan = plan
        self._compressors.follow(plan.now.compressor)

    def of(self, owner: str, shard: int = 0, as_of: AsOf | None = None) -> Served:
        """What serves the owner now, or served it at that moment."""
        plan, epoch = self._plan, self._plan.now
        if as_of is not None and len(plan.epochs) > 1:
            epoch = _then(plan, shard, as_of)
        reasons: list[str] = []
        routing = epoch.of_owner(owner)
        if not plan.holds(routing):
            routing = plan.now.of_owner(owner)
            reasons.append(VERSION_GONE)
        reranker = epoch.reranker.of_owner(owner) or _first(plan, "reranker")
        if reranker and not self._rerankers.holds(reranker):
            reranker = plan.now.reranker.of_owner(owner)
            reasons.append(RERANKER_GONE)
        compressor = epoch.compressor.of_owner(owner) or _first(plan, "compressor")
        served = self._served(routing, reranker, compressor, tuple(reasons))
        return served._replace(epoch=epoch.number) if plan.named else served

    def named(self, served: Served, shard: int, seq: int) -> int | None:
        """The number of the epoch that served, where the seq does not tell: after a change and before the next write.

        A seq that tells goes on to tell: whatever comes later begins after it.
        """
        told = served.epoch is None or self._plan.as_of_seq(shard, seq).number == served.epoch
        return None if told else served.epoch

    def under(self, routing: Routing, *, new: bool = False) -> Served:
        """What serves who is served by this routing; `new`: by the configurations under trial, where there are any."""
        now = self._plan.now
        reranker, compressor = now.reranker, now.compressor
        if new:
            return self._served(routing, reranker.target or reranker.base, compressor.target or compressor.base)
        return self._served(routing, reranker.base, compressor.base)

    def _served(self, routing: Routing, reranker: str, compressor: str, reasons: tuple[str, ...] = ()) -> Served:
        names = routing.names
        second = self._rerankers.stage(reranker, names)
        version = self._compressors.version_of(compressor)
        # Names stand in the order in which contexts have always been named.
        return Served(routing, second, ("+".join(names), version, *self._names, *second.names), reasons, version)

    def seconds(self) -> tuple[SecondStage, ...]:
        """Those that have been opened."""
        return self._rerankers.stages()


def _then(plan: VersionPlan, shard: int, as_of: AsOf) -> Epoch:
    if as_of.seq is not None and as_of.epoch is not None:
        return plan.numbered(as_of.epoch, shard, as_of.seq)
    if as_of.seq is not None:
        return plan.as_of_seq(shard, as_of.seq)
    return plan.now if as_of.time is None else plan.as_of_time(as_of.time)


def _first(plan: VersionPlan, kind: str) -> str:
    """What served before the first migration of this kind began; "" where none ever did."""
    return next((choice.base for epoch in plan.epochs if (choice := getattr(epoch, kind)).base), "")
