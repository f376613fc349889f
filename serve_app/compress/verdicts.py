"""What a clause is: a constraint, a wish, a hypothesis, another person's matter, a question, talk. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.compress.statements import Clause, Verdict
from serve_app.core import Turn

ACTIVE_FROM = 2.0
"""Worth from which a clause of a user is an entry of the ledger."""

WORTHS = {
    "binds": 3.0,
    "implicit": 3.0,
    "refusal": 3.0,
    "directive": 1.0,
    "literal": 2.0,
    "question": -2.0,
    "small_talk": -3.0,
    "past": -1.0,
}
VALUE_WORTH = 1.0
VALUES_COUNTED_MAX = 3


def judged(turns: Sequence[Turn], clauses: Sequence[Clause]) -> list[tuple[Verdict, float]]:
    """Verdict (`superseded` not among them) and worth of each clause."""
    return [_judged(turns[clause.turn], clause) for clause in clauses]


def _judged(turn: Turn, clause: Clause) -> tuple[Verdict, float]:
    signals = clause.signals
    worth = sum(WORTHS.get(signal, 0.0) for signal in sorted(signals))
    worth += VALUE_WORTH * min(len(clause.values), VALUES_COUNTED_MAX)
    if "hypothetical" in signals:
        return "hypothetical", worth
    if "third_person" in signals and "participant" not in signals:
        return "third_person", worth
    if "soft" in signals:
        return "soft", worth
    if worth >= ACTIVE_FROM and turn.role in ("user", "tool"):
        return "active", worth
    if "question" in signals:
        return "question", worth
    return ("small_talk" if "small_talk" in signals else "plain"), worth
