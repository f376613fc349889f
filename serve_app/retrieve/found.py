"""What a search gives: turns with their scores, and what was asked for them. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from serve_app.core import Tier, TimeWindow, Turn
from serve_app.retrieve.fuse import Ranking

UNKNOWN = float("nan")
"""The inner product of a turn whose vector is not at hand."""


class Why(msgspec.Struct, frozen=True):
    """Why the second stage put a turn where it stands."""

    rank: int
    """In the first stage, from 1."""
    score: float
    """Of the first stage."""
    by: Mapping[str, float]
    """What each reranker said, by its kind."""
    features: Mapping[str, float | None]
    """What was known of the turn; None for what was not."""
    contributions: Mapping[str, float]
    """What each of them added to the judgement that decided, where it can say."""


class Judged(msgspec.Struct, frozen=True):
    """What became of one reranker in one search."""

    kind: str
    name: str
    result: Literal["ok", "deadline", "failed", "overloaded", "left_alone"]
    seconds: float


class Found(msgspec.Struct, frozen=True):
    """A result: the turn, its score, where it was found, and what each of `ARMS` added.

    `matched`: where its data meet the conditions on them, if there are any.
    """

    turn: Turn
    score: float
    tier: Tier
    added: Sequence[float] = ()
    matched: tuple[str, ...] | None = None
    why: Why | None = None


class Explained(msgspec.Struct, frozen=True):
    """What a search did, for who asks."""

    tiers: tuple[Tier, ...]
    version: str | None
    """The embedding version that was searched, if any was."""
    candidates: int
    """Turns that the first stage chose from."""
    reranked: int
    """Of those it ranked highest, so many were judged again."""
    entities: tuple[str, ...] = ()
    """The keys of those that the query names."""
    judged: tuple[Judged, ...] = ()
    window: TimeWindow | None = None
    """When what is asked for was, as far as the query says."""


class Answer(msgspec.Struct, frozen=True):
    """Results, best first, and why they may not be all: a stage that did not answer is named."""

    found: list[Found]
    reasons: tuple[str, ...] = ()
    asked: frozenset[Tier] = frozenset({"hot"})
    """The tiers that were looked into."""
    loaded: bool = False
    """The owner's memory had to be loaded from the tables for it."""
    explained: Explained | None = None
    second_s: float = 0.0
    """What the second stage took."""


def found_of(turns: Sequence[Turn], ranking: Ranking, tiers: Sequence[Tier]) -> list[Found]:
    """The turns that a ranking chose, in its order."""
    return [
        Found(turn, score, tier, added)
        for turn, score, added, tier in zip(turns, ranking.scores.tolist(), ranking.parts.tolist(), tiers, strict=True)
    ]
