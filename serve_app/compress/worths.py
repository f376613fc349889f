"""How much a clause is worth keeping: its own cues and values, and how the assistant takes its turn. Pure.

What is taken down or repeated binds more likely than what is laughed off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

_STRONG = frozenset(("binds", "implicit", "literal"))

BRIEF_BYTES_MAX = 42
"""A reply of fewer takes note and says nothing of its own. Bytes: a Chinese character says more."""

COUNTED_MAX = {"value": 3, "exact": 2, "echoed": 4}

EXACT = ("money", "date", "time", "code", "size", "percent", "email", "url", "path", "version", "name")
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

    @property
    def amounts(self) -> frozenset[str]:
        return frozenset(value.amount for value in self.values)


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
    return Heard(
        "acknowledged" in signals,
        "changed" in signals,
        any("dismissed" in clause.signals for clause in reply),
        asked,
        frozenset().union(*(clause.words for clause in reply)),
        tuple(value for clause in reply for value in clause.values),
        bool(reply) and sum(len(clause.folded.encode()) for clause in reply) <= BRIEF_BYTES_MAX,
        not reply,
        frozenset().union(*(clause.words for clause in before)) if asked else frozenset(),
    )


def _assistant(turns: Sequence[Turn], number: int) -> bool:
    return 0 <= number < len(turns) and turns[number].role == "assistant"


def signals_of(turn: Turn, clause: Clause, heard: Heard, sentence: Sequence[Clause]) -> dict[str, int]:
    """What counts for the worth of a clause, and how often."""
    counts = {signal: 1 for signal in clause.signals if signal in WORTHS and signal not in ("acknowledged", "changed")}
    amounts = {value.amount for value in clause.values}
    counts["value"] = len(clause.values)
    counts["exact"] = sum(value.kind in EXACT for value in clause.values)
    counts["repeated"] = len(amounts & heard.amounts)
    counts["echoed"] = len(clause.words & heard.words)
    counts["acknowledged"] = int(heard.acknowledged)
    counts["changed"] = int(heard.changed)
    counts["briefly"] = int(heard.briefly)
    counts["unheard"] = int(heard.unheard)
    counts["answers"] = int(heard.asked)
    counts["data"] = int(turn.role == "tool")
    counts["beside"] = int(any(_STRONG & other.signals for other in sentence if other is not clause))
    counts["asks"] = int("question" in sentence[-1].signals and sentence[-1] is not clause)
    return {signal: min(count, COUNTED_MAX.get(signal, 1)) for signal, count in counts.items() if count}


def worth(turn: Turn, clause: Clause, heard: Heard, sentence: Sequence[Clause]) -> float:
    """To compare clauses of a conversation with; higher is kept first."""
    counts = signals_of(turn, clause, heard, sentence)
    return round(ROLE_WORTH[turn.role] + sum(WORTHS[signal] * counts[signal] for signal in sorted(counts)), 4)
