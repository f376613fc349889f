"""What a search asks for, in words that stand alone: resolved from what was said last. Runs in the pool."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.core import Turn
from serve_app.memory.reading import living
from serve_app.memory.requests import SearchRequest
from serve_app.retrieve.expand import rewritten
from serve_app.stores.block import Block
from serve_app.write.shard import Shard

HISTORY_TURNS = 4
"""Last turns of a session that an elliptic query may be resolved from."""

SAID_CHARACTERS_MAX = 8_192
"""Of each of them, so much is read."""


def stands_alone(request: SearchRequest) -> bool:
    """Whether there is nothing that the query could be resolved from."""
    return not request.history and request.filters.session is None


def resolved(shard: Shard, owner: str, request: SearchRequest, now: int) -> str:
    """The query as it is understood after what was said. Loads the block if it is not here: raises StorageTrouble."""
    if not request.query.strip():
        return request.query
    return rewritten(request.query, said_before(shard.block(owner), request, now))


def said_before(block: Block, request: SearchRequest, now: int) -> tuple[str, ...]:
    """The texts of what was said last before the query, oldest first."""
    said = request.history[-HISTORY_TURNS:] or _last_turns(block, request.filters.session)
    return tuple(turn.text[:SAID_CHARACTERS_MAX] for turn in living(said, now))


def _last_turns(block: Block, session: str | None) -> Sequence[Turn]:
    """What was said last in the session."""
    with block.lock:
        index = None if session is None else block.sessions.get(session)
        seqs = index.seqs[-HISTORY_TURNS:] if index else []
        return [block.turns[seq] for seq in seqs if seq in block.turns]
