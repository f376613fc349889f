"""What a search asks for, in words that stand alone: resolved from what was said last, with the time that it names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from serve_app.core import TimeWindow, Turn
from serve_app.memory.reading import living
from serve_app.memory.requests import Asked, SearchRequest
from serve_app.retrieve.expand import keywords, rewritten
from serve_app.retrieve.when import read_window
from serve_app.stores.block import Block
from serve_app.write.shard import Shard

HISTORY_TURNS = 4
"""Last turns of a session that an elliptic query may be resolved from."""

SAID_CHARACTERS_MAX = 8_192
"""Of each of them, so much is read."""


class Understood(msgspec.Struct, frozen=True):
    """A query in words that stand alone. `drawn_from`: seqs of stored turns that the rewrite took words from."""

    query: str
    keywords: list[str]
    window: TimeWindow | None
    drawn_from: frozenset[int] = frozenset()


def stands_alone(request: SearchRequest) -> bool:
    """Whether there is nothing that the query could be resolved from."""
    return not request.history and request.filters.session is None


def resolved(shard: Shard, owner: str, request: SearchRequest, asked_at: int, expiry: int) -> Understood:
    """The query as it is understood after what was said. Loads the block if it is not here: raises StorageTrouble."""
    said = request.history[-HISTORY_TURNS:] or _last_turns(shard.block(owner), request.filters.session)
    return read_alone(request.query, living(said, expiry), request.asked, asked_at)


def read_alone(query: str, said: Sequence[Turn], asked: Asked, asked_at: int) -> Understood:
    """By rules, without looking at anything else."""
    if not query.strip():
        return Understood(query, [], None)
    window = read_window(query, asked_at, asked.offset_minutes, asked.tz, asked.locale)
    alone = rewritten(query, [turn.text[:SAID_CHARACTERS_MAX] for turn in said])
    return Understood(alone, keywords(query), window)


def _last_turns(block: Block, session: str | None) -> Sequence[Turn]:
    """What was said last in the session."""
    with block.lock:
        index = None if session is None else block.sessions.get(session)
        seqs = index.seqs[-HISTORY_TURNS:] if index else []
        return [block.turns[seq] for seq in seqs if seq in block.turns]
