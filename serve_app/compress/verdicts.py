"""What a clause is: a constraint, a wish, a hypothesis, another person's matter, a question, talk. Pure.

The worth of a clause is a sum over its evidence: what its cues say, what its sentence says, and how the others took it.
An assistant that takes a statement down, or repeats its figures, tells that it was meant to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from serve_app.compress.scope import outside
from serve_app.compress.statements import Clause, Verdict
from serve_app.core import Turn

ACTIVE_FROM = 2.0
"""Worth from which a clause is an entry of the ledger."""

WORTHS = {
    "bias": -1.0,
    "binds": 2.5,
    "implicit": 2.5,
    "refusal": 1.0,
    "directive": 1.0,
    "literal": 1.5,
    "lasting": 0.5,
    "change": 1.0,
    "withdrawal": 0.0,
    "participant": 0.5,
    "own": 0.0,
    "question": -2.5,
    "asks": -1.0,
    "small_talk": -3.0,
    "past": -1.0,
    "value": 0.5,
    "exact": 1.5,
    "beside": 0.5,
    "acknowledged": 0.7,
    "changed": 1.0,
    "repeated": 1.0,
    "named": 0.5,
    "named3": 0.5,
    "briefly": 0.0,
    "asked_on": 0.0,
    "instructs": 0.0,
    "reports": 0.0,
    "therefore": 0.0,
    "confirmation": 0.0,
    "person_named": 0.0,
    "first": 0.0,
    "long": 0.0,
    "bv": 0.0,
    "answers": 0.5,
    "data": 0.0,
}
"""What each piece of evidence adds."""

EXACT = frozenset(("email", "url", "path", "version", "date", "time", "money", "code", "name", "percent"))
"""Kinds of values that nobody can guess again."""

SHORT_CHARS_MAX = 16
_STRONG = frozenset(("binds", "implicit", "literal"))


def judged(turns: Sequence[Turn], clauses: Sequence[Clause]) -> list[tuple[Verdict, float]]:
    """Verdict (`superseded` not among them) and worth of each clause."""
    outsides = outside(clauses)
    confirmed = _confirmed(turns, clauses)
    found: list[tuple[Verdict, float]] = []
    for clause, evidence, out in zip(clauses, evidences(turns, clauses), outsides, strict=True):
        worth = round(sum(WORTHS[name] for name in sorted(evidence)), 2)
        said = turns[clause.turn].role in ("user", "tool") or clause.sentence in confirmed
        found.append((_verdict(clause, worth, said) if out is None else out, worth))
    return _carried(clauses, found)


def _verdict(clause: Clause, worth: float, said: bool) -> Verdict:
    signals = clause.signals
    if "soft" in signals:
        return "soft"
    if said and worth >= ACTIVE_FROM:
        return "active"
    if "question" in signals:
        return "question"
    return "small_talk" if "small_talk" in signals else "plain"


def _carried(clauses: Sequence[Clause], judged: list[tuple[Verdict, float]]) -> list[tuple[Verdict, float]]:
    """A plain part of a sentence that binds belongs to what binds: it names the subject or the reason."""
    found: list[tuple[Verdict, float]] = []
    for _, group in groupby(zip(clauses, judged, strict=True), key=lambda pair: pair[0].sentence):
        verdicts = [verdict for _, verdict in group]
        best = max((worth for verdict, worth in verdicts if verdict == "active"), default=None)
        found += [("active", best) if verdict == "plain" and best is not None else (verdict, worth) for verdict, worth in verdicts]
    return found


# ---------------------------------------------------------------- evidence


def evidences(turns: Sequence[Turn], clauses: Sequence[Clause]) -> Iterator[frozenset[str]]:
    """The names in WORTHS that hold for each clause."""
    by_turn: dict[int, list[Clause]] = {}
    by_sentence: dict[int, list[Clause]] = {}
    for clause in clauses:
        by_turn.setdefault(clause.turn, []).append(clause)
        by_sentence.setdefault(clause.sentence, []).append(clause)
    for clause in clauses:
        reply = by_turn.get(clause.turn + 1, []) if _follows(turns, clause.turn, "assistant") else []
        before = by_turn.get(clause.turn - 1, []) if clause.turn and turns[clause.turn - 1].role == "assistant" else []
        yield frozenset(_evidence(turns[clause.turn], clause, by_sentence[clause.sentence], reply, before))


def _follows(turns: Sequence[Turn], turn: int, role: str) -> bool:
    return turn + 1 < len(turns) and turns[turn + 1].role == role


def _evidence(
    turn: Turn, clause: Clause, sentence: Sequence[Clause], reply: Sequence[Clause], before: Sequence[Clause]
) -> Iterator[str]:
    yield "bias"
    if clause.person: yield "person_named"
    if clause.turn == 0: yield "first"
    if len(sentence) > 3: yield "long"
    if clause.values and _STRONG & clause.signals: yield "bv"
    yield from (name for name in clause.signals if name in WORTHS and name not in ("acknowledged", "changed"))
    kinds = {value.kind for value in clause.values}
    if kinds & EXACT:
        yield "exact"
    if kinds:
        yield "value"
    if any(_STRONG & other.signals for other in sentence if other is not clause):
        yield "beside"
    if "question" in sentence[-1].signals and sentence[-1] is not clause:
        yield "asks"
    if turn.role == "tool":
        yield "data"
    if before and any("question" in other.signals or "confirm_request" in other.signals for other in before[-2:]):
        yield "answers"
    if not reply:
        return
    if any("acknowledged" in other.signals for other in reply[:2]):
        yield "acknowledged"
    if any("changed" in other.signals for other in reply[:2]):
        yield "changed"
    said = {value.amount for other in reply for value in other.values}
    if any(value.amount in said for value in clause.values):
        yield "repeated"
    if sum(other.end - other.start for other in reply) <= SHORT_CHARS_MAX:
        yield "briefly"
    if reply[-1].folded.endswith("?"):
        yield "asked_on"
    words = frozenset().union(*(other.words for other in reply))
    shared = len(words & clause.words)
    if shared >= 1: yield "named"
    if shared >= 3: yield "named3"


def _confirmed(turns: Sequence[Turn], clauses: Sequence[Clause]) -> frozenset[int]:
    """Sentences of assistants that ask whether something holds and are answered with yes."""
    found: set[int] = set()
    starts: dict[int, Clause] = {}
    for clause in clauses:
        starts.setdefault(clause.turn, clause)
    for turn in range(len(turns) - 1):
        if turns[turn].role != "assistant" or not _follows(turns, turn, "user"):
            continue
        answer = starts.get(turn + 1)
        if answer is None or "confirmation" not in answer.signals or "denial" in answer.signals:
            continue
        asking = {c.sentence for c in clauses if c.turn == turn and {"confirm_request", "question"} & c.signals}
        found |= asking
    return frozenset(found)
