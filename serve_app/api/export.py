"""Everything held about a user, one JSON object a line, read and sent a page at a time.

Turns come oldest first, whatever their session, then facts, then the summaries that hold, then golden queries. The last
line is of kind `end` and counts the others: an export without it was cut short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import msgspec

from serve_app.api import showing
from serve_app.api.golden import shown_golden
from serve_app.core import Owner, Turn
from serve_app.memory.golden import GoldenSets
from serve_app.memory.memory import Memory


async def exported(memory: Memory, golden: GoldenSets, owner: Owner) -> AsyncGenerator[bytes, None]:
    """The lines, some at a time. Raises StorageTrouble, also after some have been given."""
    turns = 0
    async for page in memory.all_turns(owner):
        turns += len(page)
        if page:
            yield await asyncio.to_thread(_turn_lines, page, owner.user)
    facts = [showing.exported_fact(fact, owner.user) for fact in await memory.facts(owner)]
    summaries = [showing.exported_summary(one, owner.user) for one in await memory.summaries(owner)]
    queries = [shown_golden(one) | {"kind": "golden"} for one in await golden.of(owner)]
    end = {"kind": "end", "user_id": owner.user}
    counts = {"turns": turns, "facts": len(facts), "summaries": len(summaries), "golden": len(queries)}
    yield _lines([*facts, *summaries, *queries, end | counts])


def _turn_lines(turns: Iterable[Turn], user: str) -> bytes:
    return _lines(showing.exported_turn(turn, user) for turn in turns)


def _lines(shown: Iterable[Any]) -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in shown)
