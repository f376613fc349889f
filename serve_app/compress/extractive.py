"""What a summary may quote of its turns, best first: what binds, then what else is worth keeping. Pure, no model.

Quotes are verbatim, white space and control characters aside. Nothing of what was replaced, withdrawn, supposed or said
of outsiders is quoted, nor an answer that repeats a number of it, nothing of turns of which anything expires, and of
the exchange with a tool only what binds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from serve_app.compress.composing import Lead, Line, Part
from serve_app.compress.ledger import Reading
from serve_app.compress.statements import Statement
from serve_app.core import SECOND_US, Turn

EXTRACTIVE_VERSION = "extractive-3"
"""Changes with anything here or in the composing that changes a summary."""

NEWNESS_WORTH = 0.5
"""What the newest statement has over the oldest: enough to settle near ties."""

FILLER_WORTH = 1.75
"""What binds nobody and is worth less fills what would be empty."""

MONTH_AT = len("2023-")
_SPACE = re.compile(r"\s*")
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]+")
"""Control characters, and those that take no place or turn the direction of what follows."""

_COLON = re.compile("[:：]")
_ROLES = frozenset({"user", "assistant", "tool", "system", "summary"})
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_EPOCH = date(1970, 1, 1)
MINUTE_US, DAY_US = 60 * SECOND_US, 86_400 * SECOND_US

DATES_KEPT = 4_096
"""Used last, as they are written."""


class Quotes(NamedTuple):
    """What may be quoted, each best first."""

    binding: list[Part]
    others: list[Part]
    fillers: list[Part]

    @property
    def all(self) -> list[Part]:
        return [*self.binding, *self.others, *self.fillers]


def quotes(turns: Sequence[Turn], reading: Reading, most: int | None = None) -> Quotes:
    """Of equal texts only the best placed. `most`: of what binds and of all else no more than so many, the best."""
    said = [one for one in reading.statements if one.kept and turns[one.turn].lasting]
    binding = [one for one in said if _surely_binds(one)]
    outdated = _outdated(reading.statements)
    unsure = [one for one in said if not _surely_binds(one)]
    others = [one for one in unsure if one.verdict == "active" or not _of_an_exchange(turns[one.turn])]
    fresh = (one for one in _by_worth(turns, others) if not _repeats(turns[one.turn], one, outdated))
    seen: set[str] = set()
    binds = islice(_parts(turns, _by_worth(turns, binding), seen), most)
    found = Quotes([part for _, part in binds], [], [])
    for one, part in islice(_parts(turns, fresh, seen), most):
        (found.others if one.worth >= FILLER_WORTH else found.fillers).append(part)
    return found


def _surely_binds(one: Statement) -> bool:
    return one.verdict == "active" and not one.doubted


def _by_worth(turns: Sequence[Turn], statements: Sequence[Statement]) -> list[Statement]:
    """Best first."""
    newer = NEWNESS_WORTH / len(turns)
    return sorted(statements, key=lambda one: (-one.worth - newer * one.turn, -one.turn, one.start))


def _parts(turns: Sequence[Turn], best_first: Iterable[Statement], seen: set[str]) -> Iterator[tuple[Statement, Part]]:
    """Those whose text was not `seen`, in which theirs are put; in plain text."""
    year = year_of(turns)
    for one in best_first:
        text = _plain(one.text)
        folded = text.casefold()
        if text and folded not in seen:
            seen.add(folded)
            turn = turns[one.turn]
            yield one, _part(turn, one, text, lead(turn, year))


def _plain(text: str) -> str:
    """On one line, and nothing in it but what is seen; white space made single spaces."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def _outdated(statements: Sequence[Statement]) -> set[str]:
    """Numbers of what was replaced that nothing in force names."""
    gone, held = (
        {number for one in statements if one.verdict == verdict for number in _NUMBER.findall(one.text)}
        for verdict in ("superseded", "active")
    )
    return gone - held


def _repeats(turn: Turn, one: Statement, outdated: set[str]) -> bool:
    """Whether an answer says again what has been replaced since."""
    return turn.role == "assistant" and not outdated.isdisjoint(_NUMBER.findall(one.text))


def _of_an_exchange(turn: Turn) -> bool:
    return bool(turn.role == "tool" or turn.tool_calls or turn.tool_call_id)


def _part(turn: Turn, one: Statement, text: str, begins: Lead) -> Part:
    space = _SPACE.match(turn.text, one.end)
    after = space.end() if space else one.end
    return Part(Line(one.turn, True, turn.seq), one.start, after, " " if after > one.end else "", text, begins)


def lead(turn: Turn, year: int | None = None, speaker: str | None = None) -> Lead:
    """Date (where the speaker was) and speaker; of a date in this year month and day, which are half as many tokens.
    A user without a name goes unnamed.
    """
    name = speaker or _called(turn)
    said_on = _local_date(turn)
    day = said_on.text[MONTH_AT:] if said_on.year == year else said_on.text
    return Lead(day, f"{name}:", unnamed=name == turn.role == "user")


def _called(turn: Turn) -> str:
    """Who speaks. No name passes for what a role is called, or for a name and something that was said."""
    name = _plain(_COLON.sub(" ", turn.speaker or turn.tool_name or ""))
    if not name or (name != turn.role and name.casefold() in _ROLES):
        return f"{turn.role} {name}".rstrip()
    return name


def full_lead(turn: Turn) -> Lead:
    """For a reader who is told nothing else: every line says when, and who."""
    day, name, _ = lead(turn)
    return Lead("", f"{day} {name}")


def year_of(turns: Sequence[Turn]) -> int:
    """The year that lines leave out: that of the newest turn."""
    return _local_date(turns[-1]).year


def _local_date(turn: Turn) -> _Date:
    return _date((turn.created_at + turn.offset_minutes * MINUTE_US) // DAY_US)


class _Date(NamedTuple):
    year: int
    text: str


@lru_cache(maxsize=DATES_KEPT)
def _date(days: int) -> _Date:
    """So many days after 1970 began."""
    found = _EPOCH + timedelta(days=days)
    return _Date(found.year, found.isoformat())
