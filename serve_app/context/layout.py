"""How a token budget is shared among the zones of a context. Owns the zones, their order and the default shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from serve_app.errors import InvalidRequest

Zone = Literal["system", "facts", "summary", "retrieved", "recent", "query"]
ZONES: tuple[Zone, ...] = get_args(Zone)
"""In the order in which a model reads them."""

DEFAULT_SHARES: Mapping[Zone, int] = {
    "system": 8,
    "facts": 6,
    "summary": 22,
    "retrieved": 16,
    "recent": 36,
    "query": 12,
}


class Layout(msgspec.Struct, frozen=True):
    """A named division of a budget: whole percents for all six zones, at most 100 in all."""

    name: str
    shares: Mapping[Zone, int]

    def __post_init__(self) -> None:
        if set(self.shares) != set(ZONES):
            raise InvalidRequest(f"layout {self.name!r} must give a share to each of {', '.join(ZONES)}")
        if min(self.shares.values()) < 0 or sum(self.shares.values()) > 100:
            raise InvalidRequest(f"layout {self.name!r}: shares are percents, none negative, at most 100 in all")

    def budgets(self, budget_tokens: int) -> dict[Zone, int]:
        """Each zone's own tokens before any borrowing; together never more than `budget_tokens`."""
        return {zone: budget_tokens * self.shares[zone] // 100 for zone in ZONES}


def shrunk(budgets: Mapping[Zone, int], tokens: int) -> dict[Zone, int]:
    """The same budgets, made smaller in proportion where they ask for more than `tokens` together."""
    wanted = sum(budgets.values())
    if wanted <= max(tokens, 0):
        return dict(budgets)
    return {zone: budget * max(tokens, 0) // wanted for zone, budget in budgets.items()}


DEFAULT_LAYOUT = Layout("default", DEFAULT_SHARES)
