"""What a summary may quote of its turns, best first: what binds, then what else is worth keeping. Pure, no model.

Quotes are verbatim, white space aside. Nothing of what was replaced, withdrawn, supposed or said of outsiders is
quoted, nothing of turns of which anything expires, and of the exchange with a tool only what binds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

from serve_app.compress.composing import Line, Part
from serve_app.compress.ledger import Reading
from serve_app.compress.statements import Statement
from serve_app.core import Turn

EXTRACTIVE_VERSION = "extractive-2"
"""Changes with anything here or in the composing that changes a summary."""

NEWNESS_WORTH = 0.5
"""What the newest statement has over the oldest: enough to settle near ties."""

MONTH_AT = len("2023-")
_SPACE = re.compile(r"\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def quotes(turns: Sequence[Turn], reading: Reading) -> tuple[list[Part], list[Part]]:
    """What surely binds, and what else may be quoted, each best first; of equal texts only the best placed."""
    year = year_of(turns)
    leads: dict[int, str] = {}
    binding: list[Part] = []
    others: list[Part] = []
    for one, text in _distinct(_by_worth(turns, reading)):
        turn = turns[one.turn]
        begins = leads.get(one.turn) or leads.setdefault(one.turn, lead(turn, year))
        (binding if one.verdict == "active" and not one.doubted else others).append(_part(turn, one, text, begins))
    return binding, others


def _distinct(statements: Iterable[Statement]) -> Iterator[tuple[Statement, str]]:
    """With their texts, white space made single spaces."""
    seen: set[str] = set()
    for one in statements:
        text = " ".join(one.text.split())
        folded = text.casefold()
        if folded not in seen:
            seen.add(folded)
            yield one, text


def _by_worth(turns: Sequence[Turn], reading: Reading) -> list[Statement]:
    """What may be quoted, best first."""
    lasting = [turn.lasting for turn in turns]
    exchanged = [_of_an_exchange(turn) for turn in turns]
    newer = NEWNESS_WORTH / len(turns)
    said = [
        one
        for one in reading.statements
        if one.kept and lasting[one.turn] and (one.verdict == "active" or not exchanged[one.turn])
    ]
    return sorted(said, key=lambda one: (-one.worth - newer * one.turn, -one.turn, one.start))


def _of_an_exchange(turn: Turn) -> bool:
    return bool(turn.role == "tool" or turn.tool_calls or turn.tool_call_id)


def _part(turn: Turn, one: Statement, text: str, begins: str) -> Part:
    space = _SPACE.match(turn.text, one.end)
    after = space.end() if space else one.end
    return Part(Line(one.turn, True, turn.seq), one.start, after, " " if after > one.end else "", text, begins)


def lead(turn: Turn, year: int | None = None, speaker: str | None = None) -> str:
    """Date (where the speaker was) and speaker; of a date in this year month and day, which are half as many tokens."""
    name = speaker or turn.speaker or turn.tool_name or turn.role
    said_on = _local_date(turn)
    day = said_on.isoformat()[MONTH_AT:] if said_on.year == year else said_on.isoformat()
    return f"{day} {' '.join(name.split())}:"


def year_of(turns: Sequence[Turn]) -> int:
    """The year that lines leave out: that of the newest turn."""
    return _local_date(turns[-1]).year


def _local_date(turn: Turn) -> date:
    return (_EPOCH + timedelta(microseconds=turn.created_at, minutes=turn.offset_minutes)).date()
