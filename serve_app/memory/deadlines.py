"""How a request's time is shared: by when each stage is over, so that there is always time left for a smaller answer.

The one plan of all stages. No stage is given the whole of what is left: the stage after it, and the answer from memory
that stands in for both, would come too late.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(gt=0, lt=1)]


class Shares(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a request's deadline at which each stage ends. What one does not need the next ones have."""

    expand: Share = 0.25
    """The query is made to stand for itself."""
    embed: Share = 0.5
    """Its vector is there."""
    load: Share = 0.6
    """The owner's block has been read, where it was not in memory."""
    retrieve: Share = 0.7
    """The tables have been asked."""
    rerank: Share = 0.8
    answer: Share = 0.85
    """The full answer is there. If not, a smaller one is made of what is in memory, in the time that is left."""

    def __post_init__(self) -> None:
        """Raises ValueError where a stage ends before the one before it."""
        ends = msgspec.structs.astuple(self)
        if list(ends) != sorted(ends):
            raise ValueError("shares: each stage must end after the one before it")

    def of(self, started: float, deadline_s: float) -> Plan:
        return Plan(*(started + share * deadline_s for share in msgspec.structs.astuple(self)))


class Plan(NamedTuple):
    """The ends of the stages of one request, on the monotonic clock."""

    expand: float
    embed: float
    load: float
    retrieve: float
    rerank: float
    answer: float


NO_HURRY = Plan(*[math.inf] * len(Plan._fields))
