"""What a context is built from, and nothing else: the state of a session at one moment, and the request.

The caller reads the clock, the stores and the models; from these values on everything is pure.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from serve_app.context.layout import ZONES, Zone
from serve_app.core import Degradation, Fact, Level, Summary, Tier, Turn

Format = Literal["openai", "anthropic", "text"]

LEVEL_ZONES: dict[Level, frozenset[Zone]] = {
    "full": frozenset(ZONES),
    "summary_only": frozenset(ZONES) - {"retrieved"},
    "recent_only": frozenset(ZONES) - {"retrieved", "summary"},
    "system_only": frozenset({"system", "facts", "query"}),
}
"""The zones that each level of degradation still fills."""


class FoundTurn(Protocol):
    """A turn that retrieval found, with its score (higher is better) and the tier that it came from."""

    @property
    def turn(self) -> Turn: ...

    @property
    def score(self) -> float: ...

    @property
    def tier(self) -> Tier: ...


class Hit(msgspec.Struct, frozen=True):
    """A plain `FoundTurn`."""

    turn: Turn
    score: float
    tier: Tier


class Standing(msgspec.Struct, frozen=True):
    """What binds the user for good: a literal span of the turn `seq` of `session`, and when that was said."""

    text: str
    session: str
    turn_id: str
    seq: int
    said_at: int


class ContextInputs(msgspec.Struct, frozen=True, kw_only=True):
    """State and request of one context.

    `turns` are the session's, oldest first, perhaps only the newest of them; `seq` puts turns in order.
    `hits` are best first, from any session of the user, and may be among `turns` too. `partners` are
    turns that belong to a tool call or result in `turns` or `hits` and are in neither: a call whose
    result is not given counts as unanswered. `notes` are facts that the caller sends along. `now` is
    in microseconds; `versions` name what else decides the output (embedder, compressor, code).
    """

    session: str
    query: str
    budget_tokens: int
    now: int
    system: str | None = None
    facts: tuple[Fact, ...] = ()
    standing: tuple[Standing, ...] = ()
    """Most important first; shown after facts and notes."""
    notes: tuple[str, ...] = ()
    summary: Summary | None = None
    turns: tuple[Turn, ...] = ()
    hits: tuple[FoundTurn, ...] = ()
    partners: tuple[Turn, ...] = ()
    format: Format = "openai"
    versions: tuple[str, ...] = ()
    degradation: Degradation = Degradation()
