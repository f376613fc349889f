"""What a clause is: a constraint, a wish, a hypothesis, another person's matter, a question, talk. Pure.

A clause is judged by its own cues, by its sentence, and by how the assistant takes it: what is taken down or repeated
binds more likely than what is laughed off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from serve_app.compress.statements import Clause, Verdict
from serve_app.compress.worths import Heard, heard, worth
from serve_app.core import Turn

ACTIVE_FROM = 1.5
"""Worth from which a clause is an entry of the ledger."""


class Judged(NamedTuple):
    """Per clause, `superseded` not among the verdicts."""

    verdicts: list[Verdict]
    worths: list[float]
    heard: Mapping[int, Heard]


def judged(turns: Sequence[Turn], clauses: Sequence[Clause]) -> Judged:
    """Verdict and worth of each clause."""
    took = heard(turns, clauses)
    worths = [worth(turns[clause.turn], clause, took[clause.turn]) for clause in clauses]
    verdicts = _verdicts(turns, clauses, worths, took, _taking_part(turns, clauses))
    return Judged(verdicts, worths, took)


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
    took: Mapping[int, Heard],
    taking_part: frozenset[str],
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for _, part in groupby(range(len(clauses)), key=lambda number: clauses[number].turn):
        verdicts += _of_turn(turns, clauses, worths, list(part), took, taking_part)
    return verdicts


def _of_turn(
    turns: Sequence[Turn],
    clauses: Sequence[Clause],
    worths: Sequence[float],
    numbers: Sequence[int],
    took: Mapping[int, Heard],
    taking_part: frozenset[str],
) -> list[Verdict]:
    """The clauses of one turn in order: a hypothesis or another person's matter goes on until something ends it."""
    turn = turns[clauses[numbers[0]].turn]
    heard = took[clauses[numbers[0]].turn]
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
            running = _begins(clause, rest, following, heard, taking_part) or running
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
