"""What a search gives: turns with their scores, and what was asked for them. Frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from serve_app.core import Tier, Turn
from serve_app.retrieve.fuse import Ranking

UNKNOWN = float("nan")
"""The inner product of a turn whose vector is not at hand."""


class Found(msgspec.Struct, frozen=True):
    """A result: the turn, its fused score, where it was found, and what each of `ARMS` added.

    `matched`: where its data meet the conditions on them, if there are any.
    """

    turn: Turn
    score: float
    tier: Tier
    added: Sequence[float] = ()
    matched: tuple[str, ...] | None = None


class Answer(msgspec.Struct, frozen=True):
    """Results, best first, and why they may not be all: a stage that did not answer is named."""

    found: list[Found]
    reasons: tuple[str, ...] = ()
    asked: frozenset[Tier] = frozenset({"hot"})
    """The tiers that were looked into."""
    loaded: bool = False
    """The owner's memory had to be loaded from the tables for it."""


class Hot(NamedTuple):
    """The block's own best, and their inner products with the query (NaN where not known)."""

    found: list[Found]
    inner: list[float]


def found_of(turns: Sequence[Turn], ranking: Ranking, tiers: Sequence[Tier]) -> list[Found]:
    """The turns that a ranking chose, in its order."""
    return [
        Found(turn, score, tier, added)
        for turn, score, added, tier in zip(turns, ranking.scores.tolist(), ranking.parts.tolist(), tiers, strict=True)
    ]
