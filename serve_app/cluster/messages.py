"""What gateways, writers and Control tell each other, and the ways by which they do.

`deployments/` has the ways on Ray Serve; tests have them in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from serve_app.asgi import Answered, Asked
from serve_app.stores.relay import Segment

__all__ = ["Beat", "ControlCalls", "Leases", "Wanted", "WriterCalls"]


class Leases(msgspec.Struct, frozen=True):
    """Who writes which shard. A lease says where to ask; that two never write one shard is the log's own promise."""

    revision: int = 0
    """Counted up by each change."""
    writers: tuple[str, ...] = ()
    """By shard, the name of its writer; "" where it has none at the moment."""


class Beat(msgspec.Struct, frozen=True):
    """What a writer tells Control again and again."""

    writer: str
    """`writer-0` and so on: the same after a restart."""
    incarnation: str
    """Another one after each start."""
    shards: tuple[int, ...] = ()
    """Those that are open here."""
    leaving: bool = False
    """Whether it is about to end, and its shards are to go elsewhere."""


class Wanted(NamedTuple):
    """What a follower of a shard wants to have: the segments after this number, all up to which it shows."""

    follower: str
    """Its name."""
    after: int


class ControlCalls(Protocol):
    """The way to Control. Each call raises StoreUnavailable where it does not answer in time."""

    async def beat(self, beat: Beat) -> Leases:
        """What the writer is to have open from here on, among the rest.

        Raises Conflict where another process has the writer's name: this one is to let go of everything, for ever.
        """
        ...

    async def leases(self, after: int = -1) -> Leases:
        """Those that hold; waits a bounded while for a revision that is later than `after`."""
        ...


class WriterCalls(Protocol):
    """The way to writers, by their names."""

    async def ask(self, writer: str, shard: int, asked: Asked, within_s: float) -> Answered:
        """Have the writer answer this request as the service of that shard.

        Raises ShardElsewhere where it surely has done nothing (the shard is not open there, or nobody is there to be
        asked), StoreUnavailable where nobody knows (it was lost, or did not answer in time).
        """
        ...

    async def segments(
        self, writer: str, wanted: Mapping[int, Wanted], wait_s: float
    ) -> dict[int, list[Segment] | None]:
        """By shard, what the writer has made since; waits so long for the first of it, of any shard.

        None where it does not hold what is wanted. What is left out is to be asked for again. Raises ShardElsewhere
        where nobody is there, StoreUnavailable where there is no answer, Overloaded.
        """
        ...
