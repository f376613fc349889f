"""One search, as it is asked: a frozen value."""

from __future__ import annotations

import msgspec

from serve_app.core import Mode, Tier
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.fuse import FusionWeights


class Question(msgspec.Struct, frozen=True):
    """One search. `as_of` is a seq, or None for everything; `now` decides what has expired."""

    query: str
    mode: Mode
    k: int
    now: int
    filters: Filters = Filters()
    as_of: int | None = None
    tiers: frozenset[Tier] = frozenset({"hot", "warm"})
    weights: FusionWeights = FusionWeights()
    resembling: bool = False
    """Whether filters only limit what resembles the query, instead of letting every match through in every mode."""

    @property
    def exhaustive(self) -> bool:
        return self.filters.narrow and not self.resembling
