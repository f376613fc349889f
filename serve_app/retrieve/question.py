"""One search, as it is asked: a frozen value."""

from __future__ import annotations

import msgspec

from serve_app.core import Mode, Tier, TimeWindow, Turn
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.fuse import FusionWeights
from serve_app.retrieve.work import Work


class Question(msgspec.Struct, frozen=True):
    """One search. `as_of` is a seq, or None for everything; `now` decides what has expired.

    `work` counts what filters look at inside data, over all tiers.
    """

    query: str
    mode: Mode
    k: int
    now: int
    filters: Filters = Filters()
    as_of: int | None = None
    tiers: frozenset[Tier] = frozenset({"hot", "warm"})
    weights: FusionWeights = FusionWeights()
    work: Work = msgspec.field(default_factory=Work)
    window: TimeWindow | None = None
    """When what is asked for was, where the query says so."""
    drawn_from: frozenset[int] = frozenset()
    """Seqs of the turns that the query's rewrite took words from: they are like it whatever it asks."""
    resembling: bool = False
    """Whether filters only limit what resembles the query, instead of letting every match through in every mode."""

    rerank: bool = False
    """Whether the turns that the first stage ranks highest are judged again."""
    late: bool = True
    """Whether tokens are looked at then."""
    asked_at: int = 0
    """The moment that it is asked at, in microseconds: `now`, unless the caller's lies before the clock."""
    said: tuple[str, ...] = ()
    """Texts of the turns that the query follows."""
    deadline: float | None = None
    """On the monotonic clock."""
    explain: bool = False
    compressor: str = ""
    """The version whose summaries are searched, where a session has some by it."""

    @property
    def exhaustive(self) -> bool:
        return self.filters.narrow and not self.resembling

    def admits(self, turn: Turn) -> bool:
        """Whether the turn was there by then, has not expired, and is what the filters ask for."""
        return (
            (self.as_of is None or turn.seq <= self.as_of)
            and not turn.expired(self.now)
            and self.filters.admit(turn, self.now, self.work)
        )
