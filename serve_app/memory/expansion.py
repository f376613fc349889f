"""What a search asks for, in words that stand alone: resolved from what was said last. Runs in the pool."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from serve_app.core import Turn
from serve_app.memory.requests import SearchRequest
from serve_app.retrieve.expand import keywords, rewritten
from serve_app.stores.block import Block
from serve_app.write.shard import Shard

HISTORY_TURNS = 4
"""Last turns of a session that an elliptic query may be resolved from."""

SAID_CHARACTERS_MAX = 8_192
"""Of each of them, so much is read."""


class Asked(msgspec.Struct, frozen=True):
    """The owner's block, and the query as it was understood."""

    block: Block
    query: str
    keywords: list[str]


def expand(shard: Shard, owner: str, request: SearchRequest, now: int) -> Asked:
    """Load the block if it is not here, and understand the query. Raises StorageTrouble."""
    block = shard.block(owner)
    if not request.query.strip():
        return Asked(block, request.query, [])
    said = request.history[-HISTORY_TURNS:] or _last_turns(block, request.filters.session, now)
    query = rewritten(request.query, [turn.text[:SAID_CHARACTERS_MAX] for turn in said])
    return Asked(block, query, keywords(request.query))


def _last_turns(block: Block, session: str | None, now: int) -> Sequence[Turn]:
    """What was said last in the session and has not expired."""
    with block.lock:
        index = None if session is None else block.sessions.get(session)
        seqs = index.seqs[-HISTORY_TURNS:] if index else []
        turns = [block.turns[seq] for seq in seqs if seq in block.turns]
    return [turn for turn in turns if not turn.expired(now)]
