"""Summaries of conversations that callers send along: of turns that are stored nowhere, made at once, without a model.

A conversation is sent with each request, a little longer each time: what was worked out of a turn stays with it while
it comes again, so that only what is new is read. That is kept in this process's memory alone, bounded, and goes when
others come.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

import msgspec

from serve_app.compress.compressor import Compressor
from serve_app.context.inputs import LEVEL_ZONES, ContextInputs
from serve_app.context.layout import Layout
from serve_app.context.window import Context, build_context
from serve_app.core import NEVER, SECOND_US, Summary, Turn
from serve_app.memory.known import Known
from serve_app.memory.making import summary_of
from serve_app.memory.standing import standing_of_sent
from serve_app.ports import Tokenizer

CHARACTERS_MAX = 65_536
"""The newest turns with so much text are summed up; what lies before them is listed as left out.

Of a last turn with more its beginning and its end are. It is read while the request waits.
"""

ZONE_TOKENS_MIN = 8
"""A smaller zone has no summary."""

ZONE_TIMES = 2
"""A summary may have so many times its zone, and what the shown turns take beside: their lines go, and of the rest the
best stay.
"""

KNOWN_TURNS, KNOWN_CHARACTERS_MAX = 4_096, 4_096
"""Turns kept in each of two generations, and how long they may be."""

_BREAK = re.compile(r"\W")

HOUR_US = 3_600 * SECOND_US


class Histories:
    """Safe for threads."""

    def __init__(self) -> None:
        self._compressor = Compressor()
        self._known = Known(KNOWN_TURNS)

    def context(self, inputs: ContextInputs, layout: Layout, tokenizer: Tokenizer) -> Context:
        """Of a conversation that was sent along. What does not fit is summed up, and the rest chosen anew beside that.

        Pure. Raises QueryExceedsBudget, SystemExceedsBudget.
        """
        whole = build_context(inputs, layout, tokenizer)
        zone = layout.budgets(inputs.budget_tokens)["summary"]
        lost = any(one.zone == "recent" and one.reason in ("budget", "too_large") for one in whole.dropped)
        if not lost or zone < ZONE_TOKENS_MIN or "summary" not in LEVEL_ZONES[inputs.degradation.level]:
            return whole
        summary = self._summary(inputs, ZONE_TIMES * zone + whole.zones["recent"].tokens, tokenizer)
        if summary is None:
            return whole
        binding = standing_of_sent(summary, inputs.turns, inputs.standing, inputs.facts, inputs.notes)
        return build_context(msgspec.structs.replace(inputs, summary=summary, standing=binding), layout, tokenizer)

    def _summary(self, inputs: ContextInputs, target: int, tokenizer: Tokenizer) -> Summary | None:
        """Of the whole conversation, so that what its end takes back does not stand. None where there is no text."""
        turns = [self._quotable(turn) for turn in _newest(inputs.turns)]
        if not turns:
            return None
        made = self._compressor.compress(turns, target, tokenizer)
        if not made.text:
            return None
        return summary_of(made, inputs.session, self._compressor.version, hour_of(inputs.now), NEVER)

    def _quotable(self, turn: Turn) -> Turn:
        """All that still lives may be quoted: what is quoted goes with the answer."""
        if not turn.lasting:
            turn = msgspec.structs.replace(turn, expires_at=None, fields_expire=())
        return turn if turn.characters > KNOWN_CHARACTERS_MAX else self._known.of(msgspec.msgpack.encode(turn))


def _newest(turns: Sequence[Turn]) -> list[Turn]:
    """The newest ones within `CHARACTERS_MAX`, oldest first; the last one in any case, but for large data."""
    left = CHARACTERS_MAX

    def fits(turn: Turn) -> bool:
        nonlocal left
        left -= turn.characters
        return left >= 0

    return list(takewhile(fits, reversed(turns)))[::-1] or _both_ends(turns[-1])


def _both_ends(turn: Turn) -> list[Turn]:
    """As much of a large text, no word or number of it cut; nothing of data, which has no ends."""
    if turn.data is not None or turn.tool_calls:
        return []
    if len(turn.content) <= CHARACTERS_MAX:  # the rest is metadata, which nobody reads
        return [turn]
    half = CHARACTERS_MAX // 2
    first, last = turn.content[:half], turn.content[-half:]
    breaks = [found.start() for found in _BREAK.finditer(first)]
    begins = _BREAK.search(last)
    kept = [first[: breaks[-1]] if breaks else "", last[begins.end() :] if begins else ""]
    return [msgspec.structs.replace(turn, content="\n".join(kept))]


def hour_of(instant: int) -> int:
    """The hour in which it lies: when turns were said that come without a time. More would be made up, and would make
    the same turn another one with each request.
    """
    return instant - instant % HOUR_US


def timed(turn: Turn, now: int) -> Turn:
    """With a time, where it came without one."""
    if turn.created_at:
        return turn
    return msgspec.structs.replace(turn, created_at=hour_of(now), arrived_at=hour_of(now))
