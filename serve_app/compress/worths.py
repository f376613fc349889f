"""How much a clause is worth keeping: its own cues and values, and how the assistant takes its turn. Pure.

What is taken down or repeated binds more likely than what is laughed off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from serve_app.compress.statements import Clause
from serve_app.core import Turn

WORTHS = {
    "binds": 2.0,
    "implicit": 2.0,
    "refusal": 1.5,
    "directive": 1.0,
    "literal": 1.0,
    "value": 0.5,
    "exact": 0.75,
    "acknowledged": 0.5,
    "changed": 0.75,
    "echoed": 0.5,
    "answers": 0.5,
    "own": 0.25,
    "first": 0.0,
    "soft": -0.5,
    "question": -2.0,
    "small_talk": -1.5,
    "past": -0.75,
    "change": 0.25,
    "withdrawal": 0.25,
}
"""What each signal adds to the worth of a clause."""

COUNTED_MAX = {"value": 3, "exact": 2, "echoed": 4}

EXACT = ("money", "date", "time", "code", "size", "percent")
"""Kinds of values that cannot be guessed again."""

ROLE_WORTH = {"user": 0.0, "tool": 0.0, "assistant": -3.0, "system": -1.0}

NEAR_CHARS_MAX = 120
"""A longer reply of the assistant tells something; what it repeats says little about what it heard."""


class Heard(NamedTuple):
    """How the assistant takes a turn, and whether it had asked for it."""

    acknowledged: bool = False
    changed: bool = False
    dismissed: bool = False
    asked: bool = False
    words: frozenset[str] = frozenset()
    amounts: frozenset[str] = frozenset()
    asked_words: frozenset[str] = frozenset()


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
    signals = frozenset().union(*(clause.signals for clause in reply))
    return Heard(
        "acknowledged" in signals,
        "changed" in signals,
        "dismissed" in signals,
        asked,
        frozenset().union(*(clause.words for clause in reply)),
        frozenset(value.amount for clause in reply for value in clause.values),
        frozenset().union(*(clause.words for clause in before)) if asked else frozenset(),
    )


def _assistant(turns: Sequence[Turn], number: int) -> bool:
    return 0 <= number < len(turns) and turns[number].role == "assistant"


def signals_of(clause: Clause, heard: Heard) -> dict[str, int]:
    """What counts for the worth of a clause, and how often."""
    counts = {signal: 1 for signal in clause.signals if signal in WORTHS and signal not in ("acknowledged", "changed")}
    amounts = {value.amount for value in clause.values}
    counts["value"] = len(clause.values)
    counts["exact"] = sum(value.kind in EXACT for value in clause.values)
    counts["echoed"] = len(clause.words & heard.words) + len(amounts & heard.amounts)
    counts["acknowledged"] = int(heard.acknowledged)
    counts["changed"] = int(heard.changed)
    counts["answers"] = int(heard.asked)
    return {signal: min(count, COUNTED_MAX.get(signal, 1)) for signal, count in counts.items() if count}


def worth(turn: Turn, clause: Clause, heard: Heard) -> float:
    """To compare clauses of a conversation with; higher is kept first."""
    counts = signals_of(clause, heard)
    return round(ROLE_WORTH[turn.role] + sum(WORTHS[signal] * counts[signal] for signal in sorted(counts)), 4)
