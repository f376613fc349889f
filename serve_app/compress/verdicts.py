"""What a clause is: a constraint, a wish, a hypothesis, another person's matter, a question, talk. Pure.

A clause is judged by its own cues, by its sentence, and by how the assistant takes it: what is taken down or repeated
binds more likely than what is laughed off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from serve_app.compress.scope import outside
from serve_app.compress.statements import Clause, Verdict
from serve_app.compress.worths import EXACT, Heard, heard, worth
from serve_app.core import Role, Turn

ACTIVE_FROM = 2.8
"""Worth from which a clause is an entry of the ledger."""

CARRIED_FROM = 1.5
"""The same for what stands beside one."""

STRONG_FROM = 2.0
"""The same for what says must or never."""

EXACT_FROM = 2.3
"""The same for what names an exact value: a date, a sum, a code."""

AGREED_WORTH = 4.0
"""What the assistant asked and the user said yes to."""

_STRONG = frozenset(("binds", "implicit", "refusal"))
_WEAK = frozenset(("question", "small_talk"))


class Judged(NamedTuple):
    """Per clause, `superseded` not among the verdicts."""

    verdicts: list[Verdict]
    worths: list[float]
    heard: Mapping[int, Heard]


def judged(turns: Sequence[Turn], clauses: Sequence[Clause]) -> Judged:
    """Verdict and worth of each clause."""
    took = heard(turns, clauses)
    agreed = _agreed(turns, clauses)
    sentences: dict[int, list[Clause]] = {}
    for clause in clauses:
        sentences.setdefault(clause.sentence, []).append(clause)
    worths = [
        AGREED_WORTH
        if clause.sentence in agreed
        else worth(turns[clause.turn], clause, took[clause.turn], sentences[clause.sentence])
        for clause in clauses
    ]
    verdicts = [
        out or _plain(turns[clause.turn].role, clause, one, sentences[clause.sentence], clause.sentence in agreed)
        for clause, one, out in zip(clauses, worths, outside(turns, clauses, took), strict=True)
    ]
    return Judged(_carried(clauses, verdicts, worths), worths, took)


def _carried(clauses: Sequence[Clause], verdicts: Sequence[Verdict], worths: Sequence[float]) -> list[Verdict]:
    """A plain clause beside one that binds, in its sentence, belongs to it: it names the subject or the reason."""
    found = list(verdicts)
    for number, clause in enumerate(clauses):
        if verdicts[number] != "plain" or worths[number] < CARRIED_FROM:
            continue
        beside = (other for other in (number - 1, number + 1) if 0 <= other < len(clauses))
        if any(verdicts[other] == "active" and clauses[other].sentence == clause.sentence for other in beside):
            found[number] = "active"
    return found


def _plain(role: Role, clause: Clause, worth: float, sentence: Sequence[Clause], agreed: bool) -> Verdict:
    """A clause that says must or never binds however the assistant takes it."""
    signals = clause.signals
    likely = worth >= ACTIVE_FROM and "question" not in sentence[-1].signals
    binds = agreed or (role in ("user", "tool") and (likely or _says_so(clause, worth)))
    if binds and _says_something(clause):
        return "soft" if "soft" in signals and not _STRONG & signals else "active"
    if "soft" in signals:
        return "soft"
    if "question" in signals:
        return "question"
    return "small_talk" if "small_talk" in signals else "plain"


def _says_so(clause: Clause, worth: float) -> bool:
    """Whether its words alone bind. What somebody is or has binds, and be it told of yesterday."""
    signals = clause.signals
    if _WEAK & signals:
        return False
    if "implicit" in signals or ("literal" in signals and clause.values):
        return True
    if "past" in signals:
        return False
    exact = worth >= EXACT_FROM and any(value.kind in EXACT for value in clause.values)
    return exact or (worth >= STRONG_FROM and bool(_STRONG & signals))


def _says_something(clause: Clause) -> bool:
    """Whether it stands alone: a mere yes, or a no to nothing named, does not."""
    if "confirmation" in clause.signals and not clause.values:
        return len(clause.words) > 1
    return bool(clause.values or {"implicit", "binds"} & clause.signals) or len(clause.words) > 1


def _agreed(turns: Sequence[Turn], clauses: Sequence[Clause]) -> frozenset[int]:
    """Sentences in which one asks whether something holds, and the other says that it does."""
    answers: dict[int, Clause] = {}
    for clause in clauses:
        answers.setdefault(clause.turn, clause)
    return frozenset(clause.sentence for clause in clauses if _holds(turns, clause, answers.get(clause.turn + 1)))


def _holds(turns: Sequence[Turn], clause: Clause, answer: Clause | None) -> bool:
    if answer is None or "confirmation" not in answer.signals or "denial" in answer.signals:
        return False
    match turns[clause.turn].role, turns[answer.turn].role:
        case "assistant", "user":
            return bool({"confirm_request", "question"} & clause.signals)
        case "user", "assistant":
            return "question" in clause.signals and bool(_STRONG & clause.signals)
    return False
