"""After a start: which sessions of the tables are still without a summary of their newest turns.

A `Duty` of the housekeeper. It walks down from the newest seq, a page each round, to turns that are older than any
summary could be that still holds; older sessions get theirs when they are read. It walks again where the refresher
had to turn a session away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from serve_app.core import SECOND_US
from serve_app.memory.refresher import Refresher
from serve_app.write.commit import ShardWriter

SEQS_A_PAGE = 5_000
"""What is read in one go; some milliseconds."""

SESSIONS_MAX = 100_000
"""Of one walk, which remembers those it has met; what lies beyond waits until it is read."""

Session = tuple[str, str]
"""Owner and session."""


@dataclass
class Walk:
    """How far down it is, and what it has met: of each session the newest turn, and how far its summary reaches."""

    below: int
    summarised: dict[Session, int] = field(default_factory=dict)
    met: set[Session] = field(default_factory=set)


class SummarySweep:
    """`reach_s`: how long a summary holds. `every_s`: when a walk begins after the start, and between two of them."""

    name = "summaries"

    def __init__(
        self, refresher: Refresher, clock: Callable[[], int], reach_s: float, every_s: float = 60.0,
        page: int = SEQS_A_PAGE,
    ) -> None:  # fmt: skip
        self.every_s = every_s
        self._refresher = refresher
        self._clock = clock
        self._reach_us = round(reach_s * SECOND_US)
        self._page = page
        self._walks: dict[int, Walk] = {}
        self._walked: set[int] = set()

    def tend(self, number: int, writer: ShardWriter) -> bool:
        """A page. Gives whether there is more."""
        if number in self._walked and number not in self._refresher.forgotten:
            return False
        walk = self._walks.setdefault(number, Walk(writer.shard.folded_seq + 1))
        self._refresher.forgotten.discard(number)
        if self._walk_down(walk, writer):
            return True
        del self._walks[number]
        self._walked.add(number)
        return False

    def _walk_down(self, walk: Walk, writer: ShardWriter) -> bool:
        first = max(0, walk.below - self._page)
        turns, summaries = writer.shard.table.told(first, walk.below)
        for owner, summary in summaries:
            place = owner, summary.session
            walk.summarised[place] = max(summary.last_seq, walk.summarised.get(place, 0))
        for one in reversed(turns):  # the newest of each session first
            place = one.owner, one.session
            if place not in walk.met:
                walk.met.add(place)
                if one.seq > walk.summarised.get(place, 0):
                    self._refresher.ask(writer.shard, *place)
        walk.below = first
        old = bool(turns) and max(one.arrived_at for one in turns) < self._clock() - self._reach_us
        return first > 0 and not old and len(walk.met) < SESSIONS_MAX
