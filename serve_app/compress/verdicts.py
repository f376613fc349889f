"""What a clause is: a constraint, a wish, a hypothesis, another person's matter, a question, talk. Pure.

A clause is judged by its own cues, by its sentence, and by how the assistant takes it: what is taken down or repeated
binds more likely than what is laughed off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from serve_app.compress.statements import Clause, Verdict
from serve_app.core import Turn

ACTIVE_FROM = 1.5
"""Worth from which a clause is an entry of the ledger."""

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


class Judged(NamedTuple):
    """Per clause, `superseded` not among the verdicts."""

    verdicts: list[Verdict]
    worths: list[float]
    heard: Mapping[int, Heard]


def judged(turns: Sequence[Turn], clauses: Sequence[Clause]) -> Judged:
    """Verdict and worth of each clause."""
    by_turn = {number: list(part) for number, part in groupby(clauses, key=lambda clause: clause.turn)}
    heard = {number: _heard(turns, by_turn, number) for number in by_turn}
    worths = [worth(turns[clause.turn], clause, heard[clause.turn]) for clause in clauses]
    verdicts = _verdicts(turns, clauses, worths, heard, _taking_part(turns, clauses))
    return Judged(verdicts, worths, heard)


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


def _taking_part(turns: Sequence[Turn], clauses: Sequence[Clause]) -> frozenset[str]:
    """Words for the people who take part in what is planned."""
    return frozenset(
        word
        for clause in clauses
        if turns[clause.turn].role == "user" and "participant" in clause.signals and "absent" not in clause.signals
        for word in clause.words
    )


def _verdicts(
    turns: Sequence[Turn],
    clauses: Sequence[Clause],
    worths: Sequence[float],
    heard: Mapping[int, Heard],
    taking_part: frozenset[str],
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for _, part in groupby(range(len(clauses)), key=lambda number: clauses[number].turn):
        verdicts += _of_turn(turns, clauses, worths, list(part), heard, taking_part)
    return verdicts


def _of_turn(
    turns: Sequence[Turn],
    clauses: Sequence[Clause],
    worths: Sequence[float],
    numbers: Sequence[int],
    heard: Mapping[int, Heard],
    taking_part: frozenset[str],
) -> list[Verdict]:
    """The clauses of one turn in order: a hypothesis or another person's matter goes on until something ends it."""
    turn = turns[clauses[numbers[0]].turn]
    took = heard[clauses[numbers[0]].turn]
    verdicts: list[Verdict] = []
    running: Verdict | None = None
    sentence = -1
    for place, number in enumerate(numbers):
        clause = clauses[number]
        rest = [clauses[later] for later in numbers[place + 1 :] if clauses[later].sentence == clause.sentence]
        following = [clauses[later] for later in numbers[place + 1 :] if clauses[later].sentence == clause.sentence + 1]
        if clause.sentence != sentence:
            running = running if running == "third_person" and _goes_on(clause) else None
            sentence = clause.sentence
        elif running and _ends(running, clause):
            running = None
        if turn.role in ("user", "assistant"):
            running = _begins(clause, rest, following, took, taking_part) or running
        verdicts.append(running or _plain(turn, clause, worths[number]))
    return verdicts


def _begins(
    clause: Clause, rest: Sequence[Clause], following: Sequence[Clause], heard: Heard, taking_part: frozenset[str]
) -> Verdict | None:
    """What runs on from this clause."""
    if "hypothetical" in clause.signals:
        return "hypothetical"
    if "third_person" in clause.signals and _of_another(clause, rest, following, heard, taking_part):
        return "third_person"
    return None


def _of_another(
    clause: Clause, rest: Sequence[Clause], following: Sequence[Clause], heard: Heard, taking_part: frozenset[str]
) -> bool:
    """Whether it speaks of somebody who takes no part."""
    near = [clause, *rest, *following]
    if any("absent" in one.signals for one in near) or heard.dismissed:
        return True
    if any("participant" in one.signals for one in (clause, *rest)):
        return False
    if any(word in taking_part for word in clause.words if word in clause.who):
        return False
    return not any({"directive", "change"} & one.signals for one in rest)


def _goes_on(clause: Clause) -> bool:
    """Whether a sentence after another person's matter is still about them."""
    return not {"own", "directive", "participant", "implicit"} & clause.signals and not clause.values


def _ends(running: Verdict, clause: Clause) -> bool:
    if running == "hypothetical":
        return bool({"directive", "refusal"} & clause.signals) and "hypothetical" not in clause.signals
    return bool({"own", "directive"} & clause.signals) and "third_person" not in clause.signals


def _plain(turn: Turn, clause: Clause, worth: float) -> Verdict:
    signals = clause.signals
    if turn.role in ("user", "tool") and worth >= ACTIVE_FROM:
        return "soft" if "soft" in signals and not {"binds", "implicit", "refusal"} & signals else "active"
    if "soft" in signals:
        return "soft"
    if "question" in signals:
        return "question"
    return "small_talk" if "small_talk" in signals else "plain"
