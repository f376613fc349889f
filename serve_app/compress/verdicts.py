"""What a clause is: a constraint, a wish, a hypothesis, another person's matter, a question, talk. Pure.

A clause is judged by its own cues, by its sentence, and by how the assistant takes it: what is taken down or repeated
binds more likely than what is laughed off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from serve_app.compress.scope import outside
from serve_app.compress.statements import Clause, Verdict
from serve_app.compress.worths import Heard, heard, worth
from serve_app.core import Turn

ACTIVE_FROM = 2.8
"""Worth from which a clause is an entry of the ledger."""

AGREED_WORTH = 4.0
"""What the assistant asked and the user said yes to."""

SAYS_WORDS_MIN = 2
"""Content words of a yes that says something of its own."""

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
        out or _plain(clause, one, turns[clause.turn].role in ("user", "tool") or clause.sentence in agreed)
        for clause, one, out in zip(clauses, worths, outside(turns, clauses, took), strict=True)
    ]
    return Judged(verdicts, worths, took)


def _plain(clause: Clause, worth: float, said: bool) -> Verdict:
    """A clause that says must or never binds however the assistant takes it."""
    signals = clause.signals
    said = said and not ("confirmation" in signals and not clause.values and len(clause.words) < SAYS_WORDS_MIN)
    strong = _says_so(clause)
    if said and (worth >= ACTIVE_FROM or strong):
        return "soft" if "soft" in signals and not _STRONG & signals else "active"
    if "soft" in signals:
        return "soft"
    if "question" in signals:
        return "question"
    return "small_talk" if "small_talk" in signals else "plain"


def _says_so(clause: Clause) -> bool:
    """Whether its words alone bind. What somebody is or has binds, and be it told of yesterday."""
    signals = clause.signals
    if _WEAK & signals:
        return False
    return (
        "implicit" in signals
        or bool(_STRONG & signals and "past" not in signals)
        or ("literal" in signals and bool(clause.values))
    )


def _agreed(turns: Sequence[Turn], clauses: Sequence[Clause]) -> frozenset[int]:
    """Sentences in which the assistant asks whether something holds, and the user says that it does."""
    answers: dict[int, Clause] = {}
    for clause in clauses:
        answers.setdefault(clause.turn, clause)
    return frozenset(
        clause.sentence
        for clause in clauses
        if turns[clause.turn].role == "assistant"
        and {"confirm_request", "question"} & clause.signals
        and clause.turn + 1 in answers
        and turns[clause.turn + 1].role == "user"
        and "confirmation" in answers[clause.turn + 1].signals
        and "denial" not in answers[clause.turn + 1].signals
    )
