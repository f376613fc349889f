"""How much a clause is worth keeping: its own cues and values, and how the assistant takes its turn. Pure.

What is taken down or repeated binds more likely than what is laughed off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from serve_app.compress.statements import Clause, Value
from serve_app.core import Turn

WORTHS = {
    "repeated": 2.5,
    "answers": 2.1,
    "binds": 1.8,
    "beside": 1.4,
    "acknowledged": 1.3,
    "implicit": 1.2,
    "unheard": 1.3,
    "briefly": 0.9,
    "exact": 0.9,
    "directive": 0.7,
    "changed": 0.7,
    "change": 0.6,
    "lasting": 0.6,
    "refusal": 0.6,
    "literal": 0.6,
    "echoed": 0.5,
    "therefore": 0.3,
    "data": 0.3,
    "value": 0.2,
    "own": -0.2,
    "withdrawal": -0.2,
    "instructs": -0.4,
    "participant": -0.6,
    "reports": -0.6,
    "asks": -0.7,
    "past": -1.4,
    "small_talk": -1.5,
    "question": -2.3,
}
"""What each signal adds to the worth of a clause: the weights of a logistic regression on labelled dialogues in Chinese
and English, rounded."""

SIGNAL_SETS_MAX = 4_096
"""Sets of signals whose sum is kept."""

_HEARD = frozenset(("acknowledged", "changed"))
"""Told of a clause by its reply, not by its own words."""
_PLEASANT = frozenset(("small_talk",))
_STRONG = frozenset(("binds", "implicit", "literal"))

BRIEF_BYTES_MAX = 42
"""A reply of fewer takes note and says nothing of its own. Bytes: a Chinese character says more."""

COUNTED_MAX = {"value": 3, "exact": 2, "echoed": 4}

EXACT = (
    "money",
    "date",
    "day",
    "time",
    "code",
    "size",
    "percent",
    "email",
    "url",
    "path",
    "version",
    "name",
    "address",
)
"""Kinds of values that cannot be guessed again."""

ROLE_WORTH = {"user": 0.0, "tool": 0.0, "assistant": -2.0, "system": -1.0}

NEAR_CHARS_MAX = 120
"""A longer reply of the assistant tells something; what it repeats says little about what it heard."""


class Heard(NamedTuple):
    """How the assistant takes a turn, and whether it had asked for it."""

    acknowledged: bool = False
    changed: bool = False
    dismissed: bool = False
    asked: bool = False
    words: frozenset[str] = frozenset()
    values: tuple[Value, ...] = ()
    briefly: bool = False
    unheard: bool = False
    asked_words: frozenset[str] = frozenset()
    amounts: frozenset[str] = frozenset()
    removed: bool = False
    concluded: bool = False


def heard(turns: Sequence[Turn], clauses: Sequence[Clause]) -> Mapping[int, Heard]:
    """By number of turn."""
    by_turn = {number: list(part) for number, part in groupby(clauses, key=lambda clause: clause.turn)}
    return {number: _heard(turns, by_turn, number) for number in by_turn}


def _heard(turns: Sequence[Turn], by_turn: Mapping[int, list[Clause]], number: int) -> Heard:
    if turns[number].role not in ("user", "tool"):
        return Heard()
    reply = by_turn.get(number + 1, []) if _assistant(turns, number + 1) else []
    before = by_turn.get(number - 1, []) if number and _assistant(turns, number - 1) else []
    asked = any("question" in clause.signals for clause in before)
    if reply and reply[-1].end > NEAR_CHARS_MAX:
        reply = reply[:1]
    signals = frozenset().union(*(clause.signals for clause in reply[:2]))
    values = tuple(value for clause in reply for value in clause.values)
    told = frozenset().union(*(clause.words for clause in reply))
    named = frozenset().union(*(clause.words for clause in by_turn[number])) if told else told
    return Heard(
        "acknowledged" in signals,
        "changed" in signals,
        any("dismissed" in clause.signals for clause in reply),
        asked,
        told,
        values,
        bool(reply) and sum(len(clause.folded.encode()) for clause in reply) <= BRIEF_BYTES_MAX,
        not reply,
        frozenset().union(*(clause.words for clause in before)) if asked else frozenset(),
        frozenset(value.amount for value in values),
        any("removed" in clause.signals for clause in reply) and not values and not told & named,
        any("concludes" in clause.signals and "question" not in clause.signals for clause in reply),
    )


def _assistant(turns: Sequence[Turn], number: int) -> bool:
    return 0 <= number < len(turns) and turns[number].role == "assistant"


def signs_of(turn: Turn, clause: Clause, heard: Heard, sentence: Sequence[Clause]) -> dict[str, int]:
    """What counts for the worth of a clause beside its own signals, and how often."""
    last = sentence[-1]
    signs = {
        "value": min(len(clause.values), COUNTED_MAX["value"]),
        "exact": min(sum(value.kind in EXACT for value in clause.values), COUNTED_MAX["exact"]),
        "repeated": clause.values != () and any(value.amount in heard.amounts for value in clause.values),
        "echoed": min(len(clause.words & heard.words), COUNTED_MAX["echoed"]),
        "acknowledged": heard.acknowledged,
        "changed": heard.changed,
        "briefly": heard.briefly,
        "unheard": heard.unheard,
        "answers": heard.asked,
        "data": turn.role == "tool",
        "beside": last is not sentence[0] and any(_STRONG & one.signals for one in sentence if one is not clause),
        "asks": last is not clause and "question" in last.signals,
    }
    return {sign: count for sign, count in signs.items() if count}


def worth(turn: Turn, clause: Clause, heard: Heard, sentence: Sequence[Clause]) -> float:
    """To compare clauses of a conversation with; higher is kept first."""
    signs = signs_of(turn, clause, heard, sentence)
    own = _of_signals(clause.signals - _PLEASANT if clause.values else clause.signals)
    return round(ROLE_WORTH[turn.role] + own + sum(WORTHS[sign] * signs[sign] for sign in signs), 4)


@lru_cache(SIGNAL_SETS_MAX)
def _of_signals(signals: frozenset[str]) -> float:
    return sum(WORTHS[signal] for signal in sorted(signals - _HEARD) if signal in WORTHS)
